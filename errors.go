package nexar

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/member"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// Conditions that errors of this package report. Test for them with
// errors.Is; the errors that have them say more.
var (
	// ErrClosed says that the communicator or the node was closed here.
	ErrClosed = errors.New("closed")
	// ErrPeerFailed says that a rank has failed or left; see PeerError.
	ErrPeerFailed = errors.New("peer failed")
	// ErrRevoked says that an earlier or concurrent operation has failed, on
	// this rank or another, and the communicator with it.
	ErrRevoked = errors.New("communicator revoked")
	// ErrInvalidRank says that a rank or root is not one of the communicator.
	ErrInvalidRank = errors.New("invalid rank")
	// ErrInvalidTag says that a tag is negative.
	ErrInvalidTag = errors.New("invalid tag")
	// ErrInvalidLength says that the length of a vector is not what the
	// operation asks for.
	ErrInvalidLength = errors.New("invalid length")
	// ErrInvalidOp says that an Op is unknown, or not defined for the type of
	// the elements.
	ErrInvalidOp = errors.New("invalid op")
	// ErrTruncated says that a message is longer than the receiver's buffer.
	ErrTruncated = errors.New("message longer than the receiver's buffer")
	// ErrTypeMismatch says that a message has elements of another type than
	// the receiver's buffer.
	ErrTypeMismatch = errors.New("message of another type than the receiver's buffer")
	// ErrConfig says that a setting is missing or malformed.
	ErrConfig = errors.New("invalid configuration")
)

// A PeerError says which rank has failed or left. It is an ErrPeerFailed.
type PeerError struct {
	Rank int
	Node NodeID
	Addr string // where the node was
	Left bool   // the node was closed in good order
	Err  error  // how it was noticed
}

