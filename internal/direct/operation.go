package direct

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/internal/link"
)

// An Operation has the vectors of one collective in memory of a device, and carries the moves of its plan out there: it is a
// device of package linkexec. Vectors are slices of such memory: only their addresses are used.
type Operation struct {
	ctx    context.Context // of calls of the device
	on     device.Direct
	stream device.Stream
	typ    device.Type
	op     device.Op

	areas    []*area // contain all vectors
	temp     *area   // nil without
	operands *area   // nil without

	mu  sync.Mutex
	err error // of Err
}

// An area is a part of a buffer. Parts of areas may be in memory of the host.
type area struct {
	region    device.Region
	memory    []byte
	landing   *link.Landing
	operandAt int // in the operands, of the memory for payloads that are reduced into the area
}

// NewOperation returns an Operation with one or two vectors, which are contiguous regions of memory. If one is a part of the
// other, it comes second. Op is 0 if nothing is reduced.
func NewOperation(ctx context.Context, s device.Stream, t device.Type, op device.Op, vectors ...Vector) *Operation {
	o := &Operation{ctx: ctx, on: s.Device().(device.Direct), stream: s, typ: t, op: op}
	for _, v := range vectors {
		o.areas = append(o.areas, newArea(v.Region, v.Bytes))
	}
	return o
}

// A Vector is a contiguous region, and its memory.
type Vector struct {
	Region device.Region
	Bytes  []byte
}

func newArea(r device.Region, memory []byte) *area {
	return &area{region: r, memory: memory, landing: link.NewLanding(memory)}
}

// WorkBytes returns the bytes that SetWork needs, for temp bytes of Temp, and for operands if there are reductions.
func (o *Operation) WorkBytes(temp int, reduces bool) int {
	n := align(temp)
	if !reduces {
		return n
	}
	for _, a := range o.areas {
		n += align(len(a.memory))
	}
	return n + align(temp)
}

// align rounds a length up, so that the next area begins as aligned as its operands.
func align(n int) int { return (n + device.Align - 1) / device.Align * device.Align }

// SetWork gives the operation memory of WorkBytes bytes, for the same arguments.
func (o *Operation) SetWork(b device.Buffer, memory []byte, temp int, reduces bool) {
	if temp > 0 {
		o.temp = newArea(device.Region{Buffer: b, Bytes: temp}, memory[:temp:temp])
		o.areas = append(o.areas, o.temp)
	}
	if !reduces {
		return
	}
	at := align(temp)
	o.operands = newArea(device.Region{Buffer: b, Offset: at, Bytes: len(memory) - at}, memory[at:])
	at = 0
	for _, a := range o.areas {
		a.operandAt = at
		at += align(len(a.memory))
	}
	o.areas = append(o.areas, o.operands)
}

// find returns the area of memory, and the position in it.
func (o *Operation) find(b []byte) (a *area, at int) {
	p := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	i := slices.IndexFunc(o.areas, func(a *area) bool {
		first := uintptr(unsafe.Pointer(unsafe.SliceData(a.memory)))
		return p >= first && p+uintptr(len(b)) <= first+uintptr(len(a.memory))
	})
	a = o.areas[i]
	return a, int(p - uintptr(unsafe.Pointer(unsafe.SliceData(a.memory))))
}

// part returns a part of an area.
func (a *area) part(at, n int) device.Region {
	return device.Region{Buffer: a.region.Buffer, Offset: a.region.Offset + at, Bytes: n}
}

// Temp implements linkexec.Device.
func (o *Operation) Temp() []byte { return o.temp.memory }

// Landing implements linkexec.Device.
func (o *Operation) Landing(dst []byte) (*link.Landing, int) {
	a, at := o.find(dst)
	return a.landing, at
}

// Operand implements linkexec.Device. Two payloads for the same memory arrive one after the other, so that its operand has room
// for one.
func (o *Operation) Operand(dst []byte) []byte {
	a, at := o.find(dst)
	at += a.operandAt
	return o.operands.memory[at : at+len(dst) : at+len(dst)]
}

