package nexar

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/nexar-go/nexar/internal/board"
	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/recipe"
	"github.com/nexar-go/nexar/internal/tune"
	"github.com/nexar-go/nexar/transport"
)

// pieceBytes is how much of a vector a rank has in shared memory at a time. With
// a few ranks all of it stays in the second cache.
const pieceBytes = 64 << 10

// agree has all ranks find out what they have in common, by a vote on a
// communicator of its own: whether all share memory, in which case collectives
// run there; and otherwise how they reach each other, for which algorithms are
// chosen. It fails if ctx ends, or the process of a rank does.
func (c *Comm) agree(ctx context.Context, vote *engine.Comm) error {
	if c.Size() == 1 {
		return nil
	}
	log, links := c.home.log, c.comm.Links()
	mem := c.memory(links)
	hosts := c.hosts()
	var slow tune.Ways
	for _, p := range c.paths() {
		slow.Add(tune.WayOf(p.Link, p.Bulk), hosts.Same(c.rank, p.Rank))
	}
	nodes := peersOf(links)
	ballot := append(slow.Ballot(), tune.Scarcity(board.Processors()), mem.level())
	ballot = append(ballot, c.home.shelf.Ballot(nodes)...)
	// The first algorithm is a sound one for short vectors, without a model of
	// what all would cost, which takes its time with many ranks. There is no
	// limit but ctx.
	voters := &Comm{
		comm: vote, rank: c.rank, ranks: c.ranks, nodes: c.nodes, home: &home{log: log},
		book: recipe.New(c.rank, c.Size(), newPool(""), fixed(0)),
	}
	err := AllReduce(ctx, voters, ballot, Max)
	if err != nil {
		return failed(ctx, err)
	}
	ways, scarcity, level, parts := tune.CountWays(ballot), ballot[3], ballot[4], ballot[5:]
	var found tune.Links
	if level == apart {
		if found, err = c.gauge(ctx, voters, ways, hosts); err != nil {
			return failed(ctx, err)
		}
	}
	if tuner := ways.Tuner(hosts, found); tuner != nil {
		c.book.SetTuner(tuner)
	}
	c.book.UseHosts(hosts)
	if level == apart {
		return nil
	}
	part, isClean, ok := c.home.shelf.Take(parts, nodes)
	if !ok {
		log.Info("no shared memory is left for a communicator: too many of them", "most", board.ShelfSize)
		return nil
	}
	c.part = part
	if !isClean {
		clear(board.Part(mem.areas[c.rank], part))
		if err := voters.Barrier(ctx); err != nil {
			return failed(ctx, err)
		}
	}
	c.share(mem, level, int(tune.Scarcity(int(scarcity))))
	return nil
}

// noPart is the part of the shared memory of a communicator that has none.
const noPart = -1

// share runs collectives in a part of the memory that ranks share.
func (c *Comm) share(mem *memory, level uint8, processors int) {
	cfg := board.Config{
		Rank: c.rank, Sleep: mem.via.Sleep, Wake: mem.via.Wake, SameProcess: c.transport == "mem", Processors: processors,
	}
	for _, area := range mem.areas {
		cfg.Areas = append(cfg.Areas, board.Part(area, c.part))
	}
	if level == open {
		cfg.Pull = mem.pull
	}
	b := board.New(cfg)
	c.comm.UseBoard(b)
	c.book.UseBoard(b)
}

// peersOf are the numbers of the nodes at the other ends of links.
func peersOf(links []*link.Link) (nodes []int) {
	for _, l := range links {
		nodes = append(nodes, l.Peer)
	}
	return nodes
}

// failed is why a vote has. If a rank has left, or has given up, the first
// operation that needs it will tell.
func failed(ctx context.Context, err error) error {
	if p, ok := errors.AsType[*PeerError](err); ok && !p.Left {
		return p
	}
	return context.Cause(ctx)
}

// gauge has all ranks find out how fast the links between them are, where that
// is not what the ways let expect.
func (c *Comm) gauge(ctx context.Context, voters *Comm, ways tune.Ways, hosts plan.Hosts) (l tune.Links, err error) {
	if ways.Tuner(hosts, l) == nil {
		return l, nil
	}
	short, long := tune.Trials(c.Size())
	once := long
	once.Times = 1
	least := []float64{math.Inf(1), math.Inf(1)}
	for i, t := range []tune.Trial{short, once} {
		if least[i], err = voters.try(ctx, t); err != nil {
			return l, err
		}
	}
	if err := AllReduce(ctx, voters, least, Max); err != nil {
		return l, err
	}
	if least[1] < hurry.Seconds() {
		again, err := voters.try(ctx, long)
		least[1] = min(least[1], again)
		if err == nil {
			err = AllReduce(ctx, voters, least, Max)
		}
		if err != nil {
			return l, err
		}
	}
	l = ways.Fit(hosts, least[0], least[1])
	c.home.log.Debug("links measured", "short", least[0], "long", least[1], "links", l)
	return l, nil
}

// hurry is how long an all-reduce may take to be tried more than once.
const hurry = 50 * time.Millisecond

// try is the least time that a trial takes, in seconds.
func (c *Comm) try(ctx context.Context, t tune.Trial) (float64, error) {
	before := c.book.Tuner()
	defer c.book.SetTuner(before)
	c.book.SetTuner(fixed(t.Index))
	data, least := make([]float32, t.Bytes/4), math.Inf(1)
	for range t.Times {
		start := time.Now()
		if err := AllReduce(ctx, c, data, Sum); err != nil {
			return 0, err
		}
		least = min(least, time.Since(start).Seconds())
	}
	return least, nil
}

// fixed always chooses the all-reduce of an index.
func fixed(index int) recipe.Tuner {
	return recipe.Chooser(func(tune.Need) tune.Choice {
		return tune.Choice{Index: index, Algorithm: plan.Algorithms(plan.AllReduce)[index], Channels: 1}
	})
}

// hosts says which ranks are on one host.
func (c *Comm) hosts() plan.Hosts {
	names := make([]string, c.Size())
	for rank, n := range c.nodes {
		names[rank] = n.Host
	}
	return plan.HostsOf(names)
}

// How much memory ranks share: each can read all of the others', or areas, or
// nothing, at least for one of them.
const (
	open uint8 = iota
	areas
	apart
)

// A memory is what all ranks share with this one.
type memory struct {
	areas [][]byte           // of every rank
	via   transport.Sharer   // a connection that can sleep on them
	open  []transport.Puller // connections by which all other memory can be read, or nil
}

// memory is nil if not all ranks share memory with this one.
func (c *Comm) memory(links []*link.Link) *memory {
	if c.Size() > tune.SharedRanksMax {
		return nil
	}
	m := &memory{areas: make([][]byte, len(links)), open: make([]transport.Puller, len(links))}
	for rank, l := range links {
		if rank == c.rank {
			continue
		}
		s, ok := l.Conn().(transport.Sharer)
		if !ok {
			return nil
		}
		own, peer := s.Areas()
		if board.PieceBytes(len(peer)/board.ShelfSize) == 0 {
			return nil
		}
		m.areas[c.rank], m.areas[rank], m.via = own, peer, s
		if p, ok := s.(transport.Puller); m.open != nil && ok && p.Pulls() {
			m.open[rank] = p
		} else {
			m.open = nil
		}
	}
	return m
}

func (m *memory) level() uint8 {
	switch {
	case m == nil:
		return apart
	case m.open == nil:
		return areas
	}
	return open
}

func (m *memory) pull(rank int, dst []byte, addr uint64) error { return m.open[rank].Pull(dst, addr) }
