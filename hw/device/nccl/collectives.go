package nccl

import (
	"context"
	"fmt"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/device/cuda"
)

// plain returns the communicator without NCCL.
func (g *Group) plain() nexar.DeviceComm { return g.comm.WithStream(g.stream) }

// reduces returns the type and the operation for NCCL, or false if it does not have them.
func (g *Group) reduces(t device.Type, op nexar.Op) (as device.Type, by device.Op, ok bool) {
	if g.reason != "" {
		return 0, 0, false
	}
	by = device.Op(op)
	if op == nexar.Avg {
		by = device.Sum
		if (t == device.Float16 || t == device.BFloat16) && g.comm.Size() > 4096 {
			return 0, 0, false // cuda.Divide does not
		}
	}
	if by == device.Sum {
		switch t {
		case device.Complex64:
			t = device.Float32
		case device.Complex128:
			t = device.Float64
		}
	}
	_, hasType := types[t]
	_, hasOp := ops[by]
	if t.Float() && (by == device.Min || by == device.Max) {
		hasOp = false
	}
	return t, by, hasType && hasOp
}

// moves reports whether NCCL moves vectors of any type, as bytes.
func (g *Group) moves() bool { return g.reason == "" }

// check checks the regions of a call, which must be contiguous.
func (g *Group) check(t device.Type, regions ...device.Region) error {
	if t.Size() == 0 {
		return fmt.Errorf("%w: no device.Type has the number %d", nexar.ErrInvalidType, uint8(t))
	}
	if _, err := device.Check(g.gpu, regions...); err != nil {
		return err
	}
	for _, r := range regions {
		if r.RowCount() > 1 && r.Stride != r.Bytes {
			return fmt.Errorf("%w: %d rows with gaps: the regions of a Group that uses NCCL are contiguous", nexar.ErrInvalidLength, r.Rows)
		}
		if r.Total()%t.Size() != 0 {
			return fmt.Errorf("%w: %d bytes are not a multiple of the size of %v", nexar.ErrInvalidLength, r.Total(), t)
		}
	}
	return nil
}

// part returns n bytes of a contiguous region.
func part(r device.Region, at, n int) device.Region {
	return device.Region{Buffer: r.Buffer, Offset: r.Offset + at, Bytes: n}
}

// address returns the address of a region.
func address(r device.Region) uintptr {
	p, _ := cuda.Pointer(r.Buffer)
	return p + uintptr(r.Offset)
}

// temporary returns a region of memory of the Group, until the next call of temporary. The caller has
// waited for the stream since the last one.
func (g *Group) temporary(ctx context.Context, bytes int) (device.Region, error) {
	if g.scratch == nil || g.scratch.Len() < bytes {
		if g.scratch != nil {
			if err := g.scratch.Free(); err != nil {
				return device.Region{}, err
			}
			g.scratch = nil
		}
		var err error
		if g.scratch, err = g.gpu.Alloc(ctx, bytes); err != nil {
			return device.Region{}, err
		}
	}
	return device.Region{Buffer: g.scratch, Bytes: bytes}, nil
}

// run runs a collective that uses NCCL, and waits for the stream.
func (g *Group) run(ctx context.Context, name string, f func(ctx context.Context) error) error {
	err := g.guarded(ctx, func(ctx context.Context) error {
		if err := f(ctx); err != nil {
			return err
		}
		return g.stream.Wait(ctx)
	})
	if err != nil {
		return fmt.Errorf("nccl: %s: %w", name, err)
	}
	return nil
}

// share returns the offset and the number of the elements of a local rank, of n elements.
func (g *Group) share(n, index int) (at, count int) {
	local := len(g.hosts[0])
	size := (n + local - 1) / local
	at = min(index*size, n)
	return at, min(size, n-at)
}

// AllReduce is like [nexar.DeviceComm.AllReduce].
func (g *Group) AllReduce(ctx context.Context, t device.Type, data device.Region, op nexar.Op) error {
	as, by, ok := g.reduces(t, op)
	if !ok {
		return g.plain().AllReduce(ctx, t, data, op)
	}
	if err := g.check(t, data); err != nil {
		return fmt.Errorf("nccl: all_reduce: %w", err)
	}
	size := as.Size()
	n := data.Total() / size
	at, count := g.share(n, g.index)
	mine := part(data, at*size, count*size)
	return g.run(ctx, "all_reduce", func(ctx context.Context) error {
		if err := g.scatterShares(ctx, data, n, as, by); err != nil {
			return err
		}
		if len(g.hosts) > 1 {
			if err := g.cross.WithStream(g.stream).AllReduce(ctx, as, mine, nexar.Op(by)); err != nil {
				return err
			}
		}
		if op == nexar.Avg {
			if err := cuda.Divide(g.stream, mine, as, g.comm.Size()); err != nil {
				return err
			}
		}
		return g.gatherShares(ctx, data, n, as)
	})
}

