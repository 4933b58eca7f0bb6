package nexar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/internal/callback"
	"github.com/nexar-go/nexar/internal/collective"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/state"
	"github.com/nexar-go/nexar/internal/wake"
	"github.com/nexar-go/nexar/trace"
)

// Sync copies the current state from one rank to all ranks. The source is the first rank that has the
// current state: a node has it if the world formed with it, or after its first Sync. Call Sync after each
// change of the world, when [Node.Epochs] has yielded a communicator. Then nodes that have
// joined, and nodes that a failure has interrupted at different steps, continue from the
// same state.
//
// All ranks call Sync as they call a collective. The state has the same type on all ranks,
// which is one of these:
//
//   - a slice of numbers, or of structs without pointers, of the same length on all ranks;
//   - a pointer to such a slice, which gets the length of the source;
//   - a pointer to a number, or to an array or struct without pointers;
//   - an [encoding.BinaryMarshaler] that is also an [encoding.BinaryUnmarshaler];
//   - a slice of these, with the same number of elements on all ranks, such as a [][]float32 or a
//     []any of values of several types. Short elements are sent together.
//
// After an error each rank has its old state or all of the new one, except after an error of its
// own BinaryUnmarshaler; for that, Sync needs as much memory again as the state. If the
// source cannot marshal its state, all ranks get an error at once and the communicator remains
// usable, also if MarshalBinary panics, which Sync then does on the source. If no rank has
// the state any more, the error is [ErrNoState], and the program has to start from the beginning.
//
// A rank that receives a state for more than 10 seconds logs, at growing intervals, how many bytes have arrived.
func Sync(ctx context.Context, c *Comm, state any) error {
	p, err := c.parts(collective.SyncName, state)
	if err != nil {
		return err
	}
	root, err := c.stateRoot(ctx)
	if err != nil {
		return err
	}
	if err := c.broadcastParts(ctx, collective.SyncName, collective.SyncOp, p, root); err != nil {
		return err
	}
	c.node.hasState.Store(true)
	return nil
}

// BroadcastValues copies values of root to all ranks. All ranks pass the same number of values, of
// the same types, which are those that [Sync] takes: slices, pointers, marshalers and
// lists. It behaves as Sync does with respect to errors and memory. For many vectors
// of one type [BroadcastBuckets] takes less memory.
func BroadcastValues(ctx context.Context, c *Comm, root int, values ...any) error {
	p, err := c.parts(collective.ValuesName, values)
	if err == nil {
		err = opError(collective.ValuesName, c.runner.CheckRoot(root))
	}
	if err != nil {
		return err
	}
	return c.broadcastParts(ctx, collective.ValuesName, collective.ValuesOp, p, root)
}

// parts returns the parts of a state.
func (c *Comm) parts(name string, of any) ([]state.Part, error) {
	p, err := state.Parts(of)
	if err != nil {
		err = opError(name, fmt.Errorf("%w: %w", ErrInvalidType, err))
	}
	return p, err
}

// stateRoot returns the first rank that has the state.
func (c *Comm) stateRoot(ctx context.Context) (int, error) {
	first := []int64{int64(c.Size())}
	if c.node.hasState.Load() {
		first[0] = int64(c.impl.Rank)
	}
	t := new(task).OnVector(&c.runner, plan.AllReduce, elementsOf(first), kernel.Min, 0)
	t.Op = collective.SyncOp
	if err := c.run(ctx, t); err != nil {
		return 0, err
	}
	if int(first[0]) == c.Size() {
		return 0, opError(collective.SyncName, ErrNoState)
	}
	return int(first[0]), nil
}

// broadcastParts copies the parts of root to all ranks. Other ranks receive into memory of their
// own, and replace their parts when all bytes have arrived.
func (c *Comm) broadcastParts(ctx context.Context, name string, op uint8, parts []state.Part, root int) error {
	var encoded [][]byte
	var bad error
	if c.impl.Rank == root {
		encoded, bad = c.encode(name, parts)
	}
	lengths, err := c.agreeLengths(ctx, name, op, parts, encoded, bad, root)
	if p, ok := errors.AsType[*callback.Panic](bad); ok {
		panic(p)
	}
	if err != nil {
		return err
	}
	if c.impl.Rank != root {
		encoded = make([][]byte, len(parts))
		for i, n := range lengths {
			encoded[i] = make([]byte, n)
		}
	}
	var ended atomic.Int64 // bytes of tasks that have ended
	if c.impl.Rank != root {
		defer c.reportReceived(name, op, root, lengths, &ended).Stop()
	}
	err = broadcastBuckets(ctx, c, encoded, root, func(t *task) {
		n := int64(len(t.Data))
		t.Op, t.After = op, func() { ended.Add(n) }
	})
	for i := 0; err == nil && c.impl.Rank != root && i < len(parts); i++ {
		err = opError(name, parts[i].Set(encoded[i]))
	}
	return err
}

// reportReceived logs at growing intervals how much this rank has received of a state of root.
func (c *Comm) reportReceived(name string, op uint8, root int, lengths []int, ended *atomic.Int64) *wake.Reminder {
	all := int64(0)
	for _, n := range lengths {
		all += int64(n)
	}
	return wake.Remind(trace.LongAfter, func(waited time.Duration) {
		c.node.config.Log.Warn(name+" receives a state", "rank", c.impl.Rank, "from", root, "received", min(ended.Load()+c.comm.Received(op), all), "bytes", all, "waited", waited)
	})
}

// encode returns the encodings of the parts. The error may be a panic of a marshaler.
func (c *Comm) encode(name string, parts []state.Part) (encoded [][]byte, err error) {
	returned := false
	defer func() {
		switch v := recover(); {
		case v != nil:
			err = callback.New(name, v)
		case !returned:
			c.comm.Cancel(errMarshalExit)
		}
	}()
	encoded = make([][]byte, len(parts))
	for i := 0; err == nil && i < len(parts); i++ {
		encoded[i], err = parts[i].Encode()
	}
	returned = true
	return encoded, err
}

// errMarshalExit is the error of other ranks if a marshaler does not return.
var errMarshalExit = errors.New("MarshalBinary has ended its goroutine")

// agreeLengths returns the lengths of all encodings. If a length may differ between ranks, root
// broadcasts those first, or that it could not encode its parts.
func (c *Comm) agreeLengths(ctx context.Context, name string, op uint8, parts []state.Part, encoded [][]byte, bad error, root int) ([]int, error) {
	lengths := make([]int, len(parts))
	header := []uint64{0} // 1 after an error, and the lengths that vary
	for i, p := range parts {
		switch {
		case !p.Varies():
			lengths[i] = p.Len()
		case bad == nil && encoded != nil:
			header = append(header, uint64(len(encoded[i])))
		default:
			header = append(header, 0)
		}
	}
	if len(header) == 1 {
		return lengths, nil
	}
	if bad != nil {
		header[0] = 1
	}
	t := new(task).OnVector(&c.runner, plan.Broadcast, elementsOf(header), 0, root)
	t.Op = op
	if err := c.run(ctx, t); err != nil {
		return nil, err
	}
	if header[0] != 0 {
		return nil, opError(name, cmp.Or(bad, fmt.Errorf("rank %d could not marshal its state", root)))
	}
	header = header[1:]
	for i, p := range parts {
		if !p.Varies() {
			continue
		}
		if header[0] > math.MaxInt {
			return nil, opError(name, fmt.Errorf("%w: %d bytes", ErrTooLarge, header[0]))
		}
		lengths[i], header = int(header[0]), header[1:]
	}
	return lengths, nil
}
