package nexar

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nexar-go/nexar/internal/collective"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/trace"
	"github.com/nexar-go/nexar/transport"
)

// Errors of this package. Test for them with errors.Is: the errors that functions return wrap them
// and say more.
var (
	// ErrClosed says that this rank has closed the communicator or the node.
	ErrClosed = errors.New("closed")
	// ErrPeerFailed says that a rank has failed or left; see [PeerError].
	ErrPeerFailed = errors.New("peer failed")
	// ErrRevoked says that the communicator has ended because an earlier or concurrent operation
	// failed, on this rank or another; see [RevokedError].
	ErrRevoked = errors.New("communicator revoked")
	// ErrNoState says that no rank has the state for a [Sync].
	ErrNoState = errors.New("no rank has the state: all ranks that had it are gone")
	// ErrNoQuorum says that this node is not in the world any more: another node has failed, and the
	// remaining ones could not agree on a view, are fewer than [SeedConfig].ElasticMin, or continue
	// without this one ([ErrRemoved]). In a partitioned network at most one part continues; nodes of
	// the others get this error when they have waited for [Config].RecoveryTimeout. The program can
	// join again as a new node: when the partition has ended, a seed with SeedConfig.Elastic admits
	// it at the next [Node.Reconfigure] of the others.
	//
	//	for {
	//		node, err := nexar.Join(ctx, cfg) // waits until it reaches a seed
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
	// ErrRemoved says that the others continue without this live node: they have lost their
	// connections to it, it was late for a [Node.Reconfigure] or the next epoch, or they have excluded
	// it ([ErrExcluded]). The error is also an ErrNoQuorum.
	ErrRemoved = errors.New("removed from the world")
	// ErrExcluded says that other ranks have removed this node by [Comm.Exclude]. Its text names one
	// of them. The error is also an ErrRemoved and an ErrNoQuorum.
	ErrExcluded = errors.New("excluded from the world")
	// ErrToken says that this process and the seed do not have the same cluster token, or that the token is
	// missing or too weak for an address that is not a loopback address.
	ErrToken = errors.New("cluster token")
	// ErrIdentity says that a seed, or a node, has a certificate of another CA than the one of this
	// cluster or of [Config].CAFile. The error names both CAs.
	ErrIdentity = transport.ErrIdentity
	// ErrVersion says that this process and the seed use different versions of the protocol: build
	// all programs of a cluster with compatible releases of nexar.
	ErrVersion = errors.New("another version of the protocol")
	// ErrRankTaken says that another node has the rank of [Config].Rank, or that the world has no
	// such rank.
	ErrRankTaken = errors.New("rank not available")
	// ErrNotFormed says that the world did not form in time, or that a node failed before it had
	// formed; see [NotFormedError].
	ErrNotFormed = errors.New("the world did not form")
	// ErrInvalidRank says that the communicator has no such rank or root.
	ErrInvalidRank = collective.ErrRank
	// ErrInvalidTag says that a tag is negative. [AnyTag] is valid for receives and probes only.
	ErrInvalidTag = errors.New("invalid tag")
	// ErrInvalidLength says that a vector, or a list of counts, does not have the length that the operation
	// requires.
	ErrInvalidLength = collective.ErrLength
	// ErrOverlap says that vectors share memory and one of them is written: dst and src, two regions
	// of a [RecvVec], two vectors of an [AllReduceBuckets], or vectors of two operations in progress;
	// see [Handle].
	ErrOverlap = collective.ErrOverlap
	// ErrInvalidOp says that an [Op] is unknown or not defined for the type of the elements.
	ErrInvalidOp = collective.ErrOp
	// ErrInvalidType says that elements of this type cannot be sent, because it contains pointers, or
	// cannot be reduced, such as a named 16-bit type; see [Number] and [View].
	ErrInvalidType = collective.ErrType
	// ErrInvalidWeight says that the weights of an [AllReduceMean] define no mean.
	ErrInvalidWeight = errors.New("invalid weight")
	// ErrTooLarge says that a call would take more memory than a limit allows.
	ErrTooLarge = collective.ErrTooLarge
	// ErrUnknownFunction says that the called rank has not registered a function of that name, or had
	// not when the call arrived.
	ErrUnknownFunction = errors.New("unknown function")
	// ErrBusy says that the called rank refused a call, because too many calls of this rank are in
	// progress there; see [Config].MaxConcurrentCalls.
	ErrBusy = errors.New("busy")
	// ErrTruncated says that a message is longer than the receiver's buffer. The message is lost.
	ErrTruncated = errors.New("message longer than the receiver's buffer")
	// ErrTypeMismatch says that the elements of a message have another type than the receiver's
	// buffer, or that the message is not a whole number of its elements. The message is lost, unless a
	// [Probe] returned the error.
	ErrTypeMismatch = errors.New("message of another type than the receiver's buffer")
	// ErrReceived says that a [Message] has been received already.
	ErrReceived = errors.New("the message has been received already")
	// ErrConfig says that a setting is missing or malformed.
	ErrConfig = errors.New("invalid configuration")
)