// Deliver implements linkexec.Device.
func (o *Operation) Deliver(t *link.Transfer, src []byte, failed func(error)) {
	a, at := o.find(src)
	all, some := a.landing.OnHost(at, len(src))
	if all != nil {
		t.Data, t.Fetch, t.Stale = all, nil, false
		return
	}
	t.Data, t.Stale = src, some
	t.Fetch = func(from, n int) []byte {
		b := make([]byte, n)
		err := o.on.FlushWrites(o.ctx)
		if err == nil {
			err = o.on.CopyOut(o.ctx, b, a.part(at+from, n))
		}
		if err != nil {
			failed(o.failed(err))
			return nil
		}
		a.landing.Overlay(b, at+from)
		return b
	}
}

// failed records an error of the device, unless the call has ended before, and returns it for the other ranks.
func (o *Operation) failed(err error) error {
	if err == nil || o.ctx.Err() != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
	return fmt.Errorf("its device failed: %w", err)
}

// Err returns the first error of the device during the operation, or nil. An operation with one does not complete.
func (o *Operation) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// Copy implements linkexec.Device.
func (o *Operation) Copy(dst, src []byte) error {
	return o.do(dst, func(to device.Region) error { return o.stream.Copy(to, o.region(src)) }, src)
}

// Combine implements linkexec.Device.
func (o *Operation) Combine(dst, a, b []byte) error {
	if isSame(dst, b) { // The order of two operands does not change the bits.
		a, b = b, a
	}
	return o.do(dst, func(to device.Region) error {
		if !isSame(dst, a) {
			if err := o.stream.Copy(to, o.region(a)); err != nil {
				return err
			}
		}
		return o.stream.(device.Reducer).Reduce(to, o.region(b), o.typ, o.op)
	}, a, b)
}

// Reduce implements linkexec.Device.
func (o *Operation) Reduce(dst, a []byte) error { return o.Combine(dst, a, o.Operand(dst)) }

func isSame(a, b []byte) bool { return unsafe.SliceData(a) == unsafe.SliceData(b) }

func (o *Operation) region(b []byte) device.Region {
	a, at := o.find(b)
	return a.part(at, len(b))
}

// do queues work of the stream that reads operands and writes dst, and waits until it is done. Before, it makes all bytes of
// the operands visible to the device: those that a network card has written, and those in memory of the host. If the context
// ends, it returns, while queued work goes on.
func (o *Operation) do(dst []byte, queue func(to device.Region) error, operands ...[]byte) error {
	return o.failed(o.try(dst, queue, operands...))
}

func (o *Operation) try(dst []byte, queue func(to device.Region) error, operands ...[]byte) error {
	if err := o.on.FlushWrites(o.ctx); err != nil {
		return err
	}
	for _, b := range operands {
		a, at := o.find(b)
		if err := o.bring(a, at, len(b)); err != nil {
			return err
		}
	}
	a, at := o.find(dst)
	a.landing.Drop(at, len(dst))
	if err := queue(a.part(at, len(dst))); err != nil {
		return err
	}
	return o.stream.Wait(o.ctx)
}

// bring copies those of n bytes of an area that are in memory of the host to the device.
func (o *Operation) bring(a *area, at, n int) error {
	for _, p := range a.landing.Parts() {
		from, to := max(p.At, at), min(p.At+len(p.Bytes), at+n)
		if from >= to {
			continue
		}
		if err := o.on.CopyIn(o.ctx, a.part(from, to-from), p.Bytes[from-p.At:to-p.At]); err != nil {
			return err
		}
		a.landing.Drop(from, to-from)
	}
	return nil
}

// Land completes the vectors on the device after the operation, until ctx ends.
func (o *Operation) Land(ctx context.Context) error {
	o.ctx = ctx
	if err := o.on.FlushWrites(o.ctx); err != nil {
		return err
	}
	for _, a := range o.areas {
		if a == o.temp || a == o.operands {
			continue
		}
		if err := o.bring(a, 0, len(a.memory)); err != nil {
			return err
		}
	}
	return nil
}
