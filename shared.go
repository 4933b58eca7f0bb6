package nexar

import (
	"context"
	"errors"

	"github.com/nexar-go/nexar/internal/board"
	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/mesh"
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
func (c *Comm) agree(ctx context.Context, vote *engine.Comm, links []*link.Link, paths []mesh.PathInfo) error {
	if c.Size() == 1 {
		return nil
	}
	mem := c.memory(links)
	hosts := c.hosts()
	var slow tune.Ways
	for _, p := range paths {
		slow.Add(tune.WayOf(p.Link, p.Bulk), hosts.Same(c.rank, p.Rank))
	}
	ballot := append(slow.Ballot(), tune.Scarcity(board.Processors()), mem.level())
	// The first algorithm is a sound one for short vectors, without a model of
	// what all would cost, which takes its time with many ranks.
	first := func(tune.Need) tune.Choice {
		return tune.Choice{Algorithm: plan.Algorithms(plan.AllReduce)[0], Channels: 1}
	}
	voters := &Comm{
		comm: vote, rank: c.rank, nodes: c.nodes, log: c.log,
		book: recipe.New(c.rank, c.Size(), newPool(""), recipe.Chooser(first)), // and no limit but ctx
	}
	if err := AllReduce(ctx, voters, ballot, Max); err != nil {
		// A rank has gone. If it has left, or has given up, the first operation
		// that needs it will tell.
		if p, ok := errors.AsType[*PeerError](err); ok && !p.Left {
			return p
		}
		return context.Cause(ctx)
	}
	if tuner := tune.CountWays(ballot).Tuner(hosts); tuner != nil {
		c.book.SetTuner(tuner)
	}
	c.book.UseHosts(hosts)
	if level := ballot[len(ballot)-1]; level < apart {
		cfg := board.Config{
			Rank: c.rank, Areas: mem.areas, Sleep: mem.via.Sleep, Wake: mem.via.Wake, SameProcess: c.transport == "mem",
			Processors: int(tune.Scarcity(int(ballot[len(ballot)-2]))),
		}
		if level == open {
			cfg.Pull = mem.pull
		}
		b := board.New(cfg)
		c.comm.UseBoard(b)
		c.book.UseBoard(b)
	}
	return nil
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
		if board.PieceBytes(len(peer)) == 0 {
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
