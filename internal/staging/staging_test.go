//race:none it starts no goroutine

package staging

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/device/devicetest"
	"github.com/nexar-go/nexar/device/host"
)

// patience is the longest time that a test waits for an immediate event, on a busy machine.
const patience = 60 * time.Second

var errBroken = errors.New("broken")

// A bench is a device with a stream, for a test.
type bench struct {
	testing.TB
	ctx    context.Context
	dev    device.Device
	stream device.Stream
}

func newBench(t testing.TB, dev device.Device) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	s, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &bench{TB: t, ctx: ctx, dev: dev, stream: s}
}

// filled returns a buffer of random bytes.
func (b *bench) filled(n int) (device.Buffer, []byte) {
	b.Helper()
	buffer, err := b.dev.Alloc(b.ctx, n)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { buffer.Free() })
	data := make([]byte, n)
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	b.must(b.dev.CopyIn(b.ctx, device.Whole(buffer), data))
	return buffer, data
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bench) operand(regions ...device.Region) *Operand {
	b.Helper()
	o, err := New(b.stream, regions)
	b.must(err)
	return o
}

// want compares a buffer.
func (b *bench) want(buffer device.Buffer, want []byte) {
	b.Helper()
	got := make([]byte, len(want))
	b.must(b.dev.CopyOut(b.ctx, got, device.Whole(buffer)))
	if !bytes.Equal(got, want) {
		b.Errorf("the buffer has\n%v, want\n%v", got, want)
	}
}

// memory returns the memory of an operand.
func memory(o *Operand) []byte { return slices.Concat(o.Pieces()...) }

// fill overwrites the memory of an operand with bytes that count from first.
func fill(o *Operand, first byte) (all []byte) {
	for _, p := range o.Pieces() {
		for i := range p {
			p[i] = first
			all = append(all, first)
			first++
		}
	}
	return all
}

// devices returns the devices for every test.
func devices(t *testing.T, f func(b *bench, maps bool)) {
	t.Run("fake", func(t *testing.T) { f(newBench(t, devicetest.NewFake(t, devicetest.FakeConfig{})), false) })
	t.Run("host", func(t *testing.T) { f(newBench(t, host.Device{}), true) })
}

// Load copies the regions in their order, and Store their first bytes. Other bytes of the buffer do
// not change.
func TestLoadAndStore(t *testing.T) {
	devices(t, func(b *bench, maps bool) {
		buffer, data := b.filled(100)
		for name, regions := range map[string][]device.Region{
			"all":            {device.Whole(buffer)},
			"a part":         {{Buffer: buffer, Offset: 7, Bytes: 31}},
			"rows":           {{Buffer: buffer, Offset: 3, Bytes: 5, Rows: 9, Stride: 11}},
			"several":        {{Buffer: buffer, Offset: 50, Bytes: 20}, {Buffer: buffer, Offset: 1, Bytes: 0}, {Buffer: buffer, Offset: 2, Bytes: 9}},
			"several, rows":  {{Buffer: buffer, Offset: 90, Bytes: 10}, {Buffer: buffer, Offset: 0, Bytes: 2, Rows: 8, Stride: 10}},
			"no bytes":       {{Buffer: buffer, Offset: 100, Rows: 5}},
			"nothing at all": nil,
		} {
			offsets := bytesOf(regions)
			for _, n := range []int{len(offsets), len(offsets) / 2, 0} {
				o := b.operand(regions...)
				o.Read = true
				b.must(Load(b.ctx, o))
				var want []byte
				for _, at := range offsets {
					want = append(want, data[at])
				}
				if got := memory(o); !bytes.Equal(got, want) || o.Len() != len(want) {
					t.Errorf("%s: loaded\n%v, want\n%v", name, got, want)
				}
				all := fill(o, byte(n))
				b.must(o.Store(b.ctx, n))
				o.Free()
				stored := n
				if maps && o.staging == nil {
					stored = len(all) // The memory is the buffer.
				}
				for i, at := range offsets[:stored] {
					data[at] = all[i]
				}
				b.want(buffer, data)
			}
		}
	})
}

