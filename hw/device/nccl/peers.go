package nccl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
)

// peers is an inside whose GPUs read each other's memory. Each rank has an exchange buffer, which the others map once. A
// vector goes through it in passes: the ranks copy parts into their exchange buffers, wait until all have done so, and then
// copy or reduce from those of the others, by their own kernels. Reductions are in the order of the local ranks.
//
// No work of a GPU waits for another process, so the death of a process cannot block a stream.
type peers struct {
	g       *Group
	device  device.Peer
	own     device.Buffer
	buffers []device.Buffer // by local rank
	half    int             // bytes of a half of an exchange buffer
	second  bool            // the next pass uses the second half
}

// A description tells the other ranks of the host how to map the exchange buffer of a rank.
type description struct {
	Name   [256]byte // of Export
	Length int32     // of the name
	Failed text      // why this rank has no buffer
	Size   int64     // bytes of the buffer
}

// connectPeers creates the buffers, and maps those of the other ranks. If that fails, the ranks of the
// host use memory of the host, and the reason says so.
func (g *Group) connectPeers(ctx context.Context) error {
	p := &peers{g: g, device: g.stream.Device().(device.Peer), buffers: make([]device.Buffer, len(g.hosts[0]))}
	mine, err := p.describe(ctx)
	mine.Failed = textOf(err)
	descriptions := make([]description, len(p.buffers))
	if err := nexar.AllGather(ctx, g.local, descriptions, []description{mine}); err != nil {
		return errors.Join(err, p.free())
	}
	err = p.open(descriptions)
	failures := make([]text, len(descriptions))
	if err := nexar.AllGather(ctx, g.local, failures, []text{textOf(err)}); err != nil {
		return errors.Join(err, p.free())
	}
	for i, f := range failures {
		if f != (text{}) {
			g.reason += fmt.Sprintf("; peer access is not used: rank %d: %v", g.hosts[g.host][i], f)
			return p.free()
		}
	}
	// An exchange buffer has an equal part for each rank, in each half.
	smallest := mine.Size
	for _, o := range descriptions {
		smallest = min(smallest, o.Size)
	}
	p.half = int(smallest) / 2 &^ (partAlign - 1)
	g.inside = p
	return nil
}

// describe allocates the exchange buffer of this rank.
func (p *peers) describe(ctx context.Context) (d description, err error) {
	const most = 1 << 40
	d.Size = int64(min(max(p.g.cfg.ExchangeBuffer, 2*p.step()), most))
	if p.own, err = p.device.Alloc(ctx, int(d.Size)); err != nil {
		return d, err
	}
	name, err := p.device.Export(p.own)
	d.Length = int32(copy(d.Name[:], name))
	return d, err
}

// step returns the least bytes of half an exchange buffer.
func (p *peers) step() int { return len(p.buffers) * partAlign }

// partAlign is the alignment of parts in an exchange buffer, in bytes: a multiple of the size of all elements and of
// the longest access of a kernel.
const partAlign = 256

// open maps the buffers of the other ranks.
func (p *peers) open(descriptions []description) (err error) {
	for i, d := range descriptions {
		switch {
		case d.Failed != (text{}):
			return errors.New(d.Failed.String())
		case i == p.g.index:
			p.buffers[i] = p.own
		case d.Length < 0 || int(d.Length) > len(d.Name):
			return fmt.Errorf("rank %d has a name of %d bytes: must be at most %d", p.g.hosts[p.g.host][i], d.Length, len(d.Name))
		default:
			if p.buffers[i], err = p.device.Attach(d.Name[:d.Length]); err != nil {
				p.buffers[i] = nil
				return err
			}
		}
	}
	return nil
}

// unmap ends the use of the buffers of the other ranks.
func (p *peers) unmap() error {
	var errs []error
	for i, w := range p.buffers {
		if w != nil && w != p.own {
			errs = append(errs, w.Free())
		}
		p.buffers[i] = nil
	}
	return errors.Join(errs...)
}

// free ends the use of all buffers. No other rank uses the buffer of this rank any more.
func (p *peers) free() error {
	err := p.unmap()
	if p.own != nil {
		err = errors.Join(err, p.own.Free())
		p.own = nil
	}
	return err
}

// closeMax bounds the wait of Close for the other ranks of the host.
const closeMax = time.Second

