package nccl

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/device/cuda"
)

// peers is an inside whose GPUs read each other's memory. Each rank has an exchange buffer, which the others map once. A
// vector goes through it in passes: the ranks copy parts into their exchange buffers, wait until all have done so, and then
// copy or reduce from those of the others, by their own kernels. Reductions are in the order of the local ranks.
//
// No work of a GPU waits for another process, so the death of a process cannot block a stream.
type peers struct {
	g       *Group
	own     device.Buffer
	buffers []device.Buffer // by local rank
	half    int             // bytes of a half of an exchange buffer
	second  bool            // the next pass uses the second half
}

// A registry has the exchange buffers of the ranks of this process, which map those of each other by their addresses.
type registry struct {
	process func() [16]byte // names the process among those of the host
	mu      sync.Mutex
	last    uint64
	buffers map[uint64]device.Buffer
}

var shared = registry{
	process: sync.OnceValue(func() (id [16]byte) { _, _ = rand.Read(id[:]); return id }),
	buffers: make(map[uint64]device.Buffer),
}

func (r *registry) add(b device.Buffer) (number uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	r.buffers[r.last] = b
	return r.last
}

func (r *registry) remove(number uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.buffers, number)
}

// find returns the buffer of a description, or nil if it is of another process.
func (r *registry) find(d description) device.Buffer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d.Process != r.process() {
		return nil
	}
	return r.buffers[d.Number]
}

// A description tells the other ranks of the host how to map the exchange buffer of a rank.
type description struct {
	Process [16]byte
	Number  uint64
	Shared  cuda.Shared
	Failed  text // why there is none
	Private text // why other processes cannot map it
	Size    int64
}

// connectPeers creates the buffers, and maps those of the other ranks. If that fails, the ranks of the
// host use memory of the host, and the reason says so.
func (g *Group) connectPeers(ctx context.Context) error {
	p := &peers{g: g, buffers: make([]device.Buffer, len(g.hosts[0]))}
	mine, number, err := p.describe(ctx)
	defer shared.remove(number)
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
func (p *peers) describe(ctx context.Context) (o description, number uint64, err error) {
	const most = 1 << 40
	o = description{Process: shared.process(), Size: int64(min(max(p.g.cfg.ExchangeBuffer, 2*p.step()), most))}
	if p.own, err = p.g.gpu.Alloc(ctx, int(o.Size)); err != nil {
		return o, 0, err
	}
	o.Shared, err = cuda.Share(p.own)
	o.Private = textOf(err)
	o.Number = shared.add(p.own)
	return o, o.Number, nil
}

// step returns the least bytes of half an exchange buffer.
func (p *peers) step() int { return len(p.buffers) * partAlign }

// partAlign is the alignment of parts in an exchange buffer, in bytes: a multiple of the size of all elements and of
// the longest access of a kernel.
const partAlign = 256

// open maps the buffers of the other ranks.
func (p *peers) open(descriptions []description) (err error) {
	for i, o := range descriptions {
		switch here := shared.find(o); {
		case o.Failed != (text{}):
			return errors.New(o.Failed.String())
		case i == p.g.index:
			p.buffers[i] = p.own
		case here != nil:
			p.buffers[i], err = p.g.gpu.Access(here)
		case o.Private != (text{}):
			return errors.New(o.Private.String())
		default:
			p.buffers[i], err = p.g.gpu.Import(o.Shared)
		}
		if err != nil {
			p.buffers[i] = nil
			return err
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

// free ends the use of all buffers. No other rank uses that of this one.
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

func (p *peers) run(ctx context.Context, transfers []transfer) error {
	for _, m := range transfers {
		if err := p.transfer(ctx, m); err != nil {
			return err
		}
	}
	// When the call returns, the others have read all that it has put into the exchange buffer.
	if err := p.g.stream.Wait(ctx); err != nil {
		return err
	}
	return p.g.local.Barrier(ctx)
}

// begin ends the first part of a pass, in which ranks fill a half of their buffers: it waits until all have done so.
// What they read there in the pass before the last one is done, since they have waited for their streams since.
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
	case transferReduce:
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
	case transferReduce, transferAllGather:
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
	stream, ok := p.g.stream.(device.Reducer)
	if !ok {
		return fmt.Errorf("device %s has no reductions", p.g.gpu.Name())
	}
	err := stream.Copy(dst, p.at(0, offset, dst.Bytes))
	for i := 1; i < len(p.buffers) && err == nil; i++ {
		err = cmp.Or(err, stream.Reduce(dst, p.at(i, offset, dst.Bytes), m.t, m.op))
	}
	return err
}
