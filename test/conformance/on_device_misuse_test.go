package conformance

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/device/devicetest"
	"github.com/nexar-go/nexar/device/host"
	"github.com/nexar-go/nexar/test/worldtest"
)

// A misuse is a call with an invalid argument.
type misuse struct {
	name string
	err  error
	want error
	text string
}

func (m misuse) check(t *testing.T) {
	t.Helper()
	if !is(m.err, m.want) || !strings.HasPrefix(m.err.Error(), "nexar: "+m.name+": ") || !strings.Contains(m.err.Error(), m.text) {
		t.Errorf("%s: %v, want %v and the text %q", m.name, m.err, m.want, m.text)
	}
}

// TestInvalidDeviceArguments: an invalid argument is an error that names it and the
// reason, at once and on this rank alone. The communicator goes on.
func TestInvalidDeviceArguments(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 3, nexar.Config{})
	s := newSpot(t, newFake(t, devicetest.FakeConfig{}))
	ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
	defer cancel()
	d := comms[0].WithStream(s.stream)
	buffer := newBuffer(t, s.dev, ramp32(0, 12))
	at := func(offset, bytes int) device.Region {
		return device.Region{Buffer: buffer, Offset: offset, Bytes: bytes}
	}
	whole := at(0, 48)
	for _, m := range []misuse{
		{"broadcast", d.Broadcast(ctx, 0, whole, 0), nexar.ErrInvalidType, "no device.Type has the number 0"},
		{"all_reduce", d.AllReduce(ctx, 99, whole, nexar.Sum), nexar.ErrInvalidType, "no device.Type has the number 99"},
		{"all_gather", d.AllGather(ctx, 17, whole, at(0, 16)), nexar.ErrInvalidType, "no device.Type has the number 17"},
		{"send", d.Send(ctx, 255, 1, 0, whole), nexar.ErrInvalidType, "no device.Type has the number 255"},
		{"recv", recvOn(ctx, d, 0, whole), nexar.ErrInvalidType, "no device.Type has the number 0"},
		{"scan", d.Scan(ctx, i32, at(0, 6), nexar.Sum), nexar.ErrInvalidLength, "6 bytes are not a multiple of the size of int32"},
		{"reduce_scatter", d.ReduceScatter(ctx, i32, at(0, 2), at(8, 6), nexar.Sum), nexar.ErrInvalidLength, "2 bytes are not a multiple"},
		{"send", d.Send(ctx, device.Float64, 1, 0, at(0, 4), at(4, 8)), nexar.ErrInvalidLength, "12 bytes are not a multiple of the size of float64"},
		{"all_gather", d.AllGather(ctx, i32, at(0, 40), at(40, 8)), nexar.ErrInvalidLength, "dst has 10 elements, not 6"},
		{"scatter", d.Scatter(ctx, i32, at(40, 8), at(0, 40), 0), nexar.ErrInvalidLength, "src has 10 elements, not 6"},
		{"all_to_all", d.AllToAll(ctx, i32, at(0, 16), at(16, 16)), nexar.ErrInvalidLength, "not a multiple of 3 ranks"},
		{"reduce", d.Reduce(ctx, i32, whole, nexar.Sum, 3), nexar.ErrInvalidRank, "root 3 of 3 ranks"},
		{"gather", d.Gather(ctx, i32, whole, at(0, 16), -1), nexar.ErrInvalidRank, "root -1 of 3 ranks"},
		{"exclusive_scan", d.ExclusiveScan(ctx, device.Float32, whole, nexar.BitAnd), nexar.ErrInvalidOp, "bit_and is not defined for float32"},
		{"send", d.Send(ctx, i32, 3, 0, whole), nexar.ErrInvalidRank, "to rank 3 of 3 ranks"},
		{"send", d.Send(ctx, i32, 1, -1, whole), nexar.ErrInvalidTag, "invalid tag: -1"},
		{"all_to_all", d.AllToAll(ctx, i32, at(0, 24), at(12, 24)), nexar.ErrOverlap, "dst and src share memory"},
		{"all_to_all", d.AllToAll(ctx, i32, whole, whole), nexar.ErrOverlap, "dst and src share memory"},
		{"all_gather", d.AllGather(ctx, i32, whole, at(16, 16)), nexar.ErrOverlap, "dst and src share memory"}, // block 1
		{"gather", d.Gather(ctx, i32, whole, at(4, 16), 0), nexar.ErrOverlap, "dst and src share memory"},
		{"scatter", d.Scatter(ctx, i32, at(32, 16), whole, 0), nexar.ErrOverlap, "dst and src share memory"},
		{"reduce_scatter", comms[1].WithStream(s.stream).ReduceScatter(ctx, i32, at(0, 16), whole, nexar.Sum), nexar.ErrOverlap, "dst and src share memory"},
		{"recv", recvOn(ctx, d, i32, at(0, 12), at(20, 8), at(8, 8)), nexar.ErrOverlap, "two regions share memory"},
	} {
		m.check(t)
	}
	worldtest.CheckWorks(t, comms)
}