// Contiguous regions of memory that the host can access are used in place, and all others are staged.
func TestWhereMemoryIs(t *testing.T) {
	b := newBench(t, host.Device{})
	slice := make([]byte, 100)
	buffer := host.Of(slice)
	for _, test := range []struct {
		name    string
		regions []device.Region
		pieces  []int // offsets; nil if it is staged
	}{
		{"a part", []device.Region{{Buffer: buffer, Offset: 7, Bytes: 31}}, []int{7}},
		{"rows without gaps", []device.Region{{Buffer: buffer, Offset: 7, Bytes: 3, Rows: 5, Stride: 3}}, []int{7}},
		{"several", []device.Region{{Buffer: buffer, Offset: 70, Bytes: 3}, {Buffer: buffer, Offset: 7, Bytes: 3}}, []int{70, 7}},
		{"rows", []device.Region{{Buffer: buffer, Offset: 7, Bytes: 3, Rows: 5, Stride: 4}}, nil},
		{"several, rows", []device.Region{{Buffer: buffer, Bytes: 3}, {Buffer: buffer, Offset: 7, Bytes: 3, Rows: 5, Stride: 4}}, nil},
	} {
		o := b.operand(test.regions...)
		b.must(Load(b.ctx, o))
		switch {
		case (o.staging == nil) != (test.pieces != nil):
			t.Errorf("%s: staged: %v", test.name, o.staging != nil)
		case test.pieces != nil && len(test.pieces) != len(o.Pieces()):
			t.Errorf("%s: %d pieces, want %d", test.name, len(o.Pieces()), len(test.pieces))
		}
		for i, at := range test.pieces {
			if p := o.Pieces()[i]; &p[0] != &slice[at] || cap(p) != len(p) {
				t.Errorf("%s: piece %d is not at %d, or longer than it should be", test.name, i, at)
			}
		}
		o.Free()
	}
}

// A block shares the staging memory of the whole.
func TestWithin(t *testing.T) {
	fake := devicetest.NewFake(t, devicetest.FakeConfig{StagingMemory: 40})
	b := newBench(t, fake)
	large, data := b.filled(40)
	small, part := b.filled(10)
	whole, block := b.operand(device.Whole(large)), b.operand(device.Whole(small))
	block.Within(whole, 20)
	whole.Read, block.Read = true, true
	b.must(Load(b.ctx, whole, block))
	copy(data[20:], part)
	if !bytes.Equal(memory(whole), data) || !bytes.Equal(memory(block), part) || &whole.Memory()[20] != &block.Memory()[0] {
		t.Errorf("whole %v and block %v, want %v", memory(whole), memory(block), data)
	}
	result := fill(whole, 100)
	b.must(block.Store(b.ctx, 10))
	b.want(small, result[20:30])
	b.must(whole.Store(b.ctx, 40))
	b.want(large, result)
	block.Free()
	whole.Free()
	if s := fake.Stats(); s.Stagings != 0 || s.StagingMemoryMost != 40 {
		t.Errorf("%d stagings are left, %d bytes at the most; want 0 and 40", s.Stagings, s.StagingMemoryMost)
	}
}

// If only one of two operands is staged, they share no memory.
func TestWithinMapped(t *testing.T) {
	b := newBench(t, host.Device{})
	buffer, data := b.filled(40)
	row := device.Region{Buffer: buffer, Offset: 20, Bytes: 10}
	rows := device.Region{Buffer: buffer, Offset: 0, Bytes: 5, Rows: 3, Stride: 6}
	for _, test := range []struct{ whole, block device.Region }{{rows, row}, {row, rows}} {
		whole, block := b.operand(test.whole), b.operand(test.block)
		block.Within(whole, 5)
		whole.Read, block.Read = true, true
		b.must(Load(b.ctx, whole, block))
		for _, o := range []*Operand{whole, block} {
			var want []byte
			for _, at := range bytesOf(o.regions) {
				want = append(want, data[at])
			}
			if got := memory(o); !bytes.Equal(got, want) {
				t.Errorf("loaded %v, want %v", got, want)
			}
		}
		block.Free()
		whole.Free()
	}
}