// scatterShares reduces the share of each local rank to that rank, in place.
func (g *Group) scatterShares(ctx context.Context, data device.Region, n int, t device.Type, op device.Op) error {
	base, size, local := address(data), uintptr(t.Size()), len(g.hosts[0])
	if n%local == 0 {
		return g.queue(ctx, "ncclReduceScatter", func(comm uintptr) error {
			at, count := g.share(n, g.index)
			return g.lib.call("ncclReduceScatter", comm, base, base+uintptr(at)*size, uintptr(count), types[t], ops[op], comm, g.handle)
		})
	}
	return g.grouped(ctx, "ncclReduce", func(comm uintptr) error {
		for i := range local {
			at, count := g.share(n, i)
			p := base + uintptr(at)*size
			if err := g.lib.call("ncclReduce", comm, p, p, uintptr(count), types[t], ops[op], uintptr(i), comm, g.handle); err != nil {
				return err
			}
		}
		return nil
	})
}

// gatherShares copies the share of each local rank to the others, in place.
func (g *Group) gatherShares(ctx context.Context, data device.Region, n int, t device.Type) error {
	base, size, local := address(data), uintptr(t.Size()), len(g.hosts[0])
	if n%local == 0 {
		return g.queue(ctx, "ncclAllGather", func(comm uintptr) error {
			at, count := g.share(n, g.index)
			return g.lib.call("ncclAllGather", comm, base+uintptr(at)*size, base, uintptr(count), types[t], comm, g.handle)
		})
	}
	return g.grouped(ctx, "ncclBroadcast", func(comm uintptr) error {
		for i := range local {
			at, count := g.share(n, i)
			p := base + uintptr(at)*size
			if err := g.lib.call("ncclBroadcast", comm, p, p, uintptr(count), types[t], uintptr(i), comm, g.handle); err != nil {
				return err
			}
		}
		return nil
	})
}

// find returns the host and the local rank of a rank.
func (g *Group) find(rank int) (host, index int, err error) {
	for h, ranks := range g.hosts {
		for i, r := range ranks {
			if r == rank {
				return h, i, nil
			}
		}
	}
	return 0, 0, fmt.Errorf("%w: root %d: want a rank from 0 to %d", nexar.ErrInvalidRank, rank, g.comm.Size()-1)
}

// broadcastBytes copies bytes of a local rank to the others, in place.
func (g *Group) broadcastBytes(comm uintptr, r device.Region, index int) error {
	p := address(r)
	return g.lib.call("ncclBroadcast", comm, p, p, uintptr(r.Total()), types[device.Uint8], uintptr(index), comm, g.handle)
}

// Broadcast is like [nexar.DeviceComm.Broadcast]: the vector goes to one rank of each host, and from there by
// NCCL to the others.
func (g *Group) Broadcast(ctx context.Context, t device.Type, data device.Region, root int) error {
	if !g.moves() {
		return g.plain().Broadcast(ctx, t, data, root)
	}
	host, index, err := g.find(root)
	if err == nil {
		err = g.check(t, data)
	}
	if err != nil {
		return fmt.Errorf("nccl: broadcast: %w", err)
	}
	return g.run(ctx, "broadcast", func(ctx context.Context) error {
		if g.index == index && len(g.hosts) > 1 {
			if err := g.cross.WithStream(g.stream).Broadcast(ctx, t, data, host); err != nil {
				return err
			}
		}
		return g.queue(ctx, "ncclBroadcast", func(comm uintptr) error { return g.broadcastBytes(comm, data, index) })
	})
}

// Reduce is like [nexar.DeviceComm.Reduce].
func (g *Group) Reduce(ctx context.Context, t device.Type, data device.Region, op nexar.Op, root int) error {
	as, by, ok := g.reduces(t, op)
	if !ok {
		return g.plain().Reduce(ctx, t, data, op, root)
	}
	host, index, err := g.find(root)
	if err == nil {
		err = g.check(t, data)
	}
	if err != nil {
		return fmt.Errorf("nccl: reduce: %w", err)
	}
	data = part(data, 0, data.Total()) // one row
	return g.run(ctx, "reduce", func(ctx context.Context) error {
		sum, err := g.temporary(ctx, data.Bytes)
		if err != nil {
			return err
		}
		err = g.queue(ctx, "ncclReduce", func(comm uintptr) error {
			return g.lib.call("ncclReduce", comm, address(data), address(sum), uintptr(data.Bytes/as.Size()), types[as], ops[by], uintptr(index), comm, g.handle)
		})
		if err != nil || g.index != index {
			return err
		}
		if len(g.hosts) > 1 {
			if err := g.cross.WithStream(g.stream).Reduce(ctx, as, sum, nexar.Op(by), host); err != nil {
				return err
			}
		}
		if g.host != host {
			return nil
		}
		if op == nexar.Avg {
			if err := cuda.Divide(g.stream, sum, as, g.comm.Size()); err != nil {
				return err
			}
		}
		return g.stream.Copy(data, sum)
	})
}