// TestInvalidRegions: a region that the device refuses is a DeviceError, at once and on
// this rank alone, whether the call reads or writes it.
func TestInvalidRegions(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 3, nexar.Config{})
	fake := newFake(t, devicetest.FakeConfig{})
	s, closed := newSpot(t, fake), newSpot(t, fake)
	ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
	defer cancel()
	d := comms[0].WithStream(s.stream)
	buffer := newBuffer(t, fake, ramp32(0, 12))
	at := func(offset, bytes int) device.Region {
		return device.Region{Buffer: buffer, Offset: offset, Bytes: bytes}
	}
	whole, outside, none := at(0, 48), at(4, 48), device.Region{}
	foreign := device.Whole(newBuffer(t, newFake(t, devicetest.FakeConfig{Name: "stranger"}), ramp32(0, 12)))
	freed := freedRegion(t, fake)
	if err := closed.stream.Close(); err != nil {
		t.Fatal(err)
	}
	for _, m := range []misuse{
		{"all_reduce", d.AllReduce(ctx, i32, none, nexar.Sum), device.ErrNoBuffer, "device fake"},
		{"all_to_all", d.AllToAll(ctx, i32, whole, none), device.ErrNoBuffer, "device fake"},
		{"gather", d.Gather(ctx, i32, none, at(0, 16), 0), device.ErrNoBuffer, "device fake"},
		{"recv", recvOn(ctx, d, i32, whole, none), device.ErrNoBuffer, "device fake"},
		{"broadcast", d.Broadcast(ctx, i32, outside, 0), errRange, "not inside a buffer of 48 bytes"},
		{"all_gather", d.AllGather(ctx, i32, outside, at(0, 16)), errRange, "not inside a buffer of 48 bytes"},
		{"send", d.Send(ctx, i32, 1, 0, whole, outside), errRange, "not inside a buffer of 48 bytes"},
		{"all_reduce", d.AllReduce(ctx, i32, foreign, nexar.Sum), errForeign, "device fake: the buffer is of device stranger"},
		{"all_gather", d.AllGather(ctx, i32, whole, foreign), errForeign, "device fake: the buffer is of device stranger"},
		{"recv", recvOn(ctx, d, i32, foreign), errForeign, "device fake: the buffer is of device stranger"},
		{"all_reduce", d.AllReduce(ctx, i32, freed, nexar.Sum), device.ErrFreed, "buffer of 48 bytes"},
		{"broadcast", d.Broadcast(ctx, i32, freed, 1), device.ErrFreed, "buffer of 48 bytes"}, // only written
		{"all_to_all", d.AllToAll(ctx, i32, freed, whole), device.ErrFreed, "buffer of 48 bytes"},
		{"all_to_all", d.AllToAll(ctx, i32, whole, freed), device.ErrFreed, "buffer of 48 bytes"},
		{"send", d.Send(ctx, i32, 1, 0, whole, freed), device.ErrFreed, "buffer of 48 bytes"},
		{"recv", recvOn(ctx, d, i32, freed), device.ErrFreed, "buffer of 48 bytes"},
		{"all_reduce", comms[0].WithStream(closed.stream).AllReduce(ctx, i32, whole, nexar.Sum), device.ErrClosed, "stream"},
		{"broadcast", comms[0].WithStream(closed.stream).Broadcast(ctx, i32, whole, 2), device.ErrClosed, "stream"},
	} {
		m.check(t)
		if e, ok := errors.AsType[*nexar.DeviceError](m.err); !ok || e.Device != "fake" || !strings.Contains(m.err.Error(), "device fake") {
			t.Errorf("%s: %v is no DeviceError that names the device", m.name, m.err)
		}
	}
	worldtest.CheckWorks(t, comms)
}

