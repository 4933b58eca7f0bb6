package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/device/devicetest"
	"github.com/nexar-go/nexar/device/host"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestMessagesOnDevice: messages go from device to device, and between devices and
// slices, from several regions to several others.
func TestMessagesOnDevice(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.QUIC()) {
		comms := m.Cluster(t, 2, nexar.Config{})
		spots := map[string]spot{
			"fake":   newSpot(t, newFake(t, devicetest.FakeConfig{})),
			"host":   newSpot(t, host.Device{}),
			"slices": {},
		}
		for from, sender := range spots {
			for to, receiver := range spots {
				t.Run(fmt.Sprintf("%s/%s to %s", m.Name, from, to), func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
					defer cancel()
					for i, count := range []int{0, 1, 1000, 100_000} {
						worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
							if rank == 0 {
								return sendFrom(ctx, t, c, sender, 1, nexar.Tag(i), count)
							}
							return recvAt(ctx, t, c, receiver, 0, nexar.Tag(i), count)
						})
					}
				})
			}
		}
	}
}

// parted returns n bytes of a buffer as three regions, one of them with rows.
func parted(buffer device.Buffer, n int) []device.Region {
	third := n / 12 * 4
	return []device.Region{
		{Buffer: buffer, Offset: 5, Bytes: third},
		{Buffer: buffer, Offset: third + 9, Bytes: min(4, third), Rows: third / 4, Stride: 5},
		{Buffer: buffer, Offset: third*3 + 9, Bytes: n - 2*third},
	}
}

func partedLen(n int) int { return n/12*4*2 + n + 9 }

// sendFrom sends count consecutive elements, beginning with 7.
func sendFrom(ctx context.Context, t testing.TB, c *nexar.Comm, s spot, to int, tag nexar.Tag, count int) error {
	if s.dev == nil {
		x := make([]int32, count)
		copy(bytesOf(x), ramp32(7, count))
		return nexar.Send(ctx, c, x, to, tag)
	}
	data := ramp32(7, count)
	all := make([]byte, partedLen(len(data)))
	scattered(host.Of(all), len(data), func(place []byte) { data = data[copy(place, data):] })
	buffer := newBuffer(t, s.dev, all)
	return c.WithStream(s.stream).Send(ctx, i32, to, tag, parted(buffer, 4*count)...)
}

// scattered calls f for each row of the regions of parted of a host's buffer.
func scattered(buffer device.Buffer, n int, f func(place []byte)) {
	mem, _ := host.Device{}.Map(buffer)
	for _, r := range parted(buffer, n) {
		for row := range r.RowCount() {
			f(mem[r.RowAt(row):][:r.Bytes])
		}
	}
}

// recvAt receives the message of sendFrom, with room for 24 more elements.
func recvAt(ctx context.Context, t testing.TB, c *nexar.Comm, s spot, from int, tag nexar.Tag, count int) error {
	const more = 24
	if s.dev == nil {
		x := make([]int32, count+more)
		status, err := nexar.Recv(ctx, c, x, from, tag)
		if err == nil && (status.Count != count || !slices.Equal(bytesOf(x)[:4*count], ramp32(7, count))) {
			err = fmt.Errorf("received %d elements, want %d: %v …", status.Count, count, x[:min(len(x), 9)])
		}
		return err
	}
	n := 4 * (count + more)
	before := slices.Repeat([]byte{guardByte}, partedLen(n))
	buffer := newBuffer(t, s.dev, before)
	status, err := c.WithStream(s.stream).Recv(ctx, i32, from, tag, parted(buffer, n)...)
	if err != nil {
		return err
	}
	if want := (nexar.Status{Source: from, Tag: tag, Count: count}); status != want {
		return fmt.Errorf("status %+v, want %+v", status, want)
	}
	want := host.Of(slices.Clone(before))
	data := ramp32(7, count)
	scattered(want, n, func(place []byte) { data = data[copy(place, data):] })
	if !slices.Equal(contents(t, buffer), contents(t, want)) {
		return fmt.Errorf("%d elements are not where they should be, or others were written", count)
	}
	return nil
}