func TestClashes(t *testing.T) {
	b := newBench(t, host.Device{})
	buffer, other := host.Of(make([]byte, 100)), host.Of(make([]byte, 100))
	at := func(offset, bytes int) device.Region {
		return device.Region{Buffer: buffer, Offset: offset, Bytes: bytes}
	}
	rows := func(offset, bytes, rows, stride int) device.Region {
		return device.Region{Buffer: buffer, Offset: offset, Bytes: bytes, Rows: rows, Stride: stride}
	}
	const block = 8 // the second one of 4 bytes, and the third
	for _, test := range []struct {
		name           string
		whole, part    device.Region
		clashes, apart bool // as a block, and if it is none
	}{
		{"other bytes", at(0, 40), at(40, 10), false, false},
		{"another buffer", at(0, 40), device.Region{Buffer: other, Bytes: 40}, false, false},
		{"the block", at(10, 40), at(18, 4), false, true},
		{"the block and the next", at(10, 40), at(18, 8), false, true},
		{"the block before", at(10, 40), at(14, 4), true, true},
		{"a byte off", at(10, 40), at(19, 4), true, true},
		{"the end", at(10, 40), at(49, 4), true, true},
		{"no bytes", at(10, 40), at(18, 0), false, false},
		{"the block of rows", rows(0, 4, 5, 10), at(20, 4), false, true},
		{"the block of rows, as a row", rows(0, 4, 5, 10), rows(20, 4, 1, 77), false, true},
		{"two rows", rows(0, 4, 5, 10), rows(20, 4, 2, 10), false, true},
		{"two rows, in another way", rows(0, 4, 5, 10), rows(20, 4, 2, 20), true, true},
		{"the gap between rows", rows(0, 4, 5, 10), at(24, 6), false, false},
		{"the block, over two rows", rows(0, 3, 5, 10), rows(22, 1, 2, 8), true, true},
	} {
		whole, part := b.operand(test.whole), b.operand(test.part)
		if got := part.Clashes(whole); got != test.apart {
			t.Errorf("%s: clashes: %v, want %v", test.name, got, test.apart)
		}
		part.Within(whole, block)
		if a, b := part.Clashes(whole), whole.Clashes(part); a != test.clashes || b != test.clashes {
			t.Errorf("%s, as block: clashes: %v and %v, want %v", test.name, a, b, test.clashes)
		}
	}
}

func TestTangled(t *testing.T) {
	b := newBench(t, host.Device{})
	buffer, other := host.Of(make([]byte, 100)), host.Of(make([]byte, 100))
	for _, test := range []struct {
		regions []device.Region
		want    bool
	}{
		{nil, false},
		{[]device.Region{device.Whole(buffer)}, false},
		{[]device.Region{device.Whole(buffer), device.Whole(other)}, false},
		{[]device.Region{device.Whole(other), device.Whole(buffer), device.Whole(other)}, true},
		{[]device.Region{{Buffer: buffer, Bytes: 5, Rows: 4, Stride: 10}, {Buffer: buffer, Offset: 5, Bytes: 5, Rows: 4, Stride: 10}}, false},
		{[]device.Region{{Buffer: buffer, Bytes: 5, Rows: 4, Stride: 10}, {Buffer: buffer, Offset: 34, Bytes: 1}}, true},
		{[]device.Region{{Buffer: buffer, Bytes: 5}, {Buffer: buffer, Offset: 3, Bytes: 0}}, false},
	} {
		if got := b.operand(test.regions...).Tangled(); got != test.want {
			t.Errorf("%+v: tangled: %v, want %v", test.regions, got, test.want)
		}
	}
}

// Load checks regions that are only written, and distinguishes errors of the arguments from failures.
func TestLoadLooksAtAll(t *testing.T) {
	for name, test := range map[string]struct {
		spoil   func(b *bench, buffer device.Buffer)
		want    error
		misused bool
	}{
		"freed":  {func(b *bench, buffer device.Buffer) { b.must(buffer.Free()) }, device.ErrFreed, true},
		"closed": {func(b *bench, _ device.Buffer) { b.must(b.stream.Close()) }, device.ErrClosed, true},
		"no memory": {func(b *bench, _ device.Buffer) {
			st, err := b.dev.Stage(b.ctx, 60)
			b.must(err)
			b.Cleanup(func() { st.Free() })
		}, device.ErrNoMemory, false},
		"broken": {func(b *bench, _ device.Buffer) { b.dev.(devicetest.Failer).FailCopy(1, errBroken) }, errBroken, false},
		"broken before, by a mistake": {func(b *bench, buffer device.Buffer) {
			b.dev.(devicetest.Failer).FailCopy(1, device.ErrFreed)
			b.must(b.stream.Copy(device.Region{Buffer: buffer, Bytes: 5}, device.Region{Buffer: buffer, Offset: 5, Bytes: 5}))
			if b.stream.Wait(b.ctx) == nil {
				b.Error("the copy has not failed")
			}
		}, device.ErrFreed, false},
	} {
		for _, read := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/read=%v", name, read), func(t *testing.T) {
				fake := devicetest.NewFake(t, devicetest.FakeConfig{StagingMemory: 100})
				b := newBench(t, fake)
				buffer, _ := b.filled(50)
				o := b.operand(device.Whole(buffer))
				o.Read = read
				test.spoil(b, buffer)
				err := Load(b.ctx, o)
				o.Free()
				if !errors.Is(err, test.want) || Misused(err) != test.misused {
					t.Errorf("load: %v, misused: %v; want %v, %v", err, Misused(err), test.want, test.misused)
				}
			})
		}
	}
}

