package engine

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/wire"
)

// ErrClosed says that this node has closed the communicator.
var ErrClosed = errors.New("closed")

// A PeerError says that a rank has failed or left.
type PeerError struct {
	Rank int
	Left bool // it closed in good order
	Err  error
}

func (e *PeerError) Error() string {
	if e.Left {
		return fmt.Sprintf("rank %d has left", e.Rank)
	}
	return fmt.Sprintf("rank %d failed: %v", e.Rank, e.Err)
}

func (e *PeerError) Unwrap() error { return e.Err }

// A MismatchError says that two ranks made calls that do not go together.
type MismatchError struct {
	Rank, Peer   int
	Ours, Theirs wire.Call // of Rank, and of Peer
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("ranks %d and %d made different calls", e.Rank, e.Peer)
}

// A RevokedError says that a call failed on a rank, which ended the
// communicator for all.
type RevokedError struct {
	Rank  int
	Cause wire.Cause
	Peer  int // that has left, with CauseFailed
	Text  string
}

func (e *RevokedError) Error() string {
	return fmt.Sprintf("revoked by rank %d: %s", e.Rank, e.Text)
}

// A TimeoutError says for which ranks a call waited in vain, be it that it
// waited for others which waited for them.
type TimeoutError struct {
	Call    wire.Call // that timed out
	After   time.Duration
	Waiting []Waiting
}

// Waiting is a rank that was waited for. Last is the call that it has told to
// be its last, if Known, and Active whether it was still in it.
type Waiting struct {
	Rank          int
	Known, Active bool
	Last          wire.Call
	Mute          bool // it has not answered since
	// For is how long it has been in Last, or if it was not, how long ago that ended;
	// 0 if it has not said so. Silent is how long ago it has said all this.
	For, Silent time.Duration
}

func (e *TimeoutError) Error() string {
	who := make([]string, len(e.Waiting))
	for i, w := range e.Waiting {
		who[i] = fmt.Sprintf("rank %d (%v)", w.Rank, w)
	}
	if len(who) == 0 {
		return "timed out, in its own part of the call"
	}
	return "timed out, waiting for " + strings.Join(who, ", ")
}

// String says where the rank is.
func (w Waiting) String() string {
	call := fmt.Sprintf("%v #%d", plan.Collective(w.Last.Kind), w.Last.Seq)
	if w.Last.Seq == 0 {
		call = "no collective"
	}
	return w.Describe(call)
}

// silentLong is after what silence it is worth telling: a rank that lives has
// answered again by then.
const silentLong = 3 * probeMax

// Describe is String for those who call its last call something.
func (w Waiting) Describe(call string) string {
	text := "last called " + call
	switch {
	case !w.Known:
		return "not heard of"
	case w.Active:
		if text = "in " + call; w.For > 0 {
			text += fmt.Sprintf(" for %v", rough(w.For))
		}
	case w.For > 0:
		text += fmt.Sprintf(", which ended %v ago", rough(w.For))
	}
	if w.Mute || w.Silent > silentLong {
		text += fmt.Sprintf(", and not heard of for %v", rough(w.Silent))
	}
	return text
}

// rough is a time as people tell it.
func rough(d time.Duration) time.Duration {
	for _, unit := range []time.Duration{time.Second, 100 * time.Millisecond} {
		if d >= 10*unit {
			return d.Round(unit)
		}
	}
	return d.Round(time.Millisecond)
}

// An EndedError says that an operation could not begin because its
// communicator has ended, and why it has.
type EndedError struct{ Err error }

func (e *EndedError) Error() string { return "the communicator has ended: " + e.Err.Error() }

func (e *EndedError) Unwrap() error { return e.Err }