// TestShortMessageOnDevice: the part of a region beyond the message is neither read nor
// written. Only the bytes of the message are copied.
func TestShortMessageOnDevice(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
	defer cancel()
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{})
	fake := newFake(t, devicetest.FakeConfig{})
	s := newSpot(t, fake)
	buffer := newBuffer(t, fake, ramp32(0, 1000))
	before := fake.Stats()
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		if rank == 0 {
			return nexar.Send(ctx, c, []int32{-5, -6, -7}, 1, 3)
		}
		_, err := c.WithStream(s.stream).Recv(ctx, i32, nexar.AnyRank, nexar.AnyTag, device.Whole(buffer))
		return err
	})
	after := fake.Stats()
	if out, in := after.BytesOut-before.BytesOut, after.BytesIn-before.BytesIn; out != 0 || in != 12 {
		t.Errorf("%d bytes were copied from the device and %d to it, want 0 and 12", out, in)
	}
	if got, want := contents(t, buffer), append(ints(-5, -6, -7), ramp32(3, 997)...); !slices.Equal(got, want) {
		t.Errorf("the buffer has %v …, want %v …", got[:20], want[:20])
	}
}

// TestMessageOnDeviceToItself: a rank sends to itself, and messages without regions have
// no elements.
func TestMessageOnDeviceToItself(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
	defer cancel()
	comms := worldtest.Mem().Cluster(t, 1, nexar.Config{})
	s := newSpot(t, newFake(t, devicetest.FakeConfig{}))
	src, dst := newBuffer(t, s.dev, ramp32(4, 10)), newBuffer(t, s.dev, ramp32(0, 10))
	d := comms[0].WithStream(s.stream)
	if err := errors.Join(d.Send(ctx, i32, 0, 1), d.Send(ctx, i32, 0, 2, device.Whole(src))); err != nil {
		t.Fatal(err)
	}
	for tag, want := range []nexar.Status{1: {Source: 0, Tag: 1}, 2: {Source: 0, Tag: 2, Count: 10}} {
		if tag == 0 {
			continue
		}
		if got, err := d.Recv(ctx, i32, nexar.AnyRank, nexar.Tag(tag), device.Whole(dst)); err != nil || got != want {
			t.Errorf("recv: %+v, %v; want %+v", got, err, want)
		}
	}
	if got, want := contents(t, dst), ramp32(4, 10); !slices.Equal(got, want) {
		t.Errorf("received %v, want %v", got, want)
	}
}

// TestTruncatedMessageOnDevice: a message that does not fit is lost, as with slices.
func TestTruncatedMessageOnDevice(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
	defer cancel()
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{})
	s := newSpot(t, newFake(t, devicetest.FakeConfig{}))
	buffer := newBuffer(t, s.dev, ramp32(0, 10))
	for want, send := range map[error]func(ctx context.Context, c *nexar.Comm) error{
		nexar.ErrTruncated:    func(ctx context.Context, c *nexar.Comm) error { return nexar.Send(ctx, c, make([]int32, 11), 1, 0) },
		nexar.ErrTypeMismatch: func(ctx context.Context, c *nexar.Comm) error { return nexar.Send(ctx, c, make([]uint32, 2), 1, 0) },
	} {
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			if rank == 0 {
				return send(ctx, c)
			}
			if _, err := c.WithStream(s.stream).Recv(ctx, i32, 0, 0, device.Whole(buffer)); !errors.Is(err, want) {
				return fmt.Errorf("recv: %v, want %v", err, want)
			}
			return nil
		})
	}
	if got := contents(t, buffer); !slices.Equal(got, ramp32(0, 10)) {
		t.Errorf("the buffer was written: %v", got)
	}
	worldtest.CheckWorks(t, comms)
}