// blocks checks the regions of a collective with blocks: whole has one block for each rank.
func (g *Group) blocks(t device.Type, whole, block device.Region) error {
	if err := g.check(t, whole, block); err != nil {
		return err
	}
	if whole.Total() != g.comm.Size()*block.Total() {
		return fmt.Errorf("%w: %d bytes for %d blocks of %d bytes", nexar.ErrInvalidLength, whole.Total(), g.comm.Size(), block.Total())
	}
	return nil
}

// AllGather is like [nexar.DeviceComm.AllGather]: each rank gathers the blocks of its counterparts on other
// hosts, and NCCL brings them to the other ranks of the host.
func (g *Group) AllGather(ctx context.Context, t device.Type, dst, src device.Region) error {
	if !g.moves() {
		return g.plain().AllGather(ctx, t, dst, src)
	}
	if err := g.blocks(t, dst, src); err != nil {
		return fmt.Errorf("nccl: all_gather: %w", err)
	}
	dst, src = part(dst, 0, dst.Total()), part(src, 0, src.Total())
	return g.run(ctx, "all_gather", func(ctx context.Context) error {
		n := src.Bytes
		rows, err := g.temporary(ctx, n*len(g.hosts))
		if err != nil {
			return err
		}
		if len(g.hosts) > 1 {
			err = g.cross.WithStream(g.stream).AllGather(ctx, t, rows, src)
		} else {
			err = g.stream.Copy(rows, src)
		}
		for h := 0; h < len(g.hosts) && err == nil && n > 0; h++ {
			if to := part(dst, g.hosts[h][g.index]*n, n); to != src {
				err = g.stream.Copy(to, part(rows, h*n, n))
			}
		}
		if err != nil || n == 0 {
			return err
		}
		return g.grouped(ctx, "ncclBroadcast", func(comm uintptr) error {
			for _, ranks := range g.hosts {
				for i, r := range ranks {
					if err := g.broadcastBytes(comm, part(dst, r*n, n), i); err != nil {
						return err
					}
				}
			}
			return nil
		})
	})
}

// ReduceScatter is like [nexar.DeviceComm.ReduceScatter]: NCCL reduces the blocks of all hosts inside each,
// and each rank reduces its blocks with its counterparts on other hosts.
func (g *Group) ReduceScatter(ctx context.Context, t device.Type, dst, src device.Region, op nexar.Op) error {
	as, by, ok := g.reduces(t, op)
	if !ok {
		return g.plain().ReduceScatter(ctx, t, dst, src, op)
	}
	if err := g.blocks(t, src, dst); err != nil {
		return fmt.Errorf("nccl: reduce_scatter: %w", err)
	}
	dst, src = part(dst, 0, dst.Total()), part(src, 0, src.Total())
	return g.run(ctx, "reduce_scatter", func(ctx context.Context) error {
		n := dst.Bytes
		rows, err := g.temporary(ctx, n*len(g.hosts))
		if err != nil || n == 0 {
			return err
		}
		err = g.grouped(ctx, "ncclReduce", func(comm uintptr) error {
			for h, ranks := range g.hosts {
				for i, r := range ranks {
					err := g.lib.call("ncclReduce", comm, address(part(src, r*n, n)), address(part(rows, h*n, n)), uintptr(n/as.Size()),
						types[as], ops[by], uintptr(i), comm, g.handle)
					if err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if len(g.hosts) > 1 {
			err = g.cross.WithStream(g.stream).ReduceScatter(ctx, as, dst, rows, nexar.Op(by))
		} else {
			err = g.stream.Copy(dst, rows)
		}
		if err == nil && op == nexar.Avg {
			err = cuda.Divide(g.stream, dst, as, g.comm.Size())
		}
		return err
	})
}

// AllToAll is [nexar.DeviceComm.AllToAll], without NCCL.
func (g *Group) AllToAll(ctx context.Context, t device.Type, dst, src device.Region) error {
	return g.plain().AllToAll(ctx, t, dst, src)
}