// A PeerError reports that an operation failed because a rank has failed or left. It is an [ErrPeerFailed].
//
// A rank that ends because of an error first sends the cause to the other ranks, and their errors name
// that cause. A rank that ends without sending a cause is itself the cause, if all other ranks were alive
// after its end. Otherwise the cause is unknown, and Suspects lists the ranks that may be it:
//
//   - Several ranks have failed at once and have sent no cause.
//   - Rank has reported another rank as the cause. This node still has a link to that rank, but gets no
//     answer from it within 500 ms.
type PeerError struct {
	// Rank is the cause or, if that is unknown, a rank that has failed.
	Rank int
	Node NodeID
	Addr string // of the node
	// Left says that the rank has closed the communicator or its node; otherwise it has failed. If a
	// rank lost its connection before it learned of the close, the rank that closed has failed for
	// all ranks.
	Left bool
	// Err is the error of package transport by which the failure was noticed. It is for people; the
	// other fields are for programs.
	Err error
	// Suspects are Rank and the other ranks that may be the cause, by their rank in the world, if the
	// cause is unknown; otherwise nil.
	Suspects []Suspect
}

// A Suspect is a rank that may be the cause of a failure; see [PeerError].
type Suspect struct {
	Rank int // -1 if the communicator does not contain the node
	Node NodeID
	Addr string // of the node
	// Err is the loss of the node, the error that the node has told, or that it does not answer. It is
	// for people.
	Err error
}

// String describes the suspect: "rank 1 (node … at 10.0.0.2:7946): no answer within 500ms".
func (s Suspect) String() string {
	node := fmt.Sprintf("node %s at %s", s.Node, s.Addr)
	if s.Rank >= 0 {
		node = fmt.Sprintf("rank %d (%s)", s.Rank, node)
	}
	return fmt.Sprintf("%s: %v", node, s.Err)
}

