package nexar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/internal/comm"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/staging"
)

// A DeviceComm is a communicator for vectors on a device, such as an accelerator:
// see [Comm.WithStream]. Each method corresponds to the function of this package with the same name. It
// takes regions of device buffers in place of slices, and the type of the elements as an argument in
// place of a type parameter. A region has a whole number of elements, but its rows need not have.
//
// The methods are Broadcast, Reduce, AllReduce, AllReduceCompressed, AllReduceBuckets, Scan,
// ExclusiveScan, Gather, AllGather, Scatter, ReduceScatter, AllToAll, Send and Recv. Other
// functions, such as those with a function of the caller or with blocks of different lengths,
// MinLoc and Exchange, are for slices only: use the Staging of the device to copy the vector
// to the host and the result back.
//
// Ranks with vectors on devices and ranks with slices take part in the same
// collectives, with the same results, and exchange messages.
//
// A call copies its input to staging memory, after the work that is queued in the
// stream, and its result from there to the device. Only the methods of the device
// access its memory. A call takes as much staging memory as the longer of dst and src
// has bytes; AllToAll takes as much as both have. A call does not divide a vector,
// since ranks with slices would have to do so as well. If staging memory is short,
// make a call for each part of the vector, on all ranks. If the host can access the
// memory of the device (device.Mapper), contiguous regions need no staging memory: the
// call uses them in place, as soon as the stream has done its work.
//
// Between hosts, a network card may access the memory of the device ([device.Direct]). Send and Recv then wait for the
// stream, and the payload needs no staging memory. This applies to a contiguous region of more than 128 KiB, to or from a named
// rank, if RDMA connects it. Collectives use it too, except the Start methods. Peer.DeviceMemory of [Node.Peers] shows the
// method. After a failure of the card, the processor copies the rest.
//
// A call returns when its result is in the device buffer. It takes its sequence number among
// the collectives of the communicator when its input is staged. Every collective has a Start
// method, which returns a [Handle] when the input is staged, so that the next vector is
// staged while this one is reduced. Until Wait returns, the program must not use the regions,
// nor queue work with them: only regions that the host accesses in place are checked for
// operations in progress that overlap.
//
// # Failure
//
// A call with an invalid argument returns an error at once, and the communicator can still
// be used. Errors of the device are a [DeviceError]: a freed device buffer, the failure of the device,
// or a lack of staging memory. If the device fails or the context ends before the collective
// has begun on this rank, the communicator ends, since the other ranks wait for this one. If
// the result cannot be stored, only this rank gets an error. Send and Recv do not end the
// communicator because of the device; a message that cannot be stored is lost.
//
// A call waits for the device without a limit until its context or the communicator
// ends. [Config].CollectiveTimeout counts after that. Work that is queued is done in any
// case, so after a call that was cancelled the device buffers are in use until a later
// [device.Stream].Wait returns. Staging memory is reused only when the device no longer uses
// it.
type DeviceComm struct {
	comm   *Comm
	stream device.Stream
}

// WithStream returns the communicator for vectors on the device of a stream. It allocates
// nothing, and the stream still belongs to the caller.
func (c *Comm) WithStream(s device.Stream) DeviceComm { return DeviceComm{c, s} }

// Broadcast is like the function [Broadcast], for regions.
func (d DeviceComm) Broadcast(ctx context.Context, t device.Type, data device.Region, root int) error {
	return d.run(ctx, call{plan.Broadcast, 0, root}, t, data)
}

// Reduce is like the function [Reduce], for regions.
func (d DeviceComm) Reduce(ctx context.Context, t device.Type, data device.Region, op Op, root int) error {
	return d.run(ctx, call{plan.Reduction, op, root}, t, data)
}

// AllReduce is like the function [AllReduce], for regions.
func (d DeviceComm) AllReduce(ctx context.Context, t device.Type, data device.Region, op Op) error {
	return d.run(ctx, call{plan.AllReduce, op, 0}, t, data)
}

// Scan is like the function [Scan], for regions.
func (d DeviceComm) Scan(ctx context.Context, t device.Type, data device.Region, op Op) error {
	return d.run(ctx, call{plan.Scan, op, 0}, t, data)
}

// ExclusiveScan is like the function [ExclusiveScan], for regions.
func (d DeviceComm) ExclusiveScan(ctx context.Context, t device.Type, data device.Region, op Op) error {
	return d.run(ctx, call{plan.ExclusiveScan, op, 0}, t, data)
}

// Gather is like the function [Gather], for regions. On ranks other than
// root, dst is ignored. On root, src may be its own block of dst.
func (d DeviceComm) Gather(ctx context.Context, t device.Type, dst, src device.Region, root int) error {
	return d.run(ctx, call{plan.Gather, 0, root}, t, dst, src)
}

// AllGather is like the function [AllGather], for regions. src may be this rank's own block of
// dst.
func (d DeviceComm) AllGather(ctx context.Context, t device.Type, dst, src device.Region) error {
	return d.run(ctx, call{plan.AllGather, 0, 0}, t, dst, src)
}

