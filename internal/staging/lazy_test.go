package staging

import (
	"context"
	"slices"
	"testing"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/device/host"
)

// A lazyStream does its work in Wait, as a device may.
type lazyStream struct {
	device.Stream
	queue []func() error
}

func (s *lazyStream) Copy(dst, src device.Region) error {
	s.queue = append(s.queue, func() error { return s.Stream.Copy(dst, src) })
	return nil
}

func (s *lazyStream) Wait(ctx context.Context) error {
	for _, work := range s.queue {
		if err := work(); err != nil {
			return err
		}
	}
	s.queue = nil
	return s.Stream.Wait(ctx)
}

// Memory that the host can access is used only after the work of the stream, which may write the
// input or read the result.
func TestMappedMemoryWaitsForStream(t *testing.T) {
	b := newBench(t, host.Device{})
	lazy := &lazyStream{Stream: b.stream}
	b.stream = lazy
	first, second, third := []byte{1, 2, 3, 4}, make([]byte, 4), make([]byte, 4)
	must := func(dst, src []byte) {
		t.Helper()
		b.must(lazy.Copy(device.Whole(host.Of(dst)), device.Whole(host.Of(src))))
	}
	must(second, first)
	src := b.operand(device.Whole(host.Of(second)))
	src.Read = true
	b.must(Load(b.ctx, src))
	if got := src.Memory(); !slices.Equal(got, first) {
		t.Errorf("read %v, want %v", got, first)
	}

	must(third, first)
	dst := b.operand(device.Whole(host.Of(first)))
	b.must(Load(b.ctx, dst))
	fill(dst, 50)
	b.must(lazy.Wait(b.ctx))
	if want := []byte{1, 2, 3, 4}; !slices.Equal(third, want) {
		t.Errorf("what was copied before the buffer was written is %v, want %v", third, want)
	}
}