func (e *PeerError) Error() string {
	if e.Suspects != nil {
		suspects := make([]string, len(e.Suspects))
		for i, s := range e.Suspects {
			suspects[i] = s.String()
		}
		return fmt.Sprintf("rank %d failed, and the cause is unknown; suspects: %s", e.Rank, strings.Join(suspects, "; "))
	}
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

// Is reports that e is an [ErrPeerFailed].
func (e *PeerError) Is(target error) bool { return target == ErrPeerFailed }

// A NotFormedError says which nodes had joined a world that did not form. It is an [ErrNotFormed].
// [Join] and [Seed.Wait] return it.
type NotFormedError struct {
	// Joined is the number of nodes that had joined, and World the number of nodes of the world. A
	// node whose Config.FormTimeout has ended has them from the last message of the seed. Both are 0
	// if no seed was reached.
	Joined, World int
	Nodes         []JoinedNode // the first 64 nodes that had joined
	Err           error        // the cause
}

// A JoinedNode is a node that has joined a world that is forming.
type JoinedNode struct {
	Rank int // the rank that it has or asks for, or -1
	Node NodeID
	Name string // "hostname:pid" of its process
	Addr string // "host:port" that other nodes dial first
}

func (e *NotFormedError) Error() string { return e.Err.Error() }

func (e *NotFormedError) Unwrap() error { return e.Err }

// Is reports that e is an [ErrNotFormed].
func (e *NotFormedError) Is(target error) bool { return target == ErrNotFormed }

// A Call describes the call of a collective on a rank: its sequence number in the
// communicator, and its parameters.
type Call struct {
	Op     string // "all_reduce"
	Seq    uint64 // sequence number in the communicator, from 1; 0: no collective
	Type   string // of the elements; empty if there are none
	Length int    // elements per rank, or of all blocks together for calls with counts
	Counts uint32 // digest of the lengths of blocks, or of the layout of structs
	Ranks  []int  // argument of a [Comm.Sub] that differs from that of another rank; otherwise nil
	Reduce string // "sum"; empty if nothing is reduced
	Root   int    // -1 if the operation has none
	Plan   string // the algorithm
}

// String returns the call as errors show it: "all_reduce #7 (1024 × float32, sum)".
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

// A MismatchError says that two ranks made different calls with the same sequence number. Every
// rank of the communicator gets it.
type MismatchError struct {
	Rank, Peer     int
	Call, PeerCall Call // of Rank, and of Peer
}

func (e *MismatchError) Error() string {
	how := ""
	switch a, b := e.Call, e.PeerCall; {
	case a.String() != b.String():
	case a.Counts != b.Counts && (a.Op == collective.BucketsName || a.Op == collective.BroadcastBucketsName):
		how = ", but the number or the lengths of their vectors differ"
	case a.Counts != b.Counts && (a.Op == collective.SyncName || a.Op == collective.ValuesName):
		how = ", but the number or the lengths of their values differ"
	case a.Counts != b.Counts && a.Reduce == collective.FuncName:
		how = ", but the layouts of their structs differ"
	case a.Counts != b.Counts:
		how = ", but their counts differ"
	default:
		how = fmt.Sprintf(", but with the algorithms %s and %s: their settings differ", a.Plan, b.Plan)
	}
	return fmt.Sprintf("calls do not match: rank %d called %v, rank %d called %v%s", e.Rank, e.Call, e.Peer, e.PeerCall, how)
}

// A CompressError names a rank: its vector could not be compressed, or the other ranks could not
// read its encoding.
type CompressError struct {
	Rank int
	// Err is an ErrInvalidLength, ErrInvalidType or ErrInvalidOp if the call or the Compressor of the
	// rank differs from that of rank 0, an ErrTooLarge, or the error of the Compressor. If that is
	// the Compressor of another rank, Err only says that it has failed or panicked.
	Err error
}

func (e *CompressError) Error() string { return fmt.Sprintf("rank %d: %v", e.Rank, e.Err) }

func (e *CompressError) Unwrap() error { return e.Err }

// A DeviceError says that the device of this rank's vectors has failed or does not support the
// operation.
type DeviceError struct {
	Device string // name of the device
	Err    error  // of package device
}

func (e *DeviceError) Error() string { return e.Err.Error() }

func (e *DeviceError) Unwrap() error { return e.Err }

// A CountsError says that in an [AllToAllV] one rank sends another number of elements than the other
// rank expects. It is an [ErrInvalidLength].
type CountsError struct {
	From, To       int // ranks
	Sent, Expected int // elements
}

func (e *CountsError) Error() string {
	return fmt.Sprintf("%v: rank %d sends %d elements to rank %d, which expects %d", ErrInvalidLength, e.From, e.Sent, e.To, e.Expected)
}

// Is reports that e is an [ErrInvalidLength].
func (e *CountsError) Is(target error) bool { return target == ErrInvalidLength }

// A RevokedError says why a communicator can no longer be used. It is an [ErrRevoked] and wraps its
// cause. It does not wrap the error of a context: only the cancelled call returns that.
type RevokedError struct {
	// Rank is the rank whose operation failed first, or that has itself failed or left. It may be
	// this rank. It is -1 if unknown: then Err may be a [PeerError] with Suspects.
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

// Is reports that e is an [ErrRevoked].
func (e *RevokedError) Is(target error) bool { return target == ErrRevoked }

// A TimeoutError names the ranks that a collective or a message waited for until its timeout. It is
// a context.DeadlineExceeded. That of a collective or a send ends the communicator, and the other ranks
// get a [RevokedError]. After that of a receive or a probe the communicator remains usable.
//
// The first ranks in the list are the probable cause: they have not answered, or they are in no
// collective and have called the fewest. The others have not reached the operation because they wait
// for another rank.
type TimeoutError struct {
	Op      string
	Call    Call          // of this rank; zero for a message
	After   time.Duration // the timeout
	Waiting []int         // the ranks that it waited for
	Late    []LateRank    // their states, in the same order
	// Sentence names the ranks that the call waited for, with their calls if these are known. Ranks in it are those of the world.
	Sentence string
}

// A LateRank is the last known state of a rank that an operation waited for.
type LateRank struct {
	Rank int
	Node NodeID
	Addr string // of the node
	// Answered says that the rank has answered a query; otherwise Call is unknown. Unresponsive says
	// that it has not answered the last queries, for 2 s or more.
	Answered, Unresponsive bool
	Call                   Call // the last collective that the rank has called
	Active                 bool // Call had not ended
	// Doing describes the rank: "has been in recv from rank 0 for 31 s". It is empty if nothing is known of the rank, and after the
	// first ten ranks.
	Doing string
	// Elapsed is the time from the start of Call, or from its end if it has ended, to the timeout; 0 if
	// unknown. Silent is the time from the last answer of the rank to the timeout or,
	// if it has never answered, from the first query.
	Elapsed, Silent time.Duration
}

// String describes the rank: "rank 2 has been in all_reduce #7 for 31 s".
func (l LateRank) String() string {
	doing := l.Doing
	switch {
	case doing != "":
	case !l.Answered:
		doing = "has not answered"
	case l.Call.Seq == 0:
		doing = "has called no collective"
	case l.Active:
		doing = "has been in " + l.Call.String()
	default:
		doing = "was last in " + l.Call.String()
	}
	return fmt.Sprintf("rank %d %s", l.Rank, doing)
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("timed out after %v: %s", e.After, e.Sentence)
}

// Timeout returns true, as for a net.Error.
func (e *TimeoutError) Timeout() bool { return true }

// Unwrap returns context.DeadlineExceeded.
func (e *TimeoutError) Unwrap() error { return context.DeadlineExceeded }

// A DeadlineError is the error of a call when the deadline of its context has passed, with the ranks that it waited for. It wraps the cause of the context, usually
// context.DeadlineExceeded.
type DeadlineError struct {
	Waiting []int // ranks of the communicator that the call waited for; empty: any rank
	// Sentence names the ranks that the call waited for, with their calls if these are known: "Rank 0 waits in barrier #3 for rank 2,
	// which has been in no call for 4 s". Ranks in it are those of the world.
	Sentence string
	Err      error // of the context
}

func (e *DeadlineError) Error() string { return fmt.Sprintf("%v: %s", e.Err, e.Sentence) }

func (e *DeadlineError) Unwrap() error { return e.Err }

// A CallError says that a remote call has failed. Err is [ErrUnknownFunction], a [HandlerError], a
// [PanicError], [ErrTooLarge], [ErrBusy], or the error of the context of the call.
type CallError struct {
	Rank int // the called rank
	Node NodeID
	Addr string // of the node
	Fn   string // name of the function
	Err  error
}

func (e *CallError) Error() string {
	return fmt.Sprintf("function %q of rank %d (node %s at %s): %v", e.Fn, e.Rank, e.Node, e.Addr, e.Err)
}

func (e *CallError) Unwrap() error { return e.Err }

// A HandlerError is the error that a called function has returned. Text is the text of that error, cut
// to 1 KiB; errors.Is does not match the error itself, which remains on the other rank.
type HandlerError struct{ Text string }

// Error returns Text, with escapes for characters that a terminal would not show.
func (e *HandlerError) Error() string { return wire.Escape(e.Text) }

// A PanicError says that a called function has panicked or has ended its goroutine. Text is the value
// of the panic. The log of the called rank has the stack.
type PanicError struct{ Text string }

// Error contains Text, with escapes for characters that a terminal would not show.
func (e *PanicError) Error() string { return "it has panicked: " + wire.Escape(e.Text) }
