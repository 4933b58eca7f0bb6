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

// peers is an inside whose GPUs read each other's memory. Each rank has a window, memory that the others map once. A
// vector goes through it in rounds: the ranks copy parts into their windows, wait until all have done so, and then
// copy or reduce from the windows of the others, by their own kernels. Reductions are in the order of the local ranks.
//
// No work of a GPU waits for another process, so the death of a process cannot block a stream.
type peers struct {
	g       *Group
	own     device.Buffer
	windows []device.Buffer // by local rank
	half    int             // bytes of a half of a window
	second  bool            // the next round uses the second half
}

// process names this process among those of the host, and exported has the windows that it shares.
var (
	process  = sync.OnceValue(func() (id [16]byte) { _, _ = rand.Read(id[:]); return id })
	exported sync.Map // of device.Buffer, by number
	numbers  struct {
		sync.Mutex
		last uint64
	}
)

// An offer names the window of a rank for the others of the host.
type offer struct {
	Process [16]byte
	Number  uint64
	Shared  cuda.Shared
	Failed  text // why there is none
	Private text // why other processes cannot map it
	Size    int64
}

// connectPeers creates the windows, and maps those of the other ranks. Without them, it leaves the way through
// the host, and adds the reason.
func (g *Group) connectPeers(ctx context.Context) error {
	p := &peers{g: g, windows: make([]device.Buffer, len(g.hosts[0]))}
	mine, number, err := p.offer(ctx)
	if number != 0 {
		defer exported.Delete(number)
	}
	mine.Failed = textOf(err)
	offers := make([]offer, len(p.windows))
	if err := nexar.AllGather(ctx, g.local, offers, []offer{mine}); err != nil {
		return errors.Join(err, p.free())
	}
	err = p.open(offers)
	failures := make([]text, len(offers))
	if err := nexar.AllGather(ctx, g.local, failures, []text{textOf(err)}); err != nil {
		return errors.Join(err, p.free())
	}
	for i, f := range failures {
		if f != (text{}) {
			g.reason += fmt.Sprintf("; peer access is not used: rank %d: %v", g.hosts[g.host][i], f)
			return p.free()
		}
	}
	// A window has an equal part for each rank, in each half.
	smallest := mine.Size
	for _, o := range offers {
		smallest = min(smallest, o.Size)
	}
	p.half = int(smallest) / 2 &^ (partAlign - 1)
	g.inside = p
	return nil
}

// offer allocates the window of this rank.
func (p *peers) offer(ctx context.Context) (o offer, number uint64, err error) {
	const most = 1 << 40
	o = offer{Process: process(), Size: int64(min(max(p.g.cfg.PeerMemory, 2*p.step()), most))}
	if p.own, err = p.g.gpu.Alloc(ctx, int(o.Size)); err != nil {
		return o, 0, err
	}
	o.Shared, err = cuda.Share(p.own)
	o.Private = textOf(err)
	numbers.Lock()
	numbers.last++
	o.Number = numbers.last
	numbers.Unlock()
	exported.Store(o.Number, p.own)
	return o, o.Number, nil
}

// step returns the least bytes of half a window.
func (p *peers) step() int { return len(p.windows) * partAlign }

// partAlign is the alignment of parts in a window, a multiple of the size of all elements and of a copy of a kernel.
const partAlign = 256

// open maps the windows of the other ranks.
func (p *peers) open(offers []offer) (err error) {
	for i, o := range offers {
		switch shared, here := exported.Load(o.Number); {
		case o.Failed != (text{}):
			return errors.New(o.Failed.String())
		case i == p.g.index:
			p.windows[i] = p.own
		case o.Process == process() && here:
			p.windows[i], err = p.g.gpu.Access(shared.(device.Buffer))
		case o.Private != (text{}):
			return errors.New(o.Private.String())
		default:
			p.windows[i], err = p.g.gpu.Import(o.Shared)
		}
		if err != nil {
			p.windows[i] = nil
			return err
		}
	}
	return nil
}