// recvOn is a Recv from rank 1 that fails.
func recvOn(ctx context.Context, d nexar.DeviceComm, t device.Type, regions ...device.Region) error {
	_, err := d.Recv(ctx, t, 1, 0, regions...)
	return err
}

// errRange and errForeign stand for errors of these types.
var errRange, errForeign = errors.New("a RangeError"), errors.New("a ForeignError")

func is(err, want error) bool {
	ok := errors.Is(err, want)
	switch want {
	case errRange:
		_, ok = errors.AsType[*device.RangeError](err)
	case errForeign:
		_, ok = errors.AsType[*device.ForeignError](err)
	}
	return ok
}

// freedRegion is 48 bytes of a freed buffer.
func freedRegion(t testing.TB, dev device.Device) device.Region {
	t.Helper()
	b, err := dev.Alloc(t.Context(), 48)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Free(); err != nil {
		t.Fatal(err)
	}
	return device.Whole(b)
}

// TestMappedBuffersOverlap: two buffers of the same memory of the host overlap.
func TestMappedBuffersOverlap(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 3, nexar.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
	defer cancel()
	d := comms[0].WithStream(newSpot(t, host.Device{}).stream)
	mem := ramp32(0, 12)
	a, b := device.Whole(host.Of(mem)), device.Whole(host.Of(mem[16:32]))
	_, recv := d.Recv(ctx, i32, 1, 0, a, b)
	for name, err := range map[string]error{
		"all_to_all": d.AllToAll(ctx, i32, a, device.Whole(host.Of(mem))),
		"all_gather": d.AllGather(ctx, i32, a, b),
		"scatter":    d.Scatter(ctx, i32, b, a, 0),
		"recv":       recv,
		"freed":      d.AllReduce(ctx, i32, freedRegion(t, host.Device{}), nexar.Sum),
	} {
		if want := map[bool]error{true: device.ErrFreed, false: nexar.ErrOverlap}[name == "freed"]; !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	worldtest.CheckWorks(t, comms)
}

// TestEndedCommOnDevice: a call on a communicator that has ended fails before the device
// is used.
func TestEndedCommOnDevice(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{})
	fake := newFake(t, devicetest.FakeConfig{})
	s := newSpot(t, fake)
	buffer := newBuffer(t, fake, ramp32(0, 12))
	defer fake.Hold()()
	if err := comms[0].Close(); err != nil {
		t.Fatal(err)
	}
	ctx, d := t.Context(), comms[0].WithStream(s.stream)
	for name, f := range map[string]func(r device.Region) error{
		"all_reduce": func(r device.Region) error { return d.AllReduce(ctx, i32, r, nexar.Sum) },
		"all_gather": func(r device.Region) error {
			src := r
			src.Bytes = 24
			return d.AllGather(ctx, i32, r, src)
		},
	} {
		if err := f(device.Whole(buffer)); !errors.Is(err, nexar.ErrClosed) || err.Error() != "nexar: "+name+": closed by this rank" {
			t.Errorf("%s of a closed communicator: %v", name, err)
		}
	}
	if most := fake.Stats().StagingMemoryMost; most != 0 {
		t.Errorf("a closed communicator has used %d bytes of staging memory", most)
	}
	cause := errors.New("enough")
	ended, cancel := context.WithCancelCause(ctx)
	cancel(cause)
	if err := comms[1].WithStream(s.stream).AllReduce(ended, i32, device.Whole(buffer), nexar.Sum); !errors.Is(err, cause) || !errors.Is(err, context.Canceled) {
		t.Errorf("a call whose context has ended: %v, want %v", err, cause)
	}
}