// Scatter is like the function [Scatter], for regions. On ranks other than
// root, src is ignored. On root, dst may be its own block of src.
func (d DeviceComm) Scatter(ctx context.Context, t device.Type, dst, src device.Region, root int) error {
	return d.run(ctx, call{plan.Scatter, 0, root}, t, dst, src)
}

// ReduceScatter is like the function [ReduceScatter], for regions. dst may be this rank's own
// block of src.
func (d DeviceComm) ReduceScatter(ctx context.Context, t device.Type, dst, src device.Region, op Op) error {
	return d.run(ctx, call{plan.ReduceScatter, op, 0}, t, dst, src)
}

// AllToAll is like the function [AllToAll], for regions.
func (d DeviceComm) AllToAll(ctx context.Context, t device.Type, dst, src device.Region) error {
	return d.run(ctx, call{plan.AllToAll, 0, 0}, t, dst, src)
}

// Send is like the function [SendVec]: it sends regions as one message.
func (d DeviceComm) Send(ctx context.Context, t device.Type, to int, tag Tag, regions ...device.Region) error {
	const name = "send"
	o := d.operand(t, regions)
	defer o.Free()
	o.Read = true
	err := cmp.Or(o.Err(), d.comm.checkMessage(ctx, "to", to, tag))
	if err == nil && to != NoRank {
		if p := d.passage(o, to); p != nil {
			defer p.Release()
			return d.sendDirectly(ctx, name, p, o.Of.Type, to, tag)
		}
		err = d.load(ctx, false, o.Operand)
	}
	if err != nil || to == NoRank {
		return opError(name, err)
	}
	r, _ := regionsOf(o.Pieces(), false)
	s, err := d.comm.comm.Messages().StartSend(r, o.Of.Type, to, int64(tag))
	if s != nil {
		err = s.Wait(ctx)
	}
	return d.comm.explain(ctx, name, err)
}

// Recv is like the function [RecvVec]: it fills regions with one message, one after the
// other. They must not overlap. Regions beyond the end of the message do not change.
func (d DeviceComm) Recv(ctx context.Context, t device.Type, from int, tag Tag, regions ...device.Region) (Status, error) {
	const name = "recv"
	o := d.operand(t, regions)
	defer o.Free()
	err := cmp.Or(o.Err(), d.comm.checkSource(ctx, from, tag))
	if err == nil && o.Tangled() {
		err = fmt.Errorf("%w: two regions share memory of the device", ErrOverlap)
	}
	if err == nil && from == NoRank {
		return noMessage(), nil
	}
	if err == nil && from != AnyRank {
		if p := d.passage(o, from); p != nil {
			defer p.Release()
			return d.receiveDirectly(ctx, name, p, o.Of, from, tag)
		}
	}
	if err == nil {
		err = d.load(ctx, false, o.Operand)
	}
	var into *p2p.Regions
	if err == nil {
		into, err = regionsOf(o.Pieces(), true) // Two buffers may be of the same memory.
	}
	if err != nil {
		return Status{}, opError(name, err)
	}
	got, err := d.receive(ctx, into, o.Of, from, tag)
	if err != nil {
		return Status{}, d.comm.explain(ctx, name, err)
	}
	if err := d.store(ctx, o.Operand, got.Bytes); err != nil {
		return Status{}, opError(name, err)
	}
	return newStatus(got, o.Of), nil
}

// receive receives a message into regions of bytes.
func (d DeviceComm) receive(ctx context.Context, into *p2p.Regions, of element, from int, tag Tag) (got p2p.Received, err error) {
	r, err := d.comm.comm.Messages().StartRecv(into, of.Type, from, int64(tag))
	if err != nil {
		return got, err
	}
	return r.Wait(ctx)
}

// newStatus describes a message that was received as elements.
func newStatus(got p2p.Received, of element) Status {
	return Status{Source: got.Source, Tag: Tag(got.Tag), Count: got.Bytes / int(of.Size)}
}

// An operand is the regions of a task or message.
type operand struct {
	*staging.Operand
	elements
}

// operand checks regions of elements of a type.
func (d DeviceComm) operand(t device.Type, regions []device.Region) operand {
	s, err := staging.New(d.stream, regions)
	size := max(1, t.Size())
	switch n := s.Len(); {
	case t.Size() == 0:
		err = fmt.Errorf("%w: no device.Type has the number %d", ErrInvalidType, uint8(t))
	case err != nil:
		err = &DeviceError{Device: d.stream.Device().Name(), Err: err}
	case n%size != 0:
		err = fmt.Errorf("%w: %d bytes are not a multiple of the size of %v", ErrInvalidLength, n, t)
	}
	o := operand{s, elements{N: s.Len() / size, Of: element{Type: uint8(t), Size: uint32(size)}}}
	if err != nil {
		o.Bad = &err
	}
	return o
}

// A call is a collective on regions: Data, or dst and src.
type call struct {
	kind plan.Collective
	op   Op
	root int
}