// unmap ends the use of the windows of the other ranks.
func (p *peers) unmap() error {
	var errs []error
	for i, w := range p.windows {
		if w != nil && w != p.own {
			errs = append(errs, w.Free())
		}
		p.windows[i] = nil
	}
	return errors.Join(errs...)
}

// free ends the use of all windows. No other rank uses that of this one.
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

// close frees the window when the other ranks do not map it anymore. If they do not say so, the memory remains
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

func (p *peers) run(ctx context.Context, moves []move) error {
	for _, m := range moves {
		if err := p.move(ctx, m); err != nil {
			return err
		}
	}
	// When the call returns, the others have read all that it has put into the window.
	if err := p.g.stream.Wait(ctx); err != nil {
		return err
	}
	return p.g.local.Barrier(ctx)
}

// begin ends the first part of a round, in which ranks fill a half of their windows: it waits until all have done so.
// What they read there in the round before the last one is done, since they have waited for their streams since.
func (p *peers) begin(ctx context.Context) error {
	if err := p.g.stream.Wait(ctx); err != nil {
		return err
	}
	return p.g.local.Barrier(ctx)
}

// at returns n bytes of the current half of the window of a local rank.
func (p *peers) at(rank, offset, n int) device.Region {
	if p.second {
		offset += p.half
	}
	return device.Region{Buffer: p.windows[rank], Offset: offset, Bytes: n}
}

// move performs a move, in rounds.
func (p *peers) move(ctx context.Context, m move) error {
	ranks := len(p.windows)
	length, room := 0, p.half
	switch m.kind {
	case moveReduce:
		length = m.src.Bytes
	case moveBroadcast:
		length = m.dst.Bytes
	case moveAllGather:
		length = m.src.Bytes
	case moveReduceScatter, moveAllToAll: // each rank fills a part for each other rank
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

// put queues the copy of n bytes, or n bytes of each part, into the window.
func (p *peers) put(m move, at, n, room int) error {
	g := p.g
	switch m.kind {
	case moveBroadcast:
		if g.index != m.root {
			return nil
		}
		return g.stream.Copy(p.at(g.index, 0, n), part(m.dst, at, n))
	case moveReduce, moveAllGather:
		return g.stream.Copy(p.at(g.index, 0, n), part(m.src, at, n))
	}
	length := m.src.Bytes / len(p.windows)
	for i := range p.windows {
		if err := g.stream.Copy(p.at(g.index, i*room, n), part(m.src, i*length+at, n)); err != nil {
			return err
		}
	}
	return nil
}

// get queues the copies and reductions from the windows.
func (p *peers) get(m move, at, n, room int) error {
	g := p.g
	switch m.kind {
	case moveReduce:
		if g.index == m.root {
			return p.fold(m, part(m.dst, at, n), 0)
		}
	case moveReduceScatter:
		return p.fold(m, part(m.dst, at, n), g.index*room)
	case moveBroadcast:
		if g.index != m.root {
			return g.stream.Copy(part(m.dst, at, n), p.at(m.root, 0, n))
		}
	case moveAllGather, moveAllToAll:
		length, from := m.dst.Bytes/len(p.windows), 0
		if m.kind == moveAllToAll {
			from = g.index * room
		}
		for i := range p.windows {
			if err := g.stream.Copy(part(m.dst, i*length+at, n), p.at(i, from, n)); err != nil {
				return err
			}
		}
	}
	return nil
}

// fold queues the reduction of the bytes at an offset of all windows, in the order of the ranks.
func (p *peers) fold(m move, dst device.Region, offset int) error {
	stream, ok := p.g.stream.(device.Reducer)
	if !ok {
		return fmt.Errorf("device %s has no reductions", p.g.gpu.Name())
	}
	err := stream.Copy(dst, p.at(0, offset, dst.Bytes))
	for i := 1; i < len(p.windows) && err == nil; i++ {
		err = cmp.Or(err, stream.Reduce(dst, p.at(i, offset, dst.Bytes), m.t, m.op))
	}
	return err
}
