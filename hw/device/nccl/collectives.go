package nccl

import (
	"context"
	"fmt"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/device/cuda"
	"github.com/nexar-go/nexar/internal/kernel"
)

// A call is a collective in steps. Steps that are nil do nothing.
type call struct {
	name string
	err  error // of its arguments

	// plain performs the collective without the other steps.
	plain func(ctx context.Context, c nexar.DeviceComm) error

	bytes  int           // of temporary memory
	temp   device.Region // temporary memory, from before on
	before func() error  // queues copies
	first  func() []transfer
	across func(ctx context.Context) error // among hosts
	last   func() []transfer
	end    func() error // queues copies
}

// run performs calls together, and waits for the stream.
func (g *Group) run(ctx context.Context, name string, calls ...*call) error {
	for _, c := range calls {
		if c.err != nil {
			return fmt.Errorf("nccl: %s: %w", c.name, c.err)
		}
	}
	if g.inside == nil {
		for _, c := range calls {
			if err := c.plain(ctx, g.comm.WithStream(g.stream)); err != nil {
				return err
			}
		}
		return nil
	}
	if len(calls) == 1 && calls[0].first == nil && calls[0].last == nil {
		return calls[0].plain(ctx, g.comm.WithStream(g.stream))
	}
	if err := g.guarded(ctx, func(ctx context.Context) error { return g.perform(ctx, calls) }); err != nil {
		return fmt.Errorf("nccl: %s: %w", name, err)
	}
	return nil
}

// perform performs the steps of calls, each for all calls.
func (g *Group) perform(ctx context.Context, calls []*call) error {
	if err := g.allocate(ctx, calls); err != nil {
		return err
	}
	transfers := func(step func(*call) func() []transfer) error {
		var list []transfer
		for _, c := range calls {
			if f := step(c); f != nil {
				for _, m := range f() {
					if m.src.Bytes > 0 || m.dst.Bytes > 0 {
						list = append(list, m)
					}
				}
			}
		}
		if len(list) == 0 {
			return nil
		}
		return g.inside.run(ctx, list)
	}
	for _, c := range calls {
		if c.before != nil {
			if err := c.before(); err != nil {
				return err
			}
		}
	}
	if err := transfers(func(c *call) func() []transfer { return c.first }); err != nil {
		return err
	}
	for _, c := range calls {
		f := c.across
		if c.first == nil && c.last == nil {
			f = func(ctx context.Context) error { return c.plain(ctx, g.comm.WithStream(g.stream)) }
		}
		if f != nil {
			if err := f(ctx); err != nil {
				return err
			}
		}
	}
	if err := transfers(func(c *call) func() []transfer { return c.last }); err != nil {
		return err
	}
	for _, c := range calls {
		if c.end != nil {
			if err := c.end(); err != nil {
				return err
			}
		}
	}
	return g.stream.Wait(ctx)
}

// allocate provides temporary memory, which the Group keeps. The stream has no work that uses it.
func (g *Group) allocate(ctx context.Context, calls []*call) error {
	const align = 256
	bytes := 0
	for _, c := range calls {
		bytes += (c.bytes + align - 1) &^ (align - 1)
	}
	if bytes == 0 {
		return nil
	}
	if g.scratch == nil || g.scratch.Len() < bytes {
		if g.scratch != nil {
			if err := g.scratch.Free(); err != nil {
				return err
			}
			g.scratch = nil
		}
		var err error
		if g.scratch, err = g.stream.Device().Alloc(ctx, bytes); err != nil {
			return err
		}
	}
	at := 0
	for _, c := range calls {
		c.temp = device.Region{Buffer: g.scratch, Offset: at, Bytes: c.bytes}
		at += (c.bytes + align - 1) &^ (align - 1)
	}
	return nil
}

// among returns the communicator of the ranks with the same local rank.
func (g *Group) among() nexar.DeviceComm { return g.cross.WithStream(g.stream) }

// divide queues the division of a sum by the number of ranks.
func (g *Group) divide(ctx context.Context, r device.Region, t device.Type) error {
	if g.gpu != nil {
		return cuda.Divide(g.stream, r, t, g.comm.Size())
	}
	if err := g.stream.Wait(ctx); err != nil || r.Total() == 0 {
		return err
	}
	data := make([]byte, r.Total())
	if err := g.stream.Device().CopyOut(ctx, data, r); err != nil {
		return err
	}
	kernel.Divider(t)(data, g.comm.Size())
	return g.stream.Device().CopyIn(ctx, r, data)
}

