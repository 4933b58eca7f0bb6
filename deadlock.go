package nexar

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nexar-go/nexar/internal/collective"
	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/recorder"
	"github.com/nexar-go/nexar/internal/wire"
)

// ErrDeadlock says that ranks wait for each other; see [DeadlockError].
var ErrDeadlock = errors.New("deadlock")

// A DeadlockError says that ranks wait for each other: none of their calls can end, nothing is in
// flight between them, and no goroutine of their programs has begun another call for
// [Config].DeadlockTimeout. It is an [ErrDeadlock]. A blocking [Send] of a rank to itself that no receive takes
// gets it as well, after a warning in the log within a second or two, and the communicator goes on.
//
// Otherwise, every call in progress on a communicator of the deadlock gets the error, on all its ranks; the
// communicators have ended. Ranks are those of the world, since a deadlock may run through several
// communicators.
type DeadlockError struct {
	// Ranks is the number of ranks that wait for each other.
	Ranks int
	// Waits has a call of each rank of the deadlock, at most ten of them. The first rank is the
	// lowest, and each of the others follows one that waits for it.
	Waits []DeadlockWait
}

// A DeadlockWait is a call that waits for a rank that waits as well.
type DeadlockWait struct {
	Rank     int           // that waits
	WaitsFor int           // a rank of the deadlock that the call needs
	Op       string        // "send", "recv", "probe", or the name of a collective
	Text     string        // the call with its arguments: "send to rank 1 (8 MiB, tag 7)"
	Comm     string        // the communicator, as [Node.Trace] names it
	Time     time.Duration // without progress
}

func (e *DeadlockError) Error() string {
	parts := make([]string, len(e.Waits))
	sends := len(e.Waits) > 0
	for i, w := range e.Waits {
		parts[i] = fmt.Sprintf("rank %d waits in %s", w.Rank, w.Text)
		switch named := fmt.Sprintf("rank %d ", w.WaitsFor); {
		case strings.Contains(w.Text+" ", named):
		case w.WaitsFor == w.Rank:
			parts[i] += " for itself"
		default:
			parts[i] += fmt.Sprintf(" for rank %d", w.WaitsFor)
		}
		sends = sends && w.Op == "send"
	}
	if more := e.Ranks - len(e.Waits); more > 0 {
		parts = append(parts, fmt.Sprintf("and %d others", more)) //nolint:makezero // parts has a length before the loop that fills it
	}
	text := fmt.Sprintf("%v: %s", ErrDeadlock, strings.Join(parts, "; "))
	switch {
	case sends && e.Ranks == 1:
		text += ", and has begun no receive for it: begin the receive before, or make the send a StartSend"
	case e.Ranks == 1 && e.Waits[0].Op == collective.OpName(collective.LeaveOp):
		text += ": on another goroutine, range over Epochs and call Reconfigure after each step"
	case sends:
		text += ": make one of them a StartSend, or use Exchange"
	}
	return text
}

// Is reports that e is an [ErrDeadlock].
func (e *DeadlockError) Is(target error) bool { return target == ErrDeadlock }

// noReceive is the error of a blocking send of this rank to itself, for which no receive has begun.
func (c *Comm) noReceive(size int, typ uint8, tag Tag) error {
	return c.waitsForItself(&wire.Wait{Kind: wire.WaitSend, Tag: int64(tag), Call: wire.Call{Type: typ, Count: uint64(size)}})
}

// waitsForItself is the error of a call that waits for another goroutine of this rank.
func (c *Comm) waitsForItself(w *wire.Wait) *DeadlockError {
	rank, _ := c.impl.View.View.Rank(c.impl.Nodes[c.impl.Rank].ID)
	w.Rank, w.Peers, w.Call.Comm = uint32(rank), []wire.WaitPeer{{Rank: uint32(rank)}}, c.comm.ID()
	return deadlockError(&engine.DeadlockError{Ranks: 1, Waits: []wire.Wait{*w}})
}

// deadlockError makes the error of a deadlock that the engine has found.
func deadlockError(e *engine.DeadlockError) *DeadlockError {
	d := &DeadlockError{Ranks: e.Ranks}
	for i := range e.Waits {
		w := &e.Waits[i]
		wait := DeadlockWait{
			Rank: int(w.Rank), WaitsFor: int(w.Rank), Op: collective.WaitName(w), Text: collective.DescribeWait(w),
			Comm: recorder.CommName(w.Call.Comm), Time: time.Duration(min(w.For, 1<<62)),
		}
		if len(w.Peers) > 0 {
			wait.WaitsFor = int(w.Peers[0].Rank)
		}
		d.Waits = append(d.Waits, wait)
	}
	return d
}
