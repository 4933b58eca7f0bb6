package nexar

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/trace"
	"github.com/nexar-go/nexar/internal/wire"
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
	// ErrNoState says that no rank has the state that Sync would hand over.
	ErrNoState = errors.New("no rank has the state: all that had it have gone")
	// ErrNoQuorum says that a node has failed, and those that are left could not
	// agree on who goes on, are fewer than SeedConfig.ElasticMin, or have gone on
	// without this one. Of a network that has fallen apart at most one part goes on, and
	// the nodes of the others get this within Config.RecoveryTimeout. This node is in no
	// world any more, but its program can join again, as a new node: a seed with
	// SeedConfig.Elastic lets it in at the next Checkpoint of the others, when the
	// network is whole.
	//
	//	for {
	//		node, err := nexar.Join(ctx, cfg) // waits for a seed that it can reach
	//		if err != nil {
	//			return err
	//		}
	//		err = train(ctx, node) // loops over node.Epochs, and begins with Sync
	//		node.Close()
	//		if !errors.Is(err, nexar.ErrNoQuorum) {
	//			return err
	//		}
	//	}
	ErrNoQuorum = errors.New("no agreement on who is in the world")
	// ErrInvalidRank says that a rank or root is not one of the communicator.
	ErrInvalidRank = errors.New("invalid rank")
	// ErrInvalidTag says that a tag is negative.
	ErrInvalidTag = errors.New("invalid tag")
	// ErrInvalidLength says that the length of a vector is not what the
	// operation asks for.
	ErrInvalidLength = errors.New("invalid length")
	// ErrOverlap says that dst and src of an operation share memory in another
	// way than it allows; or that two regions of a RecvVec do, two vectors of an
	// AllReduceBuckets, or an operation and another one that is under way, of
	// which one writes there; see Handle.
	ErrOverlap = errors.New("vectors overlap")
	// ErrInvalidOp says that an Op is unknown, or not defined for the type of
	// the elements.
	ErrInvalidOp = errors.New("invalid op")
	// ErrInvalidType says that the elements of a vector are of a type whose
	// bytes do not make up a value in another process: one with pointers.
	ErrInvalidType = errors.New("invalid type of elements")
	// ErrTooLarge says that a call would take more memory than a limit allows.
	ErrTooLarge = errors.New("too large")
	// ErrUnknownFunction says that a rank has no function of a name, or had none
	// yet when the call came.
	ErrUnknownFunction = errors.New("unknown function")
	// ErrBusy says that a rank did not take a call, as it has too many of this
	// rank under way.
	ErrBusy = errors.New("busy")
	// ErrTruncated says that a message is longer than the receiver's buffer.
	ErrTruncated = errors.New("message longer than the receiver's buffer")
	// ErrTypeMismatch says that a message has elements of another type than
	// the receiver's buffer, or is of no whole number of such elements.
	ErrTypeMismatch = errors.New("message of another type than the receiver's buffer")
	// ErrConfig says that a setting is missing or malformed.
	ErrConfig = errors.New("invalid configuration")
)

// A PeerError says which rank has failed or left. It is an ErrPeerFailed.
type PeerError struct {
	Rank int
	Node NodeID
	Addr string // where the node was
	// Left says that the rank has closed the communicator or its node, in good
	// order; otherwise it has failed. If the goodbye does not reach all other ranks,
	// the rank has failed for all of them, and Err says which rank has lost it.
	Left bool
	// Err is how it was noticed, for people: an error of package transport.
	// What programs need to know is in the other fields.
	Err error
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
	Length int    // elements per rank; of all blocks together where these are of different lengths
	Counts uint32 // a digest of these lengths: it differs, most likely, if they do
	Ranks  []int  // of a Sub whose list differs from another rank's; otherwise nil
	Reduce string // "sum"; empty if nothing is reduced
	Root   int    // -1 if the operation has none
	Plan   string // how it is carried out
}

// String is the call as messages have it: "all_reduce #7 (1024 × float32, sum)".
func (c Call) String() string {
	if c.Number == 0 {
		return "no collective"
	}
	ranks := ""
	if c.Ranks != nil {
		ranks = fmt.Sprintf("ranks %v", c.Ranks)
	}
	o := Operation{Op: c.Op, Number: c.Number, Type: c.Type, Length: c.Length, Reduce: c.Reduce, Root: c.Root}
	return trace.Collective(&o, ranks)
}

// A MismatchError says that two ranks made different calls as their n-th
// collective. Every rank of the communicator gets it.
type MismatchError struct {
	Rank, Peer     int
	Call, PeerCall Call // of Rank, and of Peer
}

func (e *MismatchError) Error() string {
	how := ""
	switch a, b := e.Call, e.PeerCall; {
	case a.String() != b.String():
	case a.Counts != b.Counts && a.Op == bucketsName:
		how = ", but the lengths of their vectors, or how many there are, differ"
	case a.Counts != b.Counts:
		how = ", but their counts differ"
	default:
		how = fmt.Sprintf(", but one by %s and the other by %s: their settings differ", a.Plan, b.Plan)
	}
	return fmt.Sprintf("calls do not match: rank %d called %v, rank %d called %v%s", e.Rank, e.Call, e.Peer, e.PeerCall, how)
}

// A CompressError says whose vector could not be compressed, or whose encoding
// the others could not read.
type CompressError struct {
	Rank int
	// Err is an ErrInvalidLength, ErrInvalidType or ErrInvalidOp where the call of
	// the rank, or its Compressor, differs from that of rank 0, an ErrTooLarge, or the error of the
	// Compressor of this rank, also that it has ended its goroutine. The error of
	// another rank's stays there: here it is a text which says that the vector
	// could not be compressed, or that the Compressor has panicked.
	Err error
}

