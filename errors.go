package nexar

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nexar-go/nexar/internal/collective"
	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/trace"
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
	// ErrNoState says that no rank has the state for a Sync.
	ErrNoState = errors.New("no rank has the state: all that had it have gone")
	// ErrNoQuorum says that this node is in no world any more: another node has failed and the
	// remaining ones could not agree on a view, are fewer than [SeedConfig].ElasticMin, or
	// continue without this one ([ErrRemoved]). In a partitioned network at most one part
	// continues; nodes of the others get this error within [Config].RecoveryTimeout. The program
	// can join again, as a new node: when the partition has ended, a seed with
	// SeedConfig.Elastic admits it at the next [Node.Reconfigure] of the others.
	//
	//	for {
	//		node, err := nexar.Join(ctx, cfg) // waits for a seed that it can reach
	//		if err != nil {
	//			return err
	//		}
	//		err = train(ctx, node) // loops over node.Epochs, and begins with Sync
	//		node.Close()
	//		if errors.Is(err, nexar.ErrExcluded) || !errors.Is(err, nexar.ErrNoQuorum) {
	//			return err
	//		}
	//	}
	ErrNoQuorum = errors.New("no agreement on the members of the world")
	// ErrRemoved says that the others continue without this node, which is alive: they have lost
	// their connections to it, it did not come to a [Node.Reconfigure] or the next epoch in
	// time, or they have excluded it ([ErrExcluded]). The error is an ErrNoQuorum, too.
	ErrRemoved = errors.New("removed from the world")
	// ErrExcluded says that other ranks have removed this node by [Comm.Exclude]. The error is an
	// ErrRemoved and an ErrNoQuorum, too; its text names a rank that has excluded it.
	ErrExcluded = errors.New("excluded from the world")
	// ErrToken says that this process and the seed do not have the same cluster token.
	ErrToken = errors.New("cluster token")
	// ErrVersion says that this process and the seed speak different versions of the
	// protocol: all programs of a cluster are built with compatible versions of nexar.
	ErrVersion = errors.New("another version of the protocol")
	// ErrRankTaken says that another node has the rank that Config.Rank asks for, or that
	// the world has no such rank.
	ErrRankTaken = errors.New("rank not available")
	// ErrNotFormed says that the world did not form in time, or that a node failed before
	// it had formed; see [NotFormedError].
	ErrNotFormed = errors.New("the world did not form")
	// ErrInvalidRank says that a rank or root is not one of the communicator.
	ErrInvalidRank = collective.ErrRank
	// ErrInvalidTag says that a tag is negative.
	ErrInvalidTag = errors.New("invalid tag")
	// ErrInvalidLength says that a vector has not the length that the operation
	// requires.
	ErrInvalidLength = collective.ErrLength
	// ErrOverlap says that vectors share memory in a way that the operation does not
	// allow: dst and src, two regions of a RecvVec, two vectors of an
	// AllReduceBuckets, or vectors of two operations in progress, unless both only
	// read there; see Handle.
	ErrOverlap = collective.ErrOverlap
	// ErrInvalidOp says that an Op is unknown, or not defined for the type of
	// the elements.
	ErrInvalidOp = collective.ErrOp
	// ErrInvalidType says that the type of a vector's elements contains pointers, so
	// that its bytes are no value in another process.
	ErrInvalidType = collective.ErrType
	// ErrInvalidWeight says that the weights of an [AllReduceMean] have no mean.
	ErrInvalidWeight = errors.New("invalid weight")
	// ErrTooLarge says that a call would take more memory than a limit allows.
	ErrTooLarge = collective.ErrTooLarge
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
	// ErrReceived says that a Message has been received before.
	ErrReceived = errors.New("the message has been received already")
	// ErrConfig says that a setting is missing or malformed.
	ErrConfig = errors.New("invalid configuration")
)

