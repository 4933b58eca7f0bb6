package nexar

import (
	"context"
	"errors"
	"fmt"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/plan"
)

// A DeviceComm is a communicator whose vectors live on a device, such as an
// accelerator: see Comm.On. Its methods are the functions of this package, for
// regions of buffers in place of slices, with the type of the elements in place
// of a type parameter; lengths are in bytes there, a whole number of elements.
//
// What is sent is copied to memory of the host that the device can reach, in the
// order of the stream, and what is received from there to the device; nothing
// but the methods of the device touches its memory. Where the host can address
// the memory of the device itself (device.Mapper), regions that are contiguous
// are used where they lie. A call returns when its result is in the buffer.
//
// Ranks whose vectors live on devices and ranks whose vectors are slices take
// part in the same collective. A device that fails on one rank is a DeviceError
// there. If that is before the other ranks have begun to count on it, when what
// is to be sent is staged, the communicator is revoked, as they would wait in
// vain.
type DeviceComm struct {
	comm   *Comm
	stream device.Stream
}

// On is the communicator for vectors on the device of a stream. It costs
// nothing; the stream stays the caller's.
func (c *Comm) On(s device.Stream) DeviceComm { return DeviceComm{c, s} }

// Broadcast is Broadcast of this package.
func (d DeviceComm) Broadcast(ctx context.Context, t device.Type, data device.Region, root int) error {
	return d.inPlace(ctx, "broadcast", t, data, func(e elements) (task, error) { return broadcastTask(d.comm, e, root) })
}

// Reduce is Reduce of this package.
func (d DeviceComm) Reduce(ctx context.Context, t device.Type, data device.Region, op Op, root int) error {
	return d.inPlace(ctx, "reduce", t, data, func(e elements) (task, error) { return reduceTask(d.comm, e, op, root) })
}

// AllReduce is AllReduce of this package.
func (d DeviceComm) AllReduce(ctx context.Context, t device.Type, data device.Region, op Op) error {
	return d.inPlace(ctx, "all_reduce", t, data, func(e elements) (task, error) { return allReduceTask(d.comm, e, op) })
}

// Scan is Scan of this package.
func (d DeviceComm) Scan(ctx context.Context, t device.Type, data device.Region, op Op) error {
	return d.inPlace(ctx, "scan", t, data, func(e elements) (task, error) { return scanTask(d.comm, e, op) })
}

// ExclusiveScan is ExclusiveScan of this package.
func (d DeviceComm) ExclusiveScan(ctx context.Context, t device.Type, data device.Region, op Op) error {
	return d.inPlace(ctx, "exclusive_scan", t, data, func(e elements) (task, error) { return exclusiveScanTask(d.comm, e, op) })
}

// Gather is Gather of this package. dst is ignored where the rank is not root.
func (d DeviceComm) Gather(ctx context.Context, t device.Type, dst, src device.Region, root int) error {
	if d.comm.rank != root {
		dst = device.Region{}
	}
	return d.blocks(ctx, "gather", t, dst, src, func(dst, src elements) (task, error) { return gatherTask(d.comm, dst, src, root) })
}

// AllGather is AllGather of this package.
func (d DeviceComm) AllGather(ctx context.Context, t device.Type, dst, src device.Region) error {
	return d.blocks(ctx, "all_gather", t, dst, src, func(dst, src elements) (task, error) { return allGatherTask(d.comm, dst, src) })
}

// Scatter is Scatter of this package. src is ignored where the rank is not root.
func (d DeviceComm) Scatter(ctx context.Context, t device.Type, dst, src device.Region, root int) error {
	if d.comm.rank != root {
		src = device.Region{}
	}
	return d.blocks(ctx, "scatter", t, dst, src, func(dst, src elements) (task, error) { return scatterTask(d.comm, dst, src, root) })
}

// ReduceScatter is ReduceScatter of this package.
func (d DeviceComm) ReduceScatter(ctx context.Context, t device.Type, dst, src device.Region, op Op) error {
	return d.blocks(ctx, "reduce_scatter", t, dst, src, func(dst, src elements) (task, error) { return reduceScatterTask(d.comm, dst, src, op) })
}

// AllToAll is AllToAll of this package.
func (d DeviceComm) AllToAll(ctx context.Context, t device.Type, dst, src device.Region) error {
	return d.blocks(ctx, "all_to_all", t, dst, src, func(dst, src elements) (task, error) { return allToAllTask(d.comm, dst, src) })
}

// Send is Send of this package, of several regions as one message.
func (d DeviceComm) Send(ctx context.Context, t device.Type, to int, tag Tag, regions ...device.Region) error {
	const name = "send"
	if err := d.comm.checkMessage(ctx, "to", to, tag); err != nil {
		return opError(name, err)
	}
	s, err := d.stage(ctx, t, regions...)
	if err == nil {
		err = s.load(ctx)
	}
	defer s.free()
	if err != nil {
		return opError(name, err)
	}
	sending, err := d.comm.comm.StartSend(engine.Regions{First: s.mem}, uint8(t), to, int64(tag))
	if sending != nil {
		err = sending.Wait(ctx)
	}
	return d.comm.explain(ctx, name, err)
}

