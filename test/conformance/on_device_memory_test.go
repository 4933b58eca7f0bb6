package conformance

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/device/devicetest"
	"github.com/nexar-go/nexar/device/host"
	"github.com/nexar-go/nexar/test/worldtest"
)

// ints returns a vector of int32 as bytes.
func ints(x ...int32) (b []byte) {
	for _, v := range x {
		b = binary.NativeEndian.AppendUint32(b, uint32(v))
	}
	return b
}

// ramp32 returns n consecutive integers, beginning with first.
func ramp32(first, n int) []byte {
	x := make([]int32, n)
	for i := range x {
		x[i] = int32(first + i)
	}
	return ints(x...)
}

// newBuffer returns a buffer with a copy of b until the end of the test.
func newBuffer(t testing.TB, dev device.Device, b []byte) device.Buffer {
	t.Helper()
	buffer, err := dev.Alloc(t.Context(), len(b))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { buffer.Free() })
	if err := dev.CopyIn(t.Context(), device.Whole(buffer), b); err != nil {
		t.Fatal(err)
	}
	return buffer
}

// contents returns a copy of a buffer.
func contents(t testing.TB, b device.Buffer) []byte {
	t.Helper()
	got := make([]byte, b.Len())
	if err := b.Device().CopyOut(t.Context(), got, device.Whole(b)); err != nil {
		t.Fatal(err)
	}
	return got
}

// A deviceCall is a collective on regions of one of three ranks, for vectors of 8
// elements or blocks of 4.
type deviceCall struct {
	name     string
	dst, src int // elements on each rank; src is 0 if there is one region
	f        func(ctx context.Context, d nexar.DeviceComm, dst, src device.Region) error

	// On rank 1: bytes from and to the device, and of staging memory.
	out, in, memory int
}

const i32 = device.Int32

// deviceCalls returns all deviceCalls, with the given root.
func deviceCalls(root int) []deviceCall {
	calls := []deviceCall{
		{"broadcast", 8, 0, func(ctx context.Context, d nexar.DeviceComm, dst, _ device.Region) error {
			return d.Broadcast(ctx, i32, dst, root)
		}, 0, 32, 32},
		{"reduce", 8, 0, func(ctx context.Context, d nexar.DeviceComm, dst, _ device.Region) error {
			return d.Reduce(ctx, i32, dst, nexar.Sum, root)
		}, 32, 0, 32},
		{"all_reduce", 8, 0, func(ctx context.Context, d nexar.DeviceComm, dst, _ device.Region) error {
			return d.AllReduce(ctx, i32, dst, nexar.Sum)
		}, 32, 32, 32},
		{"gather", 12, 4, func(ctx context.Context, d nexar.DeviceComm, dst, src device.Region) error {
			return d.Gather(ctx, i32, dst, src, root)
		}, 16, 0, 16},
		{"all_gather", 12, 4, func(ctx context.Context, d nexar.DeviceComm, dst, src device.Region) error {
			return d.AllGather(ctx, i32, dst, src)
		}, 16, 48, 48},
		{"scatter", 4, 12, func(ctx context.Context, d nexar.DeviceComm, dst, src device.Region) error {
			return d.Scatter(ctx, i32, dst, src, root)
		}, 0, 16, 16},
		{"reduce_scatter", 4, 12, func(ctx context.Context, d nexar.DeviceComm, dst, src device.Region) error {
			return d.ReduceScatter(ctx, i32, dst, src, nexar.Sum)
		}, 48, 16, 48},
		{"all_to_all", 12, 12, func(ctx context.Context, d nexar.DeviceComm, dst, src device.Region) error {
			return d.AllToAll(ctx, i32, dst, src)
		}, 48, 48, 96},
		{"scan", 8, 0, func(ctx context.Context, d nexar.DeviceComm, dst, _ device.Region) error {
			return d.Scan(ctx, i32, dst, nexar.Sum)
		}, 32, 32, 32},
		{"exclusive_scan", 8, 0, func(ctx context.Context, d nexar.DeviceComm, dst, _ device.Region) error {
			return d.ExclusiveScan(ctx, i32, dst, nexar.Sum)
		}, 32, 32, 32},
	}
	if root != 1 {
		return calls
	}
	rooted := map[string][3]int{"broadcast": {32, 0, 32}, "reduce": {32, 32, 32}, "gather": {16, 48, 48}, "scatter": {48, 16, 48}}
	for i := range calls {
		if c := &calls[i]; rooted[c.name] != [3]int{} {
			c.out, c.in, c.memory = rooted[c.name][0], rooted[c.name][1], rooted[c.name][2]
		}
	}
	return calls
}

// on makes the call with buffers on the device of s.
func (call deviceCall) on(t testing.TB, c *nexar.Comm, s spot) error {
	dst := device.Whole(newBuffer(t, s.dev, ramp32(100*c.Rank(), call.dst)))
	src := device.Region{}
	if call.src > 0 {
		src = device.Whole(newBuffer(t, s.dev, ramp32(100*c.Rank(), call.src)))
	}
	return call.f(t.Context(), c.WithStream(s.stream), dst, src)
}