// New returns the errors of regions that need no device.
func TestNew(t *testing.T) {
	b := newBench(t, devicetest.NewFake(t, devicetest.FakeConfig{}))
	buffer, _ := b.filled(50)
	foreign := host.Of(make([]byte, 50))
	for name, r := range map[string]device.Region{
		"no buffer":    {Bytes: 5},
		"out of range": {Buffer: buffer, Offset: 1, Bytes: 50},
		"foreign":      device.Whole(foreign),
	} {
		o, err := New(b.stream, []device.Region{device.Whole(buffer), r})
		if err == nil || o == nil || o.Len() != 0 {
			t.Errorf("%s: %v, an operand of %d bytes", name, err, o.Len())
		}
		o.Free()
	}
}

// After a cancelled Load or Store, the device does the queued work and then frees the memory.
func TestCancelled(t *testing.T) {
	fake := devicetest.NewFake(t, devicetest.FakeConfig{})
	b := newBench(t, fake)
	buffer, data := b.filled(50)
	enough := errors.New("enough")
	ended, cancel := context.WithCancelCause(b.ctx)
	defer cancel(nil)
	for _, store := range []bool{false, true} {
		o := b.operand(device.Whole(buffer))
		o.Read = true
		if store {
			b.must(Load(b.ctx, o))
			data = fill(o, 3)
		}
		release := fake.Hold()
		var err error
		if store {
			cancel(enough)
			err = o.Store(ended, 50)
		} else {
			var short context.Context
			short, stop := context.WithTimeoutCause(b.ctx, time.Millisecond, enough)
			err = Load(short, o)
			stop()
		}
		o.Free()
		if s := fake.Stats(); !errors.Is(err, enough) || s.Stagings != 0 || s.StagingMemory != 50 {
			t.Errorf("store: %v: %v; %d stagings, %d bytes in use; want %v, 0, 50", store, err, s.Stagings, s.StagingMemory, enough)
		}
		release()
		b.must(b.stream.Wait(b.ctx))
		if s := fake.Stats(); s.StagingMemory != 0 {
			t.Errorf("store: %v: %d bytes are in use at the end", store, s.StagingMemory)
		}
		b.want(buffer, data)
	}
}

// Several calls in progress on one stream.
type busyStream struct {
	device.Stream
	then func()
}

func (s busyStream) ReceiveInto(src device.Staging, at int, dst ...device.Region) error {
	err := s.Stream.ReceiveInto(src, at, dst...)
	s.then()
	return err
}

// Store succeeds if its own copy does, also if later work fails.
func TestStoreBeforeFailure(t *testing.T) {
	fake := devicetest.NewFake(t, devicetest.FakeConfig{})
	b := newBench(t, fake)
	buffer, _ := b.filled(50)
	stream := b.stream
	b.stream = busyStream{stream, func() {
		fake.FailCopy(1, errBroken)
		b.must(stream.Copy(device.Region{Buffer: buffer, Bytes: 5}, device.Region{Buffer: buffer, Offset: 5, Bytes: 5}))
		if err := stream.Wait(b.ctx); !errors.Is(err, errBroken) {
			t.Errorf("wait: %v, want %v", err, errBroken)
		}
	}}
	o := b.operand(device.Whole(buffer))
	defer o.Free()
	b.must(Load(b.ctx, o))
	want := fill(o, 9)
	b.must(o.Store(b.ctx, 50))
	b.want(buffer, want)
}