func (e *CompressError) Error() string { return fmt.Sprintf("rank %d: %v", e.Rank, e.Err) }

func (e *CompressError) Unwrap() error { return e.Err }

// A DeviceError says that the device of this rank's vectors has failed, or was
// asked for what it cannot do: Err is an error of package device.
type DeviceError struct {
	Device string // its name
	Err    error
}

func (e *DeviceError) Error() string { return e.Err.Error() }

func (e *DeviceError) Unwrap() error { return e.Err }

// A CountsError says that a rank sends another one more or less than that
// expects in an AllToAllV. It is an ErrInvalidLength.
type CountsError struct {
	From, To       int // ranks
	Sent, Expected int // elements
}

func (e *CountsError) Error() string {
	return fmt.Sprintf("%v: rank %d sends %d elements to rank %d, which expects %d", ErrInvalidLength, e.From, e.Sent, e.To, e.Expected)
}

// Is reports that e is an ErrInvalidLength.
func (e *CountsError) Is(target error) bool { return target == ErrInvalidLength }

// A RevokedError says why a communicator can no longer be used. It is an
// ErrRevoked, and what its cause is; but it is no error of a context, since the
// call that it comes from was not the one that was cancelled.
type RevokedError struct {
	// Rank is the rank that is to blame: whose operation was the first to
	// fail, or which has failed itself or left. It may be this one. It is -1
	// if that is unknown.
	Rank int
	Err  error // why
}

func (e *RevokedError) Error() string {
	// A PeerError names the rank itself.
	if _, named := e.Err.(*PeerError); named || e.Rank < 0 {
		return fmt.Sprintf("%v: %v", ErrRevoked, e.Err)
	}
	return fmt.Sprintf("%v by rank %d: %v", ErrRevoked, e.Rank, e.Err)
}

func (e *RevokedError) Unwrap() error { return e.Err }

// Is reports that e is an ErrRevoked.
func (e *RevokedError) Is(target error) bool { return target == ErrRevoked }

// A TimeoutError says for which ranks an operation waited in vain. It is a
// context.DeadlineExceeded.
//
// The ranks have been asked where they are. First come those that are the reason:
// that do not answer, or are in no collective and have called the fewest. After
// them come others that the operation waited for itself and that have not come to it,
// as they wait for someone.
type TimeoutError struct {
	Op      string
	Call    Call // that has timed out on this rank
	After   time.Duration
	Waiting []int      // ranks
	Late    []LateRank // what is known of each of them, in the same order
}

// A LateRank is a rank that others have waited for, and where it was when they
// asked it.
type LateRank struct {
	Rank int
	Node NodeID
	Addr string // where the node is
	// Heard is whether it has answered; otherwise nothing is known of its calls. Mute is
	// whether it was asked again since, and has not.
	Heard, Mute bool
	Call        Call // the last collective that it has called
	Active      bool // it was still in that
	// For is how long it has been in Call or, if it is not, how long ago that ended,
	// when the operation timed out; 0 if that is unknown. Silent is for how long it had
	// not answered by then.
	For, Silent time.Duration
}

// String says which rank it is and where: "rank 2 (in all_reduce #7 (…) for 31s)".
func (l LateRank) String() string {
	where := engine.Waiting{Known: l.Heard, Active: l.Active, Mute: l.Mute, For: l.For, Silent: l.Silent}
	return fmt.Sprintf("rank %d (%s)", l.Rank, where.Describe(l.Call.String()))
}

func (e *TimeoutError) Error() string {
	what := fmt.Sprintf("timed out after %v", e.After)
	if e.Call.Number > 0 {
		what = fmt.Sprintf("#%d %s", e.Call.Number, what)
	}
	who := make([]string, len(e.Late))
	for i, l := range e.Late {
		who[i] = l.String()
	}
	if len(who) == 0 {
		return what + ", in this rank's own part of it"
	}
	return fmt.Sprintf("%s, waiting for %s", what, strings.Join(who, ", "))
}

// Timeout reports true, as net.Error has it.
func (e *TimeoutError) Timeout() bool { return true }

// Unwrap returns context.DeadlineExceeded.
func (e *TimeoutError) Unwrap() error { return context.DeadlineExceeded }

// A CallError says which call of a function has failed, and why: Err is
// ErrUnknownFunction, a HandlerError, a PanicError, ErrTooLarge or ErrBusy, or
// that of the context of the call.
type CallError struct {
	Rank int // whose function it is
	Node NodeID
	Addr string // where the node is
	Fn   string
	Err  error
}

func (e *CallError) Error() string {
	return fmt.Sprintf("function %q of rank %d (node %s at %s): %v", e.Fn, e.Rank, e.Node, e.Addr, e.Err)
}

func (e *CallError) Unwrap() error { return e.Err }

// A HandlerError is the error that a called function has returned. Text is what
// it says, the first KiB of it: the value itself stays on the other rank.
type HandlerError struct{ Text string }

// Error returns Text, with escapes for characters that a terminal would not show.
func (e *HandlerError) Error() string { return wire.Escape(e.Text) }

// A PanicError says that a called function has panicked, or has ended its
// goroutine. Text is the value of the panic; the log of that rank has the stack.
type PanicError struct{ Text string }

// Error contains Text, with escapes for characters that a terminal would not show.
func (e *PanicError) Error() string { return "it has panicked: " + wire.Escape(e.Text) }