// A PeerError reports a rank that has failed or left. It is an ErrPeerFailed.
type PeerError struct {
	Rank int
	Node NodeID
	Addr string // where the node was
	// Left says that the rank has closed the communicator or its node, in good
	// order; otherwise it has failed. If the goodbye does not reach all other ranks,
	// the rank has failed for all of them, and Err says which rank has lost it.
	Left bool
	// Err is the error that revealed the failure, for people: an error of package
	// transport. The other fields are for programs.
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

// A NotFormedError says which nodes had joined a world that did not form. It is an
// [ErrNotFormed]. [Join] returns it, and [Seed.Wait].
type NotFormedError struct {
	// Joined is the number of nodes that had joined, and World the number that the world
	// needs. If Config.FormTimeout of the node ends first, they are those of the latest
	// message of the seed. Both are 0 if no seed was reached.
	Joined, World int
	Nodes         []JoinedNode // the first 64 nodes that had joined
	Err           error        // the cause, for people
}

// A JoinedNode is a node that has joined a world that is forming.
type JoinedNode struct {
	Rank int // the rank that it has or wants; -1: any
	Node NodeID
	Name string // of its process: "hostname:pid"
	Addr string // "host:port" at which other nodes dial it first
}

func (e *NotFormedError) Error() string { return e.Err.Error() }

func (e *NotFormedError) Unwrap() error { return e.Err }

// Is reports that e is an ErrNotFormed.
func (e *NotFormedError) Is(target error) bool { return target == ErrNotFormed }

// A Call describes the call of a collective on a rank: its sequence number in the
// communicator, and its parameters.
type Call struct {
	Op     string // "all_reduce"
	Seq    uint64 // sequence number in the communicator, from 1; 0: no collective
	Type   string // of the elements; empty if there are none
	Length int    // elements per rank, or of all blocks together if their lengths differ
	Counts uint32 // digest of the lengths of blocks, or of the layout of structs
	Ranks  []int  // the list of a Sub that differs from that of another rank; otherwise nil
	Reduce string // "sum"; empty if nothing is reduced
	Root   int    // -1 if the operation has none
	Plan   string // the algorithm
}

// String is the call as messages have it: "all_reduce #7 (1024 × float32, sum)".
func (c Call) String() string {
	if c.Seq == 0 {
		return "no collective"
	}
	if c.Ranks != nil {
		return fmt.Sprintf("%s #%d (ranks %v)", c.Op, c.Seq, c.Ranks)
	}
	o := trace.Operation{Op: c.Op, Seq: c.Seq, Type: c.Type, Length: c.Length, Reduce: c.Reduce, Root: c.Root}
	return o.Call()
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
	case a.Counts != b.Counts && (a.Op == collective.BucketsName || a.Op == collective.BroadcastBucketsName):
		how = ", but the lengths of their vectors, or how many there are, differ"
	case a.Counts != b.Counts && a.Reduce == collective.FuncName:
		how = ", but the layouts of their structs differ"
	case a.Counts != b.Counts:
		how = ", but their counts differ"
	default:
		how = fmt.Sprintf(", but one by %s and the other by %s: their settings differ", a.Plan, b.Plan)
	}
	return fmt.Sprintf("calls do not match: rank %d called %v, rank %d called %v%s", e.Rank, e.Call, e.Peer, e.PeerCall, how)
}

// A CompressError names a rank with a vector that could not be compressed, or with an
// encoding that the others could not read.
type CompressError struct {
	Rank int
	// Err is an ErrInvalidLength, ErrInvalidType or ErrInvalidOp if the call of the
	// rank, or its Compressor, differs from that of rank 0; an ErrTooLarge; or the error
	// of this rank's Compressor, which includes the end of its goroutine. The error of
	// another rank's Compressor stays there: here Err only says that the vector could
	// not be compressed, or that the Compressor has panicked.
	Err error
}

func (e *CompressError) Error() string { return fmt.Sprintf("rank %d: %v", e.Rank, e.Err) }

func (e *CompressError) Unwrap() error { return e.Err }

// A DeviceError reports that the device of this rank's vectors has failed or does not
// support the operation. Err is an error of package device.
type DeviceError struct {
	Device string // its name
	Err    error
}

func (e *DeviceError) Error() string { return e.Err.Error() }

func (e *DeviceError) Unwrap() error { return e.Err }

// A CountsError reports that in an AllToAllV the number of elements that one rank
// sends differs from the number that the other one expects. It is an
// ErrInvalidLength.
type CountsError struct {
	From, To       int // ranks
	Sent, Expected int // elements
}

