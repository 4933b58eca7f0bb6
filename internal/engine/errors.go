package engine

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/wire"
)

// ErrClosed says that this node has closed the communicator.
var ErrClosed = errors.New("closed")

// A PeerError says that a rank has failed or left.
type PeerError struct {
	Rank p2p.Member
	Left bool // it has closed in good order
	Err  error
}

func (e *PeerError) Error() string {
	if e.Left {
		return fmt.Sprintf("%v has left", e.Rank)
	}
	return fmt.Sprintf("%v failed: %v", e.Rank, e.Err)
}

func (e *PeerError) Unwrap() error { return e.Err }

// IsLeave reports whether a communicator has ended because a rank has left, as this rank or another one has noticed.
func IsLeave(cause error) bool {
	_, has := departed(cause)
	return has
}

// IsFailure reports whether a communicator has ended because a node has failed, or this one according to others, or is not in the next view. The seed
// decides then.
func IsFailure(cause error) bool {
	p, failed := errors.AsType[*PeerError](cause)
	r, revoked := errors.AsType[*RevokedError](cause)
	return failed && !p.Left || revoked && r.Cause == wire.CauseFailed || IsRemoval(cause)
}

// A MismatchError says that two ranks made different calls in the same place.
type MismatchError struct {
	Rank, Peer   p2p.Member
	Ours, Theirs wire.Call // of Rank, and of Peer
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%v and %v made different calls", e.Rank, e.Peer)
}

// A RevokedError says that a call failed on a rank, which ended the
// communicator for all.
type RevokedError struct {
	Rank  p2p.Member
	Cause wire.Cause
	Peer  p2p.Member // see [wire.Cause]
	Text  string
}

func (e *RevokedError) Error() string {
	if e.Cause == wire.CauseLeft {
		return fmt.Sprintf("revoked by %v: %v has left", e.Rank, e.Peer)
	}
	return fmt.Sprintf("revoked by %v: %s", e.Rank, e.Text)
}

// A TimeoutError names the ranks that a call was waiting for, directly or since others waited
// for them.
type TimeoutError struct {
	Call     wire.Call // the collective that timed out
	Message  string    // "send", "recv" or "probe"; empty for a collective
	After    time.Duration
	Waiting  []Waiting
	Sentence string // see [trace.Cluster.About]; empty if the communicator is not traced
}

// Waiting is a rank that a call was waiting for. If Known, the rank has answered that its last
// call is Last, and Active tells whether it was still in that call.
type Waiting struct {
	Rank          p2p.Member
	Known, Active bool
	Last          wire.Call
	Unresponsive  bool // it has not answered the last queries
	// For is how long the rank has been in Last, or if it is not Active, how long ago Last
	// ended; 0 if that is unknown. Silent is the age of the answer or, without one, of the first query.
	For, Silent time.Duration
	Doing       string // its state in words: "has been in no call for 4 s"; empty if it is not known, and after the first ten ranks
}

func (e *TimeoutError) Error() string {
	call := cmp.Or(e.Message, fmt.Sprintf("%v #%d", plan.Collective(e.Call.Kind), e.Call.Seq))
	text := fmt.Sprintf("%s timed out after %v", call, e.After)
	switch {
	case e.Sentence != "":
		return text + ": " + e.Sentence
	case len(e.Waiting) > 0:
		return fmt.Sprintf("%s, waiting for %v and %d others", text, e.Waiting[0].Rank, len(e.Waiting)-1)
	}
	return text + ", in its own part of the call"
}

// roundDuration rounds a duration to two digits.
func roundDuration(d time.Duration) time.Duration {
	for _, unit := range []time.Duration{time.Second, 100 * time.Millisecond} {
		if d >= 10*unit {
			return d.Round(unit)
		}
	}
	return d.Round(time.Millisecond)
}

// An EndedError says that an operation could not begin because its
// communicator had ended with Err.
type EndedError struct{ Err error }

func (e *EndedError) Error() string { return "the communicator has ended: " + e.Err.Error() }

func (e *EndedError) Unwrap() error { return e.Err }