// reduces returns the type and the operation for the steps of a reduction, or false if it has none.
func (g *Group) reduces(t device.Type, op nexar.Op) (as device.Type, by device.Op, ok bool) {
	if g.inside == nil {
		return 0, 0, false
	}
	by = device.Op(op)
	if op == nexar.Avg {
		by = device.Sum
		if t.Float() && t.Size() < 4 && g.comm.Size() > 4096 {
			return 0, 0, false // cuda.Divide does not
		}
	}
	if !by.Defined(t) {
		return 0, 0, false
	}
	if by == device.Sum {
		switch t {
		case device.Complex64:
			t = device.Float32
		case device.Complex128:
			t = device.Float64
		}
	}
	if !g.limited {
		return t, by, true
	}
	_, hasType := types[t]
	_, hasOp := ops[by]
	if t.Float() && (by == device.Min || by == device.Max) {
		hasOp = false
	}
	return t, by, hasType && hasOp
}

// check checks the regions of a call, which must be contiguous if it is performed in steps.
func (g *Group) check(steps bool, t device.Type, regions ...device.Region) error {
	if t.Size() == 0 {
		return fmt.Errorf("%w: no device.Type has the number %d", nexar.ErrInvalidType, uint8(t))
	}
	if _, err := device.Check(g.stream.Device(), regions...); err != nil {
		return err
	}
	for _, r := range regions {
		if steps && r.RowCount() > 1 && r.Stride != r.Bytes {
			return fmt.Errorf("%w: %d rows with gaps: the regions of a Group that uses NCCL or peer access are contiguous", nexar.ErrInvalidLength, r.Rows)
		}
		if r.Total()%t.Size() != 0 {
			return fmt.Errorf("%w: %d bytes are not a multiple of the size of %v", nexar.ErrInvalidLength, r.Total(), t)
		}
	}
	return nil
}