func (e *PeerError) Error() string {
	what := "failed"
	if e.Left {
		what = "has left"
	}
	text := fmt.Sprintf("rank %d (node %s at %s) %s", e.Rank, e.Node, e.Addr, what)
	if e.Err != nil && !e.Left {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *PeerError) Unwrap() error { return e.Err }

// Is reports that e is an ErrPeerFailed.
func (e *PeerError) Is(target error) bool { return target == ErrPeerFailed }

// A Call is what a rank has called: the how many-th collective of its
// communicator, and its parameters.
type Call struct {
	Op     string // "all_reduce"
	Number uint64
	Type   string // of the elements; empty if there are none
	Length int    // elements per rank
	Reduce string // "sum"; empty if nothing is reduced
	Root   int    // -1 if the operation has none
	Plan   string // how it is carried out
}

func (c Call) String() string {
	if c.Number == 0 {
		return "no collective"
	}
	parts := make([]string, 0, 4)
	if c.Type != "" {
		parts = append(parts, fmt.Sprintf("%d × %s", c.Length, c.Type))
	}
	if c.Reduce != "" {
		parts = append(parts, c.Reduce)
	}
	if c.Root >= 0 {
		parts = append(parts, fmt.Sprintf("root %d", c.Root))
	}
	return fmt.Sprintf("%s #%d (%s)", c.Op, c.Number, strings.Join(parts, ", "))
}

// A MismatchError says that two ranks made different calls as their n-th
// collective. Every rank of the communicator gets it.
type MismatchError struct {
	Rank, Peer     int
	Call, PeerCall Call // of Rank, and of Peer
}

func (e *MismatchError) Error() string {
	how := ""
	if a, b := e.Call, e.PeerCall; a.String() == b.String() {
		how = fmt.Sprintf(", but one by %s and the other by %s: their settings differ", a.Plan, b.Plan)
	}
	return fmt.Sprintf("calls do not match: rank %d called %v, rank %d called %v%s", e.Rank, e.Call, e.Peer, e.PeerCall, how)
}

// A RevokedError says why a communicator can no longer be used. It is an
// ErrRevoked, and whatever its cause is.
type RevokedError struct {
	Rank int   // whose operation failed first; -1 if unknown
	Err  error // why
}

func (e *RevokedError) Error() string {
	if e.Rank < 0 {
		return fmt.Sprintf("%v: %v", ErrRevoked, e.Err)
	}
	return fmt.Sprintf("%v by rank %d: %v", ErrRevoked, e.Rank, e.Err)
}

func (e *RevokedError) Unwrap() error { return e.Err }

// Is reports that e is an ErrRevoked.
func (e *RevokedError) Is(target error) bool { return target == ErrRevoked }

// A TimeoutError says for which ranks an operation waited in vain. It is a
// context.DeadlineExceeded.
type TimeoutError struct {
	Op      string
	After   time.Duration
	Waiting []int    // ranks
	Where   []string // what each of them called last, as far as is known
}

func (e *TimeoutError) Error() string {
	who := make([]string, len(e.Waiting))
	for i, rank := range e.Waiting {
		who[i] = fmt.Sprintf("rank %d (%s)", rank, e.Where[i])
	}
	return fmt.Sprintf("timed out after %v, waiting for %s", e.After, strings.Join(who, ", "))
}

// Timeout reports true, as net.Error has it.
func (e *TimeoutError) Timeout() bool { return true }

// Unwrap returns context.DeadlineExceeded.
func (e *TimeoutError) Unwrap() error { return context.DeadlineExceeded }

// opError adds the package and the operation to an error, at the edge of the
// API and nowhere else.
func opError(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("nexar: %s: %w", op, err)
}

// explain turns an error of the engine into one of this package, which names
// the ranks and their nodes.
func (c *Comm) explain(op string, err error) error {
	if err == nil {
		return nil
	}
	return opError(op, c.translate(err))
}

func (c *Comm) translate(err error) error {
	if e, ok := errors.AsType[*engine.EndedError](err); ok && !errors.Is(e.Err, engine.ErrClosed) {
		switch cause := c.translate(e.Err).(type) {
		case *RevokedError:
			return cause
		default:
			return &RevokedError{Rank: -1, Err: cause}
		}
	}
	if errors.Is(err, engine.ErrClosed) {
		return ErrClosed
	}
	switch e := err.(type) {
	case *engine.PeerError:
		return c.peerError(e)
	case *engine.MismatchError:
		return &MismatchError{Rank: e.Rank, Peer: e.Peer, Call: describe(e.Ours), PeerCall: describe(e.Theirs)}
	case *engine.RevokedError:
		return c.revokedError(e)
	case *engine.TimeoutError:
		return timeoutError(e)
	case *engine.SizeError:
		return fmt.Errorf("%w: %d bytes from rank %d, room for %d", ErrTruncated, e.Size, e.Source, e.Room)
	case *engine.TypeError:
		return fmt.Errorf("%w: %v from rank %d, for a buffer of %v", ErrTypeMismatch, kernel.Type(e.Sent), e.Source, kernel.Type(e.Receiving))
	case *engine.RefusedError:
		if e.Sent != e.Receiving {
			return fmt.Errorf("%w: %v to rank %d, which has a buffer of %v", ErrTypeMismatch, kernel.Type(e.Sent), e.Rank, kernel.Type(e.Receiving))
		}
		return fmt.Errorf("%w: %d bytes to rank %d, which has room for %d", ErrTruncated, e.Size, e.Rank, e.Room)
	}
	return err
}

func (c *Comm) peerError(e *engine.PeerError) *PeerError {
	n := c.nodes[e.Rank]
	return &PeerError{Rank: e.Rank, Node: NodeID(n.ID), Addr: firstAddr(n), Left: e.Left, Err: e.Err}
}

// revokedError says what another rank has told of its failure.
func (c *Comm) revokedError(e *engine.RevokedError) *RevokedError {
	var cause error
	switch e.Cause {
	case wire.CauseCancelled:
		cause = fmt.Errorf("its call was cancelled: %s", e.Text)
	case wire.CauseTimeout:
		cause = fmt.Errorf("its call took too long: %s", e.Text)
	case wire.CauseClosed:
		cause = fmt.Errorf("it has closed the communicator: %s", e.Text)
	case wire.CauseFailed:
		cause = errors.New(e.Text)
		if e.Peer < c.Size() {
			cause = c.peerError(&engine.PeerError{Rank: e.Peer, Left: true, Err: transport.ErrPeerClosed})
		}
	default:
		cause = errors.New(e.Text)
	}
	return &RevokedError{Rank: e.Rank, Err: cause}
}

func timeoutError(e *engine.TimeoutError) *TimeoutError {
	t := &TimeoutError{Op: describe(e.Call).Op, After: e.After}
	for _, w := range e.Waiting {
		where := "not heard of"
		if w.Known {
			where = "last called " + describe(w.Last).String()
			if w.Active {
				where = "in " + describe(w.Last).String()
			}
		}
		t.Waiting = append(t.Waiting, w.Rank)
		t.Where = append(t.Where, where)
	}
	return t
}

// describe makes a fingerprint readable.
func describe(c wire.Call) Call {
	kind := plan.Collective(c.Kind)
	d := Call{Op: kind.String(), Number: c.Seq, Length: int(c.Count), Root: -1}
	if c.Type != 0 {
		d.Type = kernel.Type(c.Type).String()
	}
	if c.Op == customOp {
		d.Op, d.Reduce = "all_reduce_func", "a function"
	} else if c.Op != 0 {
		d.Reduce = kernel.Op(c.Op).String()
	}
	if hasRoot(kind) {
		d.Root = int(c.Root)
	}
	d.Plan = planName(kind, int(c.Plan), int(c.Channels))
	return d
}

func firstAddr(n member.Node) string {
	if len(n.Addrs) == 0 {
		return "no address"
	}
	return n.Addrs[0]
}