// close frees the exchange buffer when the other ranks do not map it anymore. If they do not say so, the memory remains
// in use until the device is closed, since they may still read it.
func (p *peers) close() error {
	err := p.unmap()
	if errors.Is(err, device.ErrClosed) {
		return nil // the device has been closed before, with all its memory
	}
	ctx, stop := context.WithTimeout(context.Background(), closeMax)
	defer stop()
	if p.g.local.Err() == nil && p.g.local.Barrier(ctx) == nil {
		err = errors.Join(err, p.free())
	}
	return err
}

func (*peers) name() string { return "peer" }

// singlePassMax is the length in bytes of the longest vector that each rank reduces as a whole, in one pass, if there is one host. For
// longer ones a second pass should cost less than to read the vectors of all ranks; this is not measured.
const singlePassMax = 64 << 10

func (p *peers) run(ctx context.Context, transfers []transfer) error {
	for _, m := range transfers {
		if err := p.transfer(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// begin ends the first part of a pass: it waits until all ranks have filled a half of their buffers. Their reads from this half in
// the pass before the last one, perhaps of an earlier call, have ended: they have waited for their streams since.
func (p *peers) begin(ctx context.Context) error {
	if err := p.g.stream.Wait(ctx); err != nil {
		return err
	}
	return p.g.local.Barrier(ctx)
}

// at returns n bytes of the current half of the exchange buffer of a local rank.
func (p *peers) at(rank, offset, n int) device.Region {
	if p.second {
		offset += p.half
	}
	return device.Region{Buffer: p.buffers[rank], Offset: offset, Bytes: n}
}

// transfer performs a transfer, in passes.
func (p *peers) transfer(ctx context.Context, m transfer) error {
	ranks := len(p.buffers)
	length, room := 0, p.half
	switch m.kind {
	case transferReduce, transferAllReduce:
		length = m.src.Bytes
	case transferBroadcast:
		length = m.dst.Bytes
	case transferAllGather:
		length = m.src.Bytes
	case transferReduceScatter, transferAllToAll: // each rank fills a part for each other rank
		length, room = m.src.Bytes/ranks, p.half/ranks&^(partAlign-1)
	}
	for at := 0; at < length; at += room {
		n := min(room, length-at)
		if err := p.put(m, at, n, room); err != nil {
			return err
		}
		if err := p.begin(ctx); err != nil {
			return err
		}
		if err := p.get(m, at, n, room); err != nil {
			return err
		}
		p.second = !p.second
	}
	return nil
}

// put queues the copy of n bytes, or n bytes of each part, into the exchange buffer.
func (p *peers) put(m transfer, at, n, room int) error {
	g := p.g
	switch m.kind {
	case transferBroadcast:
		if g.index != m.root {
			return nil
		}
		return g.stream.Copy(p.at(g.index, 0, n), part(m.dst, at, n))
	case transferReduce, transferAllReduce, transferAllGather:
		return g.stream.Copy(p.at(g.index, 0, n), part(m.src, at, n))
	}
	length := m.src.Bytes / len(p.buffers)
	for i := range p.buffers {
		if err := g.stream.Copy(p.at(g.index, i*room, n), part(m.src, i*length+at, n)); err != nil {
			return err
		}
	}
	return nil
}

// get queues the copies and reductions from the buffers.
func (p *peers) get(m transfer, at, n, room int) error {
	g := p.g
	switch m.kind {
	case transferReduce:
		if g.index == m.root {
			return p.fold(m, part(m.dst, at, n), 0)
		}
	case transferAllReduce:
		return p.fold(m, part(m.dst, at, n), 0)
	case transferReduceScatter:
		return p.fold(m, part(m.dst, at, n), g.index*room)
	case transferBroadcast:
		if g.index != m.root {
			return g.stream.Copy(part(m.dst, at, n), p.at(m.root, 0, n))
		}
	case transferAllGather, transferAllToAll:
		length, from := m.dst.Bytes/len(p.buffers), 0
		if m.kind == transferAllToAll {
			from = g.index * room
		}
		for i := range p.buffers {
			if err := g.stream.Copy(part(m.dst, i*length+at, n), p.at(i, from, n)); err != nil {
				return err
			}
		}
	}
	return nil
}

// fold queues the reduction of the bytes at an offset of all buffers, in the order of the ranks.
func (p *peers) fold(m transfer, dst device.Region, offset int) error {
	stream := p.g.stream.(device.Reducer)
	err := stream.Copy(dst, p.at(0, offset, dst.Bytes))
	for i := 1; i < len(p.buffers) && err == nil; i++ {
		err = cmp.Or(err, stream.Reduce(dst, p.at(i, offset, dst.Bytes), m.t, m.op))
	}
	return err
}
