package cuda

import (
	"context"

	"github.com/nexar-go/nexar/device"
)

// CopyIn and CopyOut copy through chunks of staging memory, so that the slice is not used after the call,
// and need not be locked. With two chunks, the GPU copies one while the processor copies the other.
const (
	chunkBytes = 4 << 20
	chunkCount = 2
)

// CopyIn copies src to dst.
func (d *Device) CopyIn(ctx context.Context, dst device.Region, src []byte) error {
	return d.copyNow(ctx, dst, "src", len(src), func(s *stream, pieces []device.Region) error {
		var last *work
		for _, p := range pieces {
			c, err := d.chunk(ctx, min(len(src), chunkBytes))
			if err != nil {
				return err
			}
			mem, err := c.Bytes(ctx)
			if err == nil {
				src = src[copy(mem[:p.Total()], src):]
				err = s.staged("CopyIn", c, 0, []device.Region{p}, true, false)
			}
			d.chunks <- c
			if err != nil {
				return err
			}
			d.mu.Lock()
			last = s.last
			d.mu.Unlock()
		}
		return d.await(ctx, last)
	})
}

// CopyOut copies src to dst.
func (d *Device) CopyOut(ctx context.Context, dst []byte, src device.Region) error {
	return d.copyNow(ctx, src, "dst", len(dst), func(s *stream, pieces []device.Region) error {
		// The copy of the GPU to a chunk is queued before the one before it is awaited.
		type fetched struct {
			chunk *staging
			bytes int
		}
		var ahead []fetched
		take := func() error {
			f := ahead[0]
			ahead = ahead[1:]
			mem, err := f.chunk.Bytes(ctx)
			if err == nil {
				dst = dst[copy(dst, mem[:f.bytes]):]
			}
			d.chunks <- f.chunk
			return err
		}
		defer func() {
			for _, f := range ahead {
				d.chunks <- f.chunk
			}
		}()
		size := min(len(dst), chunkBytes)
		for _, p := range pieces {
			for len(ahead) > 0 && (len(ahead) == chunkCount || len(d.chunks) == 0) {
				if err := take(); err != nil {
					return err
				}
			}
			c, err := d.chunk(ctx, size)
			if err != nil {
				return err
			}
			if _, err = c.Bytes(ctx); err == nil { // work of a call that has given up may use it
				err = s.staged("CopyOut", c, 0, []device.Region{p}, false, false)
			}
			ahead = append(ahead, fetched{c, p.Total()})
			if err != nil {
				return err
			}
		}
		for len(ahead) > 0 {
			if err := take(); err != nil {
				return err
			}
		}
		return nil
	})
}

// copyNow checks the arguments of CopyIn or CopyOut, and calls do with the pieces of r.
func (d *Device) copyNow(ctx context.Context, r device.Region, what string, length int, do func(*stream, []device.Region) error) error {
	bytes, err := device.Check(d, r)
	if err == nil {
		err = device.CheckLength(d, what, length, bytes)
	}
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s, err := d.copyStream()
	if err != nil {
		return err
	}
	if bytes == 0 {
		return s.add(queued{name: "copy of 0 bytes", buffers: []device.Buffer{r.Buffer}, enqueue: func() error { return nil }})
	}
	if d.hooks.copy != nil {
		if err := d.hooks.copy(); err != nil {
			return d.named(err)
		}
	}
	return do(s, pieces(r))
}

// copyStream returns the stream for copies, and a new one after a failure.
func (d *Device) copyStream() (*stream, error) {
	d.copying.Lock()
	defer d.copying.Unlock()
	if s := d.copies; s != nil {
		d.mu.Lock()
		err := s.check()
		ended := d.closed || d.err != nil
		d.mu.Unlock()
		if err == nil || ended {
			return s, err
		}
	}
	s, err := d.newStream()
	if err == nil {
		d.copies = s
	}
	return s, err
}

// chunk returns a chunk of at least some bytes. It waits until another call returns one, or until the end of the device.
func (d *Device) chunk(ctx context.Context, bytes int) (*staging, error) {
	select {
	case c := <-d.chunks:
		if c != nil && c.bytes >= bytes {
			d.mu.Lock()
			err := c.err
			d.mu.Unlock()
			if err == nil {
				return c, nil
			}
		}
		if c != nil {
			_ = c.Free()
		}
		c, err := d.stage(ctx, bytes)
		if err != nil {
			d.chunks <- nil
			return nil, err
		}
		return c, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-d.x.failed:
		return nil, d.named(d.x.err)
	case <-d.x.ended: // Close has taken the chunks.
		return nil, d.errClosed("device")
	}
}

// pieces cuts a region of at least one byte into parts of at most chunkBytes bytes.
func pieces(r device.Region) (list []device.Region) {
	r = dense(r)
	rows := 1
	if r.RowCount() > 1 {
		rows = max(1, chunkBytes/r.Bytes)
	}
	for row := 0; row < r.RowCount(); row += rows {
		p := r
		p.Offset, p.Rows = r.RowAt(row), min(rows, r.RowCount()-row)
		for p.Rows == 1 && p.Bytes > chunkBytes {
			first := p
			first.Bytes = chunkBytes
			list = append(list, first)
			p.Offset += chunkBytes
			p.Bytes -= chunkBytes
		}
		list = append(list, p)
	}
	return list
}
