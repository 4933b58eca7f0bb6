package cuda

import (
	"embed"
	"fmt"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/internal/cudadriver"
	"github.com/nexar-go/nexar/hw/internal/ptx"
)

//go:generate go run github.com/nexar-go/nexar/hw/internal/ptx/generate ptx

//go:embed ptx/*.ptx
var kernels embed.FS

// A module is compiled code of the file of a type.
type module struct {
	handle    cudadriver.Module
	functions map[string]cudadriver.Function
}

// function returns a kernel of a file. The driver compiles the file at the first use. It runs on the
// thread of the executor.
func (d *Device) function(file, name string) (cudadriver.Function, error) {
	m := d.modules[file]
	if m == nil {
		text, err := kernels.ReadFile("ptx/" + file + ".ptx")
		if err != nil {
			return 0, err
		}
		handle, err := d.drv.ModuleLoad(append(text, 0))
		if err != nil {
			return 0, fmt.Errorf("cannot compile the kernels of %s: %w", file, err)
		}
		m = &module{handle: handle, functions: make(map[string]cudadriver.Function)}
		d.modules[file] = m
	}
	f, ok := m.functions[name]
	if !ok {
		var err error
		if f, err = d.drv.ModuleGetFunction(m.handle, name); err != nil {
			return 0, fmt.Errorf("kernel %s: %w", name, err)
		}
		m.functions[name] = f
	}
	return f, nil
}

var _ device.Reducer = (*stream)(nil)

// Reduce implements device.Reducer, by a kernel.
func (s *stream) Reduce(dst, src device.Region, t device.Type, op device.Op) error {
	if err := device.CheckReduce(s.d, dst, src, t, op); err != nil {
		return err
	}
	if err := s.checkAliases(dst, src); err != nil {
		return err
	}
	return s.add(queued{
		name: fmt.Sprintf("Reduce of %d bytes (%v of %v)", dst.Total(), op, t), buffers: []device.Buffer{dst.Buffer, src.Buffer},
		enqueue: func() error { return s.reduce(dst, src, t, op) },
	})
}

// reduce launches the kernels of a reduction: that of groups of elements where they are aligned, and that
// of single elements for the rest.
func (s *stream) reduce(dst, src device.Region, t device.Type, op device.Op) error {
	if t.Complex() && op == device.Sum {
		t = map[device.Type]device.Type{device.Complex64: device.Float32, device.Complex128: device.Float64}[t]
	}
	rows := dst.RowCount()
	if rows == 0 {
		return nil
	}
	if rows == 1 {
		dst.Stride, src.Stride = 0, 0
	}
	to, from := uint64(address(dst)), uint64(address(src))
	if size := uint64(t.Size()); to%size != 0 || from%size != 0 {
		return fmt.Errorf("the address of a buffer, %#x or %#x, is not a multiple of the element size %d", to, from, size)
	}
	vectors := 0
	if (to|from|uint64(dst.Stride)|uint64(src.Stride))%ptx.VectorBytes == 0 {
		vectors = dst.Bytes / ptx.VectorBytes
	}
	if vectors > 0 {
		f, err := s.d.function(t.String(), ptx.Entry(t, op, true))
		if err == nil {
			err = s.launch(f, to, from, vectors, rows, dst.Stride, src.Stride)
		}
		if err != nil {
			return err
		}
	}
	done := vectors * ptx.VectorBytes
	if done == dst.Bytes {
		return nil
	}
	f, err := s.d.function(t.String(), ptx.Entry(t, op, false))
	if err != nil {
		return err
	}
	return s.launch(f, to+uint64(done), from+uint64(done), (dst.Bytes-done)/t.Size(), rows, dst.Stride, src.Stride)
}

// launch queues a kernel for n elements in each of some rows. Threads do several elements where there are
// more than the GPU has room for.
func (s *stream) launch(f cudadriver.Function, dst, src uint64, n, rows, dstStride, srcStride int) error {
	const (
		block   = 256
		rowsMax = 65535
	)
	gridX := min((n+block-1)/block, s.d.blocks)
	gridY := min(rows, rowsMax, max(1, s.d.blocks/gridX))
	args := []uint64{dst, src, uint64(n), uint64(rows), uint64(dstStride), uint64(srcStride)}
	return s.d.drv.LaunchKernel(f, gridX, gridY, block, s.handle, args)
}

// copyRows copies rows by a kernel, with the longest elements that fit.
func (s *stream) copyRows(dst, src device.Region) error {
	to, from := uint64(address(dst)), uint64(address(src))
	size := 16
	for (to|from|uint64(dst.Stride)|uint64(src.Stride)|uint64(dst.Bytes))%uint64(size) != 0 {
		size /= 2
	}
	f, err := s.d.function("copy", ptx.CopyEntry(size))
	if err != nil {
		return err
	}
	return s.launch(f, to, from, dst.Bytes/size, dst.RowCount(), dst.Stride, src.Stride)
}

// Divide queues the division of the elements of a region by n, which completes an average of n vectors: the
// result has the bits of an average of package nexar. Integers are truncated toward zero. The stream must
// be of a GPU. N is positive, and at most 4096 for floats of 16 and 8 bits, and 2^24 for other types.
func Divide(s device.Stream, r device.Region, t device.Type, n int) error {
	own, ok := s.(*stream)
	if !ok {
		return fmt.Errorf("the stream is of device %s, not of a GPU", s.Device().Name())
	}
	limit := 1 << 24
	switch t {
	case device.Float16, device.BFloat16, device.Float8E4M3, device.Float8E5M2:
		limit = ptx.HalfDivisorMax
	case device.Complex64:
		t = device.Float32
	case device.Complex128:
		t = device.Float64
	}
	if t.Size() == 0 || n < 1 || n > limit {
		return own.d.named(fmt.Errorf("%w: division of %v by %d: must be from 1 to %d", device.ErrInvalidOp, t, n, limit))
	}
	if _, err := device.Check(own.d, r); err != nil {
		return err
	}
	if size := t.Size(); r.Offset%size != 0 || r.Bytes%size != 0 || r.RowCount() > 1 && r.Stride%size != 0 {
		return &device.RangeError{
			Device: own.d.name, What: "buffer", Offset: r.Offset, Bytes: r.Bytes, Rows: r.Rows, Stride: r.Stride,
			Size: r.Buffer.Len(), Multiple: size,
		}
	}
	return own.add(queued{
		name: fmt.Sprintf("Divide of %d bytes of %v", r.Total(), t), buffers: []device.Buffer{r.Buffer},
		enqueue: func() error {
			if r.RowCount() == 0 {
				return nil
			}
			f, err := own.d.function(t.String(), ptx.DivideEntry(t))
			if err != nil {
				return err
			}
			return own.launch(f, uint64(address(r)), uint64(n), r.Bytes/t.Size(), r.RowCount(), r.Stride, 0)
		},
	})
}