func (e *CountsError) Error() string {
	return fmt.Sprintf("%v: rank %d sends %d elements to rank %d, which expects %d", ErrInvalidLength, e.From, e.Sent, e.To, e.Expected)
}

// Is reports that e is an ErrInvalidLength.
func (e *CountsError) Is(target error) bool { return target == ErrInvalidLength }

// A RevokedError gives the reason why a communicator can no longer be used. It is an
// ErrRevoked, and it wraps its cause, except for an error of a context: the call that
// returns it was not the one that was cancelled.
type RevokedError struct {
	// Rank is the rank with the first operation that failed, or the rank that has
	// failed itself or left. It may be this one. It is -1 if unknown.
	Rank int
	Err  error // the cause
}

func (e *RevokedError) Error() string {
	// A PeerError names the rank itself.
	if _, named := errors.AsType[*PeerError](e.Err); named || e.Rank < 0 {
		return fmt.Sprintf("%v: %v", ErrRevoked, e.Err)
	}
	return fmt.Sprintf("%v by rank %d: %v", ErrRevoked, e.Rank, e.Err)
}

func (e *RevokedError) Unwrap() error { return e.Err }

// Is reports that e is an ErrRevoked.
func (e *RevokedError) Is(target error) bool { return target == ErrRevoked }

// A TimeoutError names the ranks that an operation has waited for in vain. It is a
// context.DeadlineExceeded.
//
// The ranks have been asked for their state. The first ones are the reason: they do
// not answer, or are in no collective and have called the fewest. Others follow that
// have not come to the operation because they wait for another rank.
type TimeoutError struct {
	Op      string
	Call    Call // that has timed out on this rank
	After   time.Duration
	Waiting []int      // ranks
	Late    []LateRank // their states, in the same order
}

// A LateRank is a rank that others have waited for, and its last known state.
type LateRank struct {
	Rank int
	Node NodeID
	Addr string // where the node is
	// Answered reports that the rank has answered a query; otherwise its calls are
	// unknown. Unresponsive reports that it has not answered a later one.
	Answered, Unresponsive bool
	Call                   Call // the last collective that it has called
	Active                 bool // it was still in that
	// For is the time since the begin of Call, or since its end if it has ended, when
	// the operation timed out; 0 if unknown. Silent is the time since its last
	// answer.
	For, Silent time.Duration
}

// String describes the rank: "rank 2 (in all_reduce #7 (…) for 31s)".
func (l LateRank) String() string {
	where := engine.Waiting{Known: l.Answered, Active: l.Active, Mute: l.Unresponsive, For: l.For, Silent: l.Silent}
	return fmt.Sprintf("rank %d (%s)", l.Rank, where.Describe(l.Call.String()))
}

func (e *TimeoutError) Error() string {
	what := fmt.Sprintf("timed out after %v", e.After)
	if e.Call.Seq > 0 {
		what = fmt.Sprintf("#%d %s", e.Call.Seq, what)
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

// A CallError reports that a call of a function has failed. Err is
// ErrUnknownFunction, a HandlerError, a PanicError, ErrTooLarge or ErrBusy, or the
// error of the context of the call.
type CallError struct {
	Rank int // of the function
	Node NodeID
	Addr string // where the node is
	Fn   string
	Err  error
}

func (e *CallError) Error() string {
	return fmt.Sprintf("function %q of rank %d (node %s at %s): %v", e.Fn, e.Rank, e.Node, e.Addr, e.Err)
}

func (e *CallError) Unwrap() error { return e.Err }

// A HandlerError is the error that a called function has returned. Text is the first
// KiB of its text: the value itself stays on the other rank.
type HandlerError struct{ Text string }

// Error returns Text, with escapes for characters that a terminal would not show.
func (e *HandlerError) Error() string { return wire.Escape(e.Text) }

// A PanicError says that a called function has panicked, or has ended its
// goroutine. Text is the value of the panic; the log of that rank has the stack.
type PanicError struct{ Text string }

// Error contains Text, with escapes for characters that a terminal would not show.
func (e *PanicError) Error() string { return "it has panicked: " + wire.Escape(e.Text) }