// blocks checks the regions of a collective with blocks: whole has one block for each rank.
func (g *Group) blocks(steps bool, t device.Type, whole, block device.Region) error {
	if err := g.check(steps, t, whole, block); err != nil {
		return err
	}
	if whole.Total() != g.comm.Size()*block.Total() {
		return fmt.Errorf("%w: %d bytes for %d blocks of %d bytes", nexar.ErrInvalidLength, whole.Total(), g.comm.Size(), block.Total())
	}
	return nil
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

// AllReduce is like [nexar.DeviceComm.AllReduce].
func (g *Group) AllReduce(ctx context.Context, t device.Type, data device.Region, op nexar.Op) error {
	return g.run(ctx, "all_reduce", g.allReduce(t, data, op))
}

func (g *Group) allReduce(t device.Type, data device.Region, op nexar.Op) *call {
	c := &call{name: "all_reduce", plain: func(ctx context.Context, c nexar.DeviceComm) error { return c.AllReduce(ctx, t, data, op) }}
	as, by, ok := g.reduces(t, op)
	if c.err = g.check(ok, t, data); c.err != nil || !ok || data.Total() == 0 {
		return c
	}
	data = part(data, 0, data.Total())
	if _, ok := g.inside.(*peers); ok && len(g.hosts) == 1 && data.Bytes <= singlePassMax {
		c.first = func() []transfer { return []transfer{{kind: transferAllReduce, dst: data, src: data, t: as, op: by}} }
		if op == nexar.Avg {
			c.across = func(ctx context.Context) error { return g.divide(ctx, data, as) }
		}
		return c
	}
	// Each local rank has an equal share, and the last one the rest, which is less than an element for each rank.
	size, local := as.Size(), len(g.hosts[0])
	share := data.Bytes / size / local * size
	even, rest := part(data, 0, share*local), part(data, share*local, data.Bytes-share*local)
	own := part(data, g.index*share, share)
	mine := own
	if g.index == local-1 {
		mine.Bytes += rest.Bytes
	}
	c.first = func() []transfer {
		return []transfer{
			{kind: transferReduceScatter, dst: own, src: even, t: as, op: by},
			{kind: transferReduce, dst: rest, src: rest, t: as, op: by, root: local - 1},
		}
	}
	c.across = func(ctx context.Context) error {
		if len(g.hosts) > 1 {
			if err := g.among().AllReduce(ctx, as, mine, nexar.Op(by)); err != nil {
				return err
			}
		}
		if op == nexar.Avg {
			return g.divide(ctx, mine, as)
		}
		return nil
	}
	c.last = func() []transfer {
		return []transfer{{kind: transferAllGather, dst: even, src: own}, {kind: transferBroadcast, dst: rest, root: local - 1}}
	}
	return c
}

// Broadcast is like [nexar.DeviceComm.Broadcast]: the vector goes to one rank of each host, and from there
// to the others.
func (g *Group) Broadcast(ctx context.Context, t device.Type, data device.Region, root int) error {
	return g.run(ctx, "broadcast", g.broadcast(t, data, root))
}

func (g *Group) broadcast(t device.Type, data device.Region, root int) *call {
	c := &call{name: "broadcast", plain: func(ctx context.Context, c nexar.DeviceComm) error { return c.Broadcast(ctx, t, data, root) }}
	host, index, err := g.find(root)
	if err == nil {
		err = g.check(g.inside != nil, t, data)
	}
	if c.err = err; err != nil || g.inside == nil || data.Total() == 0 {
		return c
	}
	if g.index == index && len(g.hosts) > 1 {
		c.across = func(ctx context.Context) error { return g.among().Broadcast(ctx, t, data, host) }
	}
	c.last = func() []transfer {
		return []transfer{{kind: transferBroadcast, dst: part(data, 0, data.Total()), root: index}}
	}
	return c
}

// Reduce is like [nexar.DeviceComm.Reduce].
func (g *Group) Reduce(ctx context.Context, t device.Type, data device.Region, op nexar.Op, root int) error {
	return g.run(ctx, "reduce", g.reduce(t, data, op, root))
}

func (g *Group) reduce(t device.Type, data device.Region, op nexar.Op, root int) *call {
	c := &call{name: "reduce", plain: func(ctx context.Context, c nexar.DeviceComm) error { return c.Reduce(ctx, t, data, op, root) }}
	as, by, ok := g.reduces(t, op)
	host, index, err := g.find(root)
	if err == nil {
		err = g.check(ok, t, data)
	}
	if c.err = err; err != nil || !ok || data.Total() == 0 {
		return c
	}
	data = part(data, 0, data.Total())
	c.bytes = data.Bytes
	c.first = func() []transfer {
		return []transfer{{kind: transferReduce, dst: c.temp, src: data, t: as, op: by, root: index}}
	}
	c.across = func(ctx context.Context) error {
		if g.index != index {
			return nil
		}
		if len(g.hosts) > 1 {
			if err := g.among().Reduce(ctx, as, c.temp, nexar.Op(by), host); err != nil {
				return err
			}
		}
		if g.host != host {
			return nil
		}
		if op == nexar.Avg {
			if err := g.divide(ctx, c.temp, as); err != nil {
				return err
			}
		}
		return g.stream.Copy(data, c.temp)
	}
	return c
}

// AllGather is like [nexar.DeviceComm.AllGather]: each rank gathers the blocks of its counterparts on other
// hosts, and then the ranks of the host exchange them.
func (g *Group) AllGather(ctx context.Context, t device.Type, dst, src device.Region) error {
	return g.run(ctx, "all_gather", g.allGather(t, dst, src))
}

func (g *Group) allGather(t device.Type, dst, src device.Region) *call {
	c := &call{name: "all_gather", plain: func(ctx context.Context, c nexar.DeviceComm) error { return c.AllGather(ctx, t, dst, src) }}
	if c.err = g.blocks(g.inside != nil, t, dst, src); c.err != nil || g.inside == nil || src.Total() == 0 {
		return c
	}
	dst, src = part(dst, 0, dst.Total()), part(src, 0, src.Total())
	n, hosts := src.Bytes, len(g.hosts)
	if hosts == 1 {
		c.last = func() []transfer { return []transfer{{kind: transferAllGather, dst: dst, src: src}} }
		return c
	}
	// The blocks of all ranks, by local rank and then by host.
	c.bytes = dst.Bytes
	own := func() device.Region { return part(c.temp, g.index*hosts*n, hosts*n) }
	c.across = func(ctx context.Context) error { return g.among().AllGather(ctx, t, own(), src) }
	c.last = func() []transfer { return []transfer{{kind: transferAllGather, dst: c.temp, src: own()}} }
	c.end = func() error { return g.copies(dst, c.temp, g.comm.Size(), n, g.byLocalRank, same) }
	return c
}

// ReduceScatter is like [nexar.DeviceComm.ReduceScatter]: the ranks of each host reduce the blocks of all hosts,
// and then each rank reduces its blocks with its counterparts on other hosts.
func (g *Group) ReduceScatter(ctx context.Context, t device.Type, dst, src device.Region, op nexar.Op) error {
	return g.run(ctx, "reduce_scatter", g.reduceScatter(t, dst, src, op))
}

func (g *Group) reduceScatter(t device.Type, dst, src device.Region, op nexar.Op) *call {
	c := &call{name: "reduce_scatter", plain: func(ctx context.Context, c nexar.DeviceComm) error {
		return c.ReduceScatter(ctx, t, dst, src, op)
	}}
	as, by, ok := g.reduces(t, op)
	if c.err = g.blocks(ok, t, src, dst); c.err != nil || !ok || dst.Total() == 0 {
		return c
	}
	dst, src = part(dst, 0, dst.Total()), part(src, 0, src.Total())
	n, hosts := dst.Bytes, len(g.hosts)
	to, from := dst, src
	if hosts > 1 {
		// The blocks of all ranks, by local rank and then by host.
		c.bytes = src.Bytes
		c.before = func() error { return g.copies(c.temp, src, g.comm.Size(), n, same, g.byLocalRank) }
	}
	c.first = func() []transfer {
		if hosts > 1 {
			to, from = part(c.temp, g.index*hosts*n, hosts*n), c.temp
		}
		return []transfer{{kind: transferReduceScatter, dst: to, src: from, t: as, op: by}}
	}
	c.across = func(ctx context.Context) error {
		if hosts > 1 {
			if err := g.among().ReduceScatter(ctx, as, dst, to, nexar.Op(by)); err != nil {
				return err
			}
		}
		if op == nexar.Avg {
			return g.divide(ctx, dst, as)
		}
		return nil
	}
	return c
}

// AllToAll is like [nexar.DeviceComm.AllToAll]: a rank gets the blocks that the ranks of its host send to its counterparts on
// all hosts, and exchanges them with these. So hosts exchange fewer and longer messages.
func (g *Group) AllToAll(ctx context.Context, t device.Type, dst, src device.Region) error {
	return g.run(ctx, "all_to_all", g.allToAll(t, dst, src))
}

func (g *Group) allToAll(t device.Type, dst, src device.Region) *call {
	c := &call{name: "all_to_all", plain: func(ctx context.Context, c nexar.DeviceComm) error { return c.AllToAll(ctx, t, dst, src) }}
	size, hosts := g.comm.Size(), len(g.hosts)
	err := g.check(g.inside != nil, t, dst, src)
	switch {
	case err != nil:
	case dst.Total() != src.Total() || src.Total()%(size*t.Size()) != 0:
		err = fmt.Errorf("%w: dst of %d bytes and src of %d bytes for %d ranks: want a block of the same length for each rank", nexar.ErrInvalidLength, dst.Total(), src.Total(), size)
	case dst.Overlaps(src):
		err = fmt.Errorf("%w: dst and src share memory of the device", nexar.ErrOverlap)
	}
	if c.err = err; err != nil || g.inside == nil || src.Total() == 0 {
		return c
	}
	dst, src = part(dst, 0, dst.Total()), part(src, 0, src.Total())
	if hosts == 1 {
		c.first = func() []transfer { return []transfer{{kind: transferAllToAll, dst: dst, src: src}} }
		return c
	}
	n, local, all := src.Bytes/size, len(g.hosts[0]), src.Bytes
	c.bytes = 2 * all
	one, other := func() device.Region { return part(c.temp, 0, all) }, func() device.Region { return part(c.temp, all, all) }
	c.before = func() error { return g.copies(one(), src, size, n, same, g.byLocalRank) }
	c.first = func() []transfer { return []transfer{{kind: transferAllToAll, dst: other(), src: one()}} }
	c.across = func(ctx context.Context) error {
		// From blocks by sender and then by host of the receiver, to blocks by host of the receiver and then by sender.
		byReceiver := func(k int) int { return k%hosts*local + k/hosts }
		if err := g.copies(one(), other(), size, n, byReceiver, same); err != nil {
			return err
		}
		got := other()
		if g.inOrder {
			got = dst
		}
		if err := g.among().AllToAll(ctx, t, got, one()); err != nil || g.inOrder {
			return err
		}
		return g.copies(dst, other(), size, n, g.byHost, same)
	}
	return c
}