// task makes the task of a call on its vectors.
func (d DeviceComm) task(c call, v ...elements) *task {
	if len(v) == 1 {
		return new(task).OnVector(&d.comm.runner, c.kind, v[0], kernel.Op(c.op), c.root)
	}
	return new(task).OnBlocks(&d.comm.runner, c.kind, v[0], v[1], kernel.Op(c.op), c.root)
}

// run carries a call out.
func (d DeviceComm) run(ctx context.Context, c call, typ device.Type, regions ...device.Region) error {
	operands, t, err := d.check(c, typ, regions)
	defer free(operands)
	if err != nil {
		return opError(t.Name(), err)
	}
	if done, err := d.directly(ctx, c, typ, operands); done {
		return err
	}
	loaded, err := d.loadCall(ctx, c, operands)
	if err != nil {
		return opError(t.Name(), err)
	}
	if err := d.comm.run(ctx, loaded); err != nil || t.ReadOnly {
		return err
	}
	return opError(t.Name(), d.store(ctx, operands[0].Operand, operands[0].Len()))
}

// check makes the task of a call without the memory of its operands. The caller frees them, also after an error.
func (d DeviceComm) check(c call, typ device.Type, regions []device.Region) (operands []operand, t *task, err error) {
	of, rank := c.kind.Descriptor(), d.comm.impl.Rank
	gives := of.Given.At.Have(rank, c.root)
	has := [...]bool{of.Both || of.Taken.At.Have(rank, c.root), gives}
	for i := range regions {
		if has[i] {
			operands = append(operands, d.operand(typ, regions[i:i+1]))
		} else {
			operands = append(operands, d.operand(typ, nil))
		}
	}
	last := operands[len(operands)-1]
	last.Read = gives
	operands[0].Bad = cmp.Or(operands[0].Bad, last.Bad)
	t = d.task(c, vectorsOf(operands)...)
	if of.Both {
		return operands, t, t.Err
	}
	pair := longerFirst(operands)
	if of.Parts() {
		pair[1].Within(pair[0], rank*pair[1].Len())
	}
	if t.Err == nil && pair[1].Clashes(pair[0]) {
		return operands, t, fmt.Errorf("%w: dst and src share memory of the device", ErrOverlap)
	}
	return operands, t, t.Err
}

// longerFirst returns the staging of operands, the longest one first.
func longerFirst(operands []operand) (list []*staging.Operand) {
	for _, o := range operands {
		list = append(list, o.Operand)
	}
	if len(list) == 2 && list[1].Len() > list[0].Len() {
		list[0], list[1] = list[1], list[0]
	}
	return list
}

// loadCall loads the operands of a call, and makes its task again: whether it is in place depends on where they are now.
func (d DeviceComm) loadCall(ctx context.Context, c call, operands []operand) (*task, error) {
	if err := d.load(ctx, true, longerFirst(operands)...); err != nil {
		return nil, err
	}
	for i := range operands {
		operands[i].At = unsafe.SliceData(operands[i].Memory())
	}
	return d.task(c, vectorsOf(operands)...), nil
}

func vectorsOf(operands []operand) (v []elements) {
	for _, o := range operands {
		v = append(v, o.elements)
	}
	return v
}

func free(operands []operand) {
	for _, o := range operands {
		o.Free()
	}
}

// load loads operands. If that fails for another reason than the arguments, and other ranks wait for this one, the communicator
// ends.
func (d DeviceComm) load(ctx context.Context, awaited bool, operands ...*staging.Operand) error {
	if err := d.comm.Err(); err != nil {
		return err
	}
	return d.await(ctx, awaited, func(until context.Context) error { return staging.Load(until, operands...) })
}

// await waits for the device, until the communicator ends. See load.
func (d DeviceComm) await(ctx context.Context, awaited bool, wait func(until context.Context) error) error {
	until, stop := comm.Until(ctx, d.comm.Done(), d.comm.Err)
	defer stop()
	err := d.busy(func() error { return wait(until) })
	if err == nil {
		return nil
	}
	if ended := d.comm.Err(); ended != nil {
		return ended
	}
	if awaited && (ctx.Err() != nil || !staging.Misused(err)) {
		d.comm.comm.Cancel(err)
	}
	return d.failed(ctx, err)
}

// busy calls a function that waits for the device.
func (d DeviceComm) busy(f func() error) error {
	d.comm.runner.Engine.DeviceWork(1)
	defer d.comm.runner.Engine.DeviceWork(-1)
	return f()
}

// store copies the first n bytes of an operand to the device, and waits until it has them.
func (d DeviceComm) store(ctx context.Context, o *staging.Operand, n int) error {
	return d.failed(ctx, d.busy(func() error { return o.Store(ctx, n) }))
}

// failed makes an error of this package of one of the device.
func (d DeviceComm) failed(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return cancelled(ctx)
	}
	return &DeviceError{Device: d.stream.Device().Name(), Err: err}
}
