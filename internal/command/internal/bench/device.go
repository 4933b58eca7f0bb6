package bench

import (
	"context"
	"unsafe"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
)

// onDevice is a communicator for vectors on a device.
type onDevice struct {
	nexar.DeviceComm

	comm *nexar.Comm
}

// A deviceMemory has the vectors of a rank on a device. Only the operation is measured, not the copies
// of its vectors between the host and the device.
type deviceMemory struct {
	stream   device.Stream
	dst, src device.Buffer
}

// newDeviceMemory allocates memory for numbers of elements.
func newDeviceMemory(ctx context.Context, s device.Stream, dst, src int) (*deviceMemory, error) {
	m := &deviceMemory{stream: s}
	var err error
	if m.dst, err = s.Device().Alloc(ctx, elem*dst); err != nil {
		return nil, err
	}
	if m.src, err = s.Device().Alloc(ctx, elem*src); err != nil {
		_ = m.dst.Free()
		return nil, err
	}
	return m, nil
}

func (m *deviceMemory) free() error {
	err := m.dst.Free()
	if e := m.src.Free(); err == nil {
		err = e
	}
	return err
}

// in copies vectors to the device, and returns their regions there.
func (m *deviceMemory) in(ctx context.Context, dst, src []float32) (to, from device.Region, err error) {
	to, from = device.Region{Buffer: m.dst, Bytes: elem * len(dst)}, device.Region{Buffer: m.src, Bytes: elem * len(src)}
	if err = m.stream.Device().CopyIn(ctx, to, bytesOf(dst)); err == nil {
		err = m.stream.Device().CopyIn(ctx, from, bytesOf(src))
	}
	return to, from, err
}

// out copies a region to a vector of the host.
func (m *deviceMemory) out(ctx context.Context, dst []float32, r device.Region) error {
	return m.stream.Device().CopyOut(ctx, bytesOf(dst), r)
}

func bytesOf(v []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), elem*len(v))
}

func deviceAllReduce(ctx context.Context, c onDevice, dst, _ device.Region) error {
	return c.AllReduce(ctx, device.Float32, dst, nexar.Sum)
}

func deviceBroadcast(ctx context.Context, c onDevice, dst, _ device.Region) error {
	return c.Broadcast(ctx, device.Float32, dst, root)
}

func deviceReduce(ctx context.Context, c onDevice, dst, _ device.Region) error {
	return c.Reduce(ctx, device.Float32, dst, nexar.Sum, root)
}

func deviceScan(ctx context.Context, c onDevice, dst, _ device.Region) error {
	return c.Scan(ctx, device.Float32, dst, nexar.Sum)
}

func deviceExclusiveScan(ctx context.Context, c onDevice, dst, _ device.Region) error {
	return c.ExclusiveScan(ctx, device.Float32, dst, nexar.Sum)
}

func deviceAllGather(ctx context.Context, c onDevice, dst, src device.Region) error {
	return c.AllGather(ctx, device.Float32, dst, src)
}

func deviceReduceScatter(ctx context.Context, c onDevice, dst, src device.Region) error {
	return c.ReduceScatter(ctx, device.Float32, dst, src, nexar.Sum)
}

func deviceGather(ctx context.Context, c onDevice, dst, src device.Region) error {
	return c.Gather(ctx, device.Float32, dst, src, root)
}

func deviceScatter(ctx context.Context, c onDevice, dst, src device.Region) error {
	return c.Scatter(ctx, device.Float32, dst, src, root)
}

func deviceAllToAll(ctx context.Context, c onDevice, dst, src device.Region) error {
	return c.AllToAll(ctx, device.Float32, dst, src)
}

// devicePingPong is runPingPong for vectors on a device.
func devicePingPong(ctx context.Context, c onDevice, dst, src device.Region) error {
	return pingPong(c.comm, func(to int) error { return c.Send(ctx, device.Float32, to, pingTag, src) }, func(from int) error {
		_, err := c.Recv(ctx, device.Float32, from, pingTag, dst)
		return err
	})
}

// deviceStream is runStream for vectors on a device.
func deviceStream(ctx context.Context, c onDevice, dst, src device.Region) error {
	return stream(ctx, c.comm, func(to int) error { return c.Send(ctx, device.Float32, to, pingTag, src) }, func(from int) error {
		_, err := c.Recv(ctx, device.Float32, from, pingTag, dst)
		return err
	})
}
