package nexar

import (
	"context"
	"errors"
	"unsafe"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/internal/comm"
	"github.com/nexar-go/nexar/internal/direct"
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/engine/linkexec"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// stagedMemory is the [Peer].DeviceMemory of a peer with which vectors of devices are copied through memory of the host.
const stagedMemory = "staged"

// directMin is the length of the shortest vector that a network card accesses in the memory of its device. Shorter ones are sent
// without a grant, so that the direct way would take a round trip more than staging. This has not been measured on hardware.
const directMin = wire.PayloadMax + 1

// A passage is a region of a device that network cards may access.
type passage struct {
	*direct.Memory
	device device.Direct
	region device.Region
	bytes  []byte // of the region: the processor cannot access them
}

// passage returns the region of an operand if the network card of the connection to a rank accesses it, and nil if it must be
// staged. The caller releases it.
func (d DeviceComm) passage(o operand, rank int) *passage {
	on, ok := d.stream.Device().(device.Direct)
	if !ok || o.Len() < directMin || rank == d.comm.Rank() {
		return nil
	}
	l := d.comm.comm.Messages().Link(rank)
	if r, ok := o.Contiguous(); ok {
		if by := l.Exposer(); by != nil {
			if m, err := d.comm.node.direct.Hold(by, r.Buffer); err == nil {
				p := &passage{m, on, r, m.Bytes[r.Offset : r.Offset+r.Bytes]}
				if l.SuitsRemote(p.bytes) {
					l.DeviceMemory.Set(m.Method)
					return p
				}
				m.Release()
			}
		}
	}
	l.DeviceMemory.Set(stagedMemory)
	return nil
}

// settle waits until the work of the stream is done, so that a network card reads its results, and does not overwrite its
// operands.
func (d DeviceComm) settle(ctx context.Context) error { return d.await(ctx, false, d.stream.Wait) }

// sendDirectly sends the memory of a device as a message. If the network card cannot write it to the peer any more, it is
// copied and sent as memory of the host. If that copy fails, the communicator ends, since the receiver waits for the rest.
func (d DeviceComm) sendDirectly(ctx context.Context, name string, p *passage, typ uint8, to int, tag Tag) error {
	if err := d.settle(ctx); err != nil {
		return opError(name, err)
	}
	sending, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var failure error // of fetch, which happens before the end of the send
	fetch := func(at, n int) []byte {
		b := make([]byte, n)
		part := device.Region{Buffer: p.region.Buffer, Offset: p.region.Offset + at, Bytes: n}
		if err := p.device.CopyOut(sending, b, part); err != nil {
			failure = err
			cancel(err)
			return nil
		}
		return b
	}
	s, err := d.comm.comm.Messages().StartSend(&p2p.Regions{First: p.bytes, Fetch: fetch}, typ, to, int64(tag))
	if s != nil {
		err = s.Wait(sending)
	}
	if err != nil && failure != nil && ctx.Err() == nil {
		return opError(name, d.failed(ctx, failure))
	}
	return d.comm.explain(ctx, name, err)
}

// receiveDirectly receives a message into the memory of a device.
func (d DeviceComm) receiveDirectly(ctx context.Context, name string, p *passage, of element, from int, tag Tag) (Status, error) {
	if err := d.settle(ctx); err != nil {
		return Status{}, opError(name, err)
	}
	landing := link.NewLanding(p.bytes)
	got, err := d.receive(ctx, &p2p.Regions{First: p.bytes, Landing: landing}, of, from, tag)
	if err != nil {
		_ = p.device.FlushWrites(context.WithoutCancel(ctx)) // No write is in flight when the memory is released.
		return Status{}, d.comm.explain(ctx, name, err)
	}
	if err := d.busy(func() error { return p.land(ctx, landing) }); err != nil {
		return Status{}, opError(name, d.failed(ctx, err))
	}
	return newStatus(got, of), nil
}

// land makes a message visible to work that is queued from now on. It copies the parts that have arrived in memory of the host
// to the device.
func (p *passage) land(ctx context.Context, landing *link.Landing) error {
	if err := p.device.FlushWrites(ctx); err != nil {
		return err
	}
	for _, part := range landing.Parts() {
		r := device.Region{Buffer: p.region.Buffer, Offset: p.region.Offset + part.At, Bytes: len(part.Bytes)}
		if err := p.device.CopyIn(ctx, r, part.Bytes); err != nil {
			return err
		}
	}
	return nil
}

// errStaged: a collective is not carried out in the memory of the device.
var errStaged = errors.New("nexar: not in the memory of the device")

// exposer returns the Exposer of the links of the communicator, or nil.
func (d DeviceComm) exposer() (by transport.Exposer) {
	for rank := range d.comm.Size() {
		if rank == d.comm.Rank() {
			continue
		}
		l := d.comm.comm.Messages().Link(rank)
		if x := l.Exposer(); x == nil {
			if !l.IsPending() {
				l.DeviceMemory.Set(stagedMemory)
			}
		} else if by == nil {
			by = x
		}
	}
	return by
}

// directly carries a call out in the memory of the device, so that network cards access the operands. If it reports false, the
// call must be staged: no operation has begun.
func (d DeviceComm) directly(ctx context.Context, c call, typ device.Type, operands []operand) (done bool, err error) {
	on, ok := d.stream.Device().(device.Direct)
	longest := 0
	for _, o := range operands {
		longest = max(longest, o.Len())
	}
	if !ok || longest < directMin || d.comm.Size() == 1 {
		return false, nil
	}
	by := d.exposer()
	if by == nil {
		return false, nil
	}
	direct := &directCall{DeviceComm: d, by: by, on: on, typ: typ}
	defer direct.release()
	v, ok := direct.hold(operands)
	if !ok || d.settle(ctx) != nil { // Staging reports the error.
		return false, nil
	}
	t := d.task(c, v...)
	if t.Err != nil || ctx.Err() != nil || t.Divisor > 1 || t.Empty {
		return false, nil
	}
	until, stop := comm.Until(ctx, d.comm.Done(), d.comm.Err)
	defer stop()
	t.Prepare = func(w exec.Work) (any, error) { return direct.prepare(until, t, w) }
	op, err := d.comm.runner.Begin(t)
	switch {
	case errors.Is(err, errStaged):
		return false, nil
	case err == nil:
		err = t.End(ctx, op)
	}
	if err != nil {
		_ = on.FlushWrites(context.WithoutCancel(ctx)) // No write is in flight when the memory is released.
		if direct.operation != nil && direct.operation.Err() != nil {
			return true, opError(t.Name(), d.failed(ctx, direct.operation.Err()))
		}
		return true, d.comm.explain(ctx, t.Name(), err)
	}
	if !t.ReadOnly {
		err = d.busy(func() error { return direct.operation.Land(ctx) })
	}
	direct.succeeded = err == nil
	return true, opError(t.Name(), d.failed(ctx, err))
}

// A directCall is the memory of a call of directly.
type directCall struct {
	DeviceComm
	by        transport.Exposer
	on        device.Direct
	typ       device.Type
	vectors   []direct.Vector // the longer one first
	held      []*direct.Memory
	method    string
	work      device.Buffer // nil without
	operation *direct.Operation
	succeeded bool // no work that is queued uses the memory
}

// hold registers the buffers of operands and returns their memory, or reports false if that is not possible.
func (c *directCall) hold(operands []operand) (v []elements, ok bool) {
	for _, o := range operands {
		e := o.elements
		if o.Len() > 0 {
			r, ok := o.Contiguous()
			if !ok {
				return nil, false
			}
			m, err := c.comm.node.direct.Hold(c.by, r.Buffer)
			if err != nil {
				return nil, false
			}
			c.held, c.method = append(c.held, m), m.Method
			vector := m.Vector(r)
			e.At = unsafe.SliceData(vector.Bytes)
			c.vectors = append(c.vectors, vector)
		}
		v = append(v, e)
	}
	if len(c.vectors) == 2 && len(c.vectors[0].Bytes) < len(c.vectors[1].Bytes) {
		c.vectors[0], c.vectors[1] = c.vectors[1], c.vectors[0]
	}
	return v, true
}

// prepare makes the work of a task one on the device, or returns errStaged.
func (c *directCall) prepare(ctx context.Context, t *task, w exec.Work) (any, error) {
	needs, ok := linkexec.DeviceNeeds(&w, directMin-1)
	if !ok || !c.chooses(needs.Peers) {
		return nil, errStaged
	}
	op := device.Op(0)
	if needs.Reduces {
		op = device.Op(t.Op)
		if _, ok := c.stream.(device.Reducer); !ok || !op.Defined(c.typ) || !c.isAligned() {
			return nil, errStaged
		}
	}
	o := direct.NewOperation(ctx, c.stream, c.typ, op, c.vectors...)
	if n := o.WorkBytes(needs.Temp, needs.Reduces); n > 0 {
		b, m, err := c.comm.node.direct.Work(ctx, c.by, c.on, n)
		if err != nil {
			return nil, errStaged
		}
		c.work, c.held = b, append(c.held, m)
		o.SetWork(b, m.Bytes, needs.Temp, needs.Reduces)
	}
	c.operation = o
	return o, nil
}

// isAligned reports whether the device can reduce the elements of the vectors where they lie.
func (c *directCall) isAligned() bool {
	for _, v := range c.vectors {
		if v.Region.Offset%c.typ.Size() != 0 {
			return false
		}
	}
	return true
}

// chooses reports whether the network card exchanges payloads with one of the peers, and records the method for each.
func (c *directCall) chooses(peers []int) (some bool) {
	if len(c.vectors) == 0 {
		return false
	}
	for _, rank := range peers {
		l := c.comm.comm.Messages().Link(rank)
		switch {
		case l.Exposer() == c.by && l.SuitsRemote(c.vectors[0].Bytes):
			some = true
			l.DeviceMemory.Set(c.method)
		case !l.IsPending():
			l.DeviceMemory.Set(stagedMemory)
		}
	}
	return some
}

// release ends the accesses of network cards. Waits of a call that has failed may have ended before the work that they were
// for: the device frees the memory after that work, while other calls would use returned memory at once.
func (c *directCall) release() {
	for _, m := range c.held {
		m.Release()
	}
	switch {
	case c.work == nil:
	case c.succeeded:
		c.comm.node.direct.Return(c.work)
	default:
		_ = c.work.Free() // The device may be closed.
	}
}