// Recv is Recv of this package, into several regions, one after the other.
func (d DeviceComm) Recv(ctx context.Context, t device.Type, from int, tag Tag, regions ...device.Region) (Status, error) {
	const name = "recv"
	if err := d.comm.checkSource(ctx, from, tag); err != nil {
		return Status{}, opError(name, err)
	}
	s, err := d.stage(ctx, t, regions...)
	if err == nil {
		err = s.load(ctx) // A message may be shorter, and then leaves the rest as it is.
	}
	defer s.free()
	if err != nil {
		return Status{}, opError(name, err)
	}
	got, err := d.comm.comm.Recv(ctx, s.mem, uint8(t), from, int64(tag))
	if err != nil {
		return Status{}, d.comm.explain(ctx, name, err)
	}
	status := Status{Source: got.Source, Tag: Tag(got.Tag), Count: got.Bytes / t.Size()}
	return status, opError(name, s.store(ctx))
}

// inPlace runs a task on a region.
func (d DeviceComm) inPlace(ctx context.Context, name string, t device.Type, data device.Region, check func(elements) (task, error)) error {
	s, err := d.stage(ctx, t, data)
	defer s.free()
	if err != nil {
		return opError(name, d.without(err))
	}
	work, err := check(s.elements)
	if err != nil {
		return opError(name, err)
	}
	return d.run(ctx, work, s, s)
}

// blocks runs a task on two regions.
func (d DeviceComm) blocks(ctx context.Context, name string, t device.Type, dst, src device.Region, check func(dst, src elements) (task, error)) error {
	to, err := d.stage(ctx, t, dst)
	defer to.free()
	var from *staged
	if err == nil {
		from, err = d.stage(ctx, t, src)
		defer from.free()
	}
	if err == nil && dst.Buffer != nil && src.Buffer != nil && dst.Overlaps(src) {
		err = fmt.Errorf("%w: dst and src share memory of device %s", ErrOverlap, d.stream.Device().Name())
	}
	if err != nil {
		return opError(name, d.without(err))
	}
	work, err := check(to.elements, from.elements)
	if err != nil {
		return opError(name, err)
	}
	return d.run(ctx, work, to, from)
}

// run runs a task whose operands come from one staging and whose result goes to
// the other, or to the same.
func (d DeviceComm) run(ctx context.Context, t task, to, from *staged) error {
	if t.kind != plan.Broadcast || t.reads {
		if err := from.load(ctx); err != nil {
			return opError(t.name(), d.without(err))
		}
	}
	if err := d.comm.run(ctx, t, nil); err != nil {
		return err
	}
	if t.reads {
		return nil
	}
	return opError(t.name(), to.store(ctx))
}

// without ends the communicator if it is the device that has failed: the other
// ranks would wait for this one in vain.
func (d DeviceComm) without(err error) error {
	if e, ok := errors.AsType[*DeviceError](err); ok && e.running {
		d.comm.comm.Cancel(err)
	}
	return err
}

// A staged is what regions hold, in memory of the host.
type staged struct {
	elements
	stream  device.Stream
	staging device.Staging // nil if the memory is the device's own
	regions []device.Region
}

// stage gets memory of the host for regions of elements of a type. What they
// hold is not there yet.
func (d DeviceComm) stage(ctx context.Context, t device.Type, regions ...device.Region) (*staged, error) {
	s := &staged{stream: d.stream, regions: regions}
	if len(regions) == 1 && regions[0].Buffer == nil {
		s.regions = nil // nothing is wanted of this rank
	}
	dev := d.stream.Device()
	if t.Size() == 0 {
		return s, fmt.Errorf("%w: %v", ErrInvalidType, t)
	}
	n, err := device.Check(dev, s.regions...)
	switch {
	case err != nil:
		return s, &DeviceError{Device: dev.Name(), Err: err}
	case n%t.Size() != 0:
		return s, fmt.Errorf("%w: %d bytes of %v", ErrInvalidLength, n, t)
	}
	s.elements = elements{n: n / t.Size(), typ: uint8(t), size: t.Size()}
	if n == 0 {
		return s, nil
	}
	if m, ok := dev.(device.Mapper); ok && len(s.regions) == 1 && s.regions[0].RowCount() == 1 {
		r := s.regions[0]
		mem, err := m.Map(r.Buffer)
		if err != nil {
			return s, s.failed(err)
		}
		s.mem = mem[r.Offset : r.Offset+n : r.Offset+n]
		return s, nil
	}
	if s.staging, err = dev.Stage(ctx, n); err == nil {
		s.mem, err = s.staging.Bytes(ctx)
	}
	return s, s.failed(err)
}

// load copies what the regions hold.
func (s *staged) load(ctx context.Context) error {
	if s.staging == nil {
		return nil
	}
	err := s.stream.StageSend(s.staging, 0, s.regions...)
	if err == nil {
		s.mem, err = s.staging.Bytes(ctx)
	}
	return s.failed(err)
}

// store copies back.
func (s *staged) store(ctx context.Context) error {
	if s.staging == nil {
		return nil
	}
	err := s.stream.ReceiveInto(s.staging, 0, s.regions...)
	if err == nil {
		err = s.stream.Wait(ctx)
	}
	return s.failed(err)
}

// failed names the device, unless it is the context that has ended.
func (s *staged) failed(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &DeviceError{Device: s.stream.Device().Name(), Err: err, running: true}
}

// free gives the memory back.
func (s *staged) free() {
	if s != nil && s.staging != nil {
		s.staging.Free()
	}
}