// TestDeviceCopies: a message is copied once from the device and once to it, with no more
// staging memory than documented.
func TestDeviceCopies(t *testing.T) {
	const ranks = 3
	comms := worldtest.Mem().Cluster(t, ranks, nexar.Config{})
	for root := range 2 {
		for _, call := range deviceCalls(root) {
			fakes := make([]*devicetest.Fake, ranks)
			spots := make([]spot, ranks)
			for rank := range fakes {
				fakes[rank] = newFake(t, devicetest.FakeConfig{})
				spots[rank] = newSpot(t, fakes[rank])
			}
			worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error { return call.on(t, c, spots[rank]) })
			s := fakes[1].Stats()
			in := int(s.BytesIn) - 4*(call.dst+call.src) // copied by CopyIn
			if got, want := [3]int{int(s.BytesOut), in, s.StagingMemoryMost}, [3]int{call.out, call.in, call.memory}; got != want {
				t.Errorf("%s, root %d: bytes out, in and of staging memory: %v, want %v", call.name, root, got, want)
			}
			if s.Stagings != 0 {
				t.Errorf("%s, root %d: %d stagings were not freed", call.name, root, s.Stagings)
			}
		}
	}
}

// A countingStream counts the queued operations.
type countingStream struct {
	device.Stream
	copies *atomic.Int64
}

func (w countingStream) StageSend(dst device.Staging, at int, src ...device.Region) error {
	w.copies.Add(1)
	return w.Stream.StageSend(dst, at, src...)
}

func (w countingStream) ReceiveInto(src device.Staging, at int, dst ...device.Region) error {
	w.copies.Add(1)
	return w.Stream.ReceiveInto(src, at, dst...)
}

// TestMappedIsNotCopied: memory that the host can access is used in place, at any
// address. Only rows with gaps are copied.
func TestMappedIsNotCopied(t *testing.T) {
	const ranks = 3
	comms := worldtest.Mem().Cluster(t, ranks, nexar.Config{})
	var copies atomic.Int64
	spots := make([]spot, ranks)
	for rank := range spots {
		spots[rank] = newSpot(t, host.Device{})
		spots[rank].stream = countingStream{spots[rank].stream, &copies}
	}
	for _, call := range deviceCalls(0) {
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error { return call.on(t, c, spots[rank]) })
	}
	results := make([][]byte, ranks)
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		all := append([]byte{1, 2, 3}, ramp32(10*rank, 40)...)
		results[rank] = all[3:]
		r := device.Region{Buffer: host.Of(all), Offset: 3, Bytes: 160}
		if err := c.WithStream(spots[rank].stream).AllReduce(t.Context(), i32, r, nexar.Max); err != nil {
			return err
		}
		return sendAround(t.Context(), c, c.WithStream(spots[rank].stream), r)
	})
	if n := copies.Load(); n != 0 {
		t.Errorf("%d copies, want none", n)
	}
	for rank, got := range results {
		if want := ramp32(20, 40); !slices.Equal(got, want) {
			t.Errorf("rank %d: %v, want %v", rank, got, want)
		}
	}
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		r := device.Region{Buffer: host.Of(results[rank]), Bytes: 4, Rows: 5, Stride: 8}
		return c.WithStream(spots[rank].stream).AllReduce(t.Context(), i32, r, nexar.Sum)
	})
	if n := copies.Load(); n != 2*ranks {
		t.Errorf("%d copies of rows, want %d", n, 2*ranks)
	}
	for rank, got := range results {
		if want := ints(60, 21, 66, 23, 72, 25); !slices.Equal(got[:len(want)], want) {
			t.Errorf("rank %d, rows: %v, want %v", rank, got[:len(want)], want)
		}
	}
}

// sendAround makes each rank send a region, in two parts, to the next rank, and receive
// as much into other memory.
func sendAround(ctx context.Context, c *nexar.Comm, d nexar.DeviceComm, r device.Region) error {
	ctx, cancel := context.WithTimeout(ctx, worldtest.Patience)
	defer cancel()
	n, rank := c.Size(), c.Rank()
	sent := make(chan error, 1)
	go func() {
		first, second := r, r
		first.Bytes = 60
		second.Offset, second.Bytes = r.Offset+60, r.Bytes-60
		sent <- d.Send(ctx, i32, (rank+1)%n, 0, first, second)
	}()
	got := make([]byte, r.Bytes)
	status, err := d.Recv(ctx, i32, (rank+n-1)%n, 0, device.Whole(host.Of(got[:20])), device.Whole(host.Of(got[20:])))
	if err == nil && (status.Count != r.Bytes/4 || !slices.Equal(got, ramp32(20, 40))) {
		err = fmt.Errorf("received %d elements: %v", status.Count, got)
	}
	if e := <-sent; err == nil {
		err = e
	}
	return err
}
