package nexar

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/internal/bufpool"
	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/host"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/mesh"
	"github.com/nexar-go/nexar/internal/negotiate"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/rpc"
	"github.com/nexar-go/nexar/internal/selector"
	"github.com/nexar-go/nexar/internal/shmcoll"
	"github.com/nexar-go/nexar/internal/trace"
)

// worldComm is the id of the first communicator of a view. Those of others are
// made by engine.ID.
const worldComm = 1

// A home is what all communicators of a node in one view have in common.
type home struct {
	*lasting
	view     membership.View
	before   membership.View // that of the communicator of the world before
	patience time.Duration   // for ranks that do not come; 0 is none
}

// lasting is what homes have in common, from view to view.
type lasting struct {
	mu       sync.Mutex
	services map[*rpc.Service]bool // of the communicators that have not been closed

	node   *Node           // nil for Local
	whole  atomic.Bool     // this node has the state of the world, for Sync
	last   membership.View // of the newest communicator of the world
	record trace.Log       // of the calls of functions

	// found is by the first world: so it is the same on all nodes of each later
	// view that know anything of it.
	found negotiate.Finding
	mesh  *mesh.Mesh
	net   cost.Network // where nothing better is known
	shelf *shmcoll.Shelf
	pool  *bufpool.Pool
	pins  map[plan.Collective]selector.Pin
	log   *slog.Logger

	collectiveTimeout time.Duration // 0 is none
	barrierTimeout    time.Duration
	checkpointTimeout time.Duration
	deterministic     bool
	callTimeout       time.Duration
	callsInFlight     int
	bucketBytes       int
	compressedMax     int // 0 is none
}

// newHome makes the home of a node that is in no view yet.
func newHome(m *mesh.Mesh, net cost.Network, cfg Config) (*home, error) {
	pins, err := selector.ParsePins(cfg.Algorithms)
	return &home{lasting: &lasting{
		services: make(map[*rpc.Service]bool),
		mesh:     m, net: net, shelf: new(shmcoll.Shelf), pool: newPool(cfg.Memory), pins: pins, log: cfg.Log,
		collectiveTimeout: max(0, cfg.CollectiveTimeout), barrierTimeout: max(0, cfg.BarrierTimeout),
		checkpointTimeout: max(0, cfg.CheckpointTimeout),
		callTimeout:       max(0, cfg.CallTimeout), callsInFlight: cfg.CallsInFlight,
		deterministic: cfg.Deterministic, bucketBytes: cfg.BucketBytes, compressedMax: max(0, cfg.CompressedMax),
	}}, err
}

// first makes the communicator of all ranks of a view with which a world forms.
func (h *home) first(ctx context.Context, view membership.View) (*Comm, error) {
	world, err := (&home{lasting: h.lasting, view: view}).world(ctx, worldComm)
	if err != nil {
		return nil, err
	}
	h.found, h.last = world.reached.Found, view
	h.whole.Store(true)
	return world, nil
}

// next makes the communicator of all ranks of a later view. Ranks that do not
// take part for so long are named in the error.
func (h *home) next(ctx context.Context, view membership.View, patience time.Duration) (*Comm, error) {
	if err := h.mesh.Adopt(ctx, view); err != nil {
		return nil, err // There is a later view, or the caller may come again.
	}
	for epoch := h.last.Epoch + 1; h.last.Epoch > 0 && epoch < view.Epoch; epoch++ {
		h.decline(engine.ID(worldComm, viewOf, epoch)) // Others may have begun to make it.
	}
	h = &home{lasting: h.lasting, view: view, before: h.last, patience: patience}
	world, err := h.world(ctx, engine.ID(worldComm, viewOf, view.Epoch))
	if err != nil {
		return nil, err
	}
	h.last = view
	if known := world.reached.Known; h.found != known {
		h.found = known // by those who were in the world before; this node has no other communicator yet
	}
	return world, nil
}

// world makes the communicator of all ranks of the view.
func (h *home) world(ctx context.Context, id uint64) (*Comm, error) {
	ranks := make([]int, h.view.Size())
	for r := range ranks {
		ranks[r] = r
	}
	self, _ := h.view.Rank(h.mesh.Self())
	world, err := h.newComm(ctx, id, ranks, self)
	h.patience = 0
	return world, err
}

// newComm makes the communicator with this id of some ranks of the view, of
// which this node is one. All of them make it at the same time.
func (h *home) newComm(ctx context.Context, id uint64, ranks []int, rank int) (*Comm, error) {
	c := &Comm{
		rank: rank, ranks: ranks, home: h, reached: negotiate.Accord{Part: negotiate.NoPart}, stopped: make(chan struct{}),
		book: selector.New(rank, len(ranks), h.pool, cost.New(h.net)),
	}
	for _, world := range ranks {
		c.nodes = append(c.nodes, h.view.Nodes[world])
	}
	e := h.mesh.Engine()
	links, err := h.mesh.Links(membership.View{Nodes: c.nodes})
	if u, ok := errors.AsType[*mesh.UnreachableError](err); ok {
		h.decline(id)
		return nil, &PeerError{Rank: u.Rank, Node: NodeID(u.Node), Addr: c.nodes[u.Rank].Addr(), Err: u.Err}
	}
	c.comm = e.NewComm(id, rank, links)
	c.comm.Watch(engine.Watcher{Ended: func(error) { close(c.stopped) }})
	paths := c.paths()
	c.transport, c.encrypted = mesh.Common(paths)
	vote := e.NewComm(engine.ID(id, voteOf), rank, links)
	defer vote.Close()
	c.recorded(vote)
	hosts := c.hosts()
	trial := h.trialComm(engine.ID(id, trialOf), rank, hosts, links)
	if trial != nil {
		defer trial.Close()
	}
	c.reached, err = negotiate.Reach(ctx, negotiate.Config{
		Comm: c.comm, Vote: vote, Trial: trial, Rank: rank, Hosts: hosts, Ways: c.ways(), Known: h.found, Book: c.book,
		Timeout: h.patience, Shelf: h.shelf, SameProcess: mesh.SameProcess(paths), Gone: h.mesh.Gone(), Log: h.log,
		Pool: newPool(""), // What the votes need is not kept.
	})
	if err != nil {
		// Others may have gone on. They are told, and that calls come to nothing.
		c.comm.Cancel(err)
		c.shut()
		e.NewLooseComm(engine.ID(id, callsOf), rank, links).Close()
		return nil, cmp.Or(c.translate(err), err)
	}
	c.comm.Spread(c.machine())
	c.book.Pin(h.pins)
	if err := c.serve(e.NewLooseComm(engine.ID(id, callsOf), rank, links)); err != nil {
		c.shut()
		return nil, err
	}
	return c, nil
}

// trialComm makes a communicator of the ranks that measure links, or nil where
// this is none of them.
func (h *home) trialComm(id uint64, rank int, hosts plan.Hosts, links []*link.Link) *engine.Comm {
	ranks := negotiate.TrialRanks(hosts)
	i := slices.Index(ranks, rank)
	if i < 0 {
		return nil
	}
	some := make([]*link.Link, len(ranks))
	for i, r := range ranks {
		some[i] = links[r]
	}
	return h.mesh.Engine().NewComm(id, i, some)
}

// decline does not make the communicator with this id.
func (h *home) decline(id uint64) {
	for _, id := range [...]uint64{id, engine.ID(id, voteOf), engine.ID(id, trialOf), engine.ID(id, callsOf)} {
		h.mesh.Engine().Decline(id)
	}
}

// shut ends the communicator on this rank.
func (c *Comm) shut() {
	c.comm.Close()
	if c.carrier != nil {
		c.carrier.Close()
		c.home.settle(c.calls)
	}
	if c.reached.Part != negotiate.NoPart {
		c.home.shelf.Return(c.reached.Part)
	}
}

// settle waits a while for functions that other ranks have called on
// communicators that have ended; their contexts have, too.
func (h *home) settle(ended ...*rpc.Service) {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	for _, s := range ended {
		if err := s.Wait(ctx); err != nil {
			h.log.Warn("functions that other ranks have called go on after the communicator was closed", "waited", settleTimeout)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range ended {
		delete(h.services, s)
	}
}

// settleAll is settle for all communicators.
func (h *home) settleAll() {
	h.mu.Lock()
	open := slices.Collect(maps.Keys(h.services))
	h.mu.Unlock()
	h.settle(open...)
}

// settleTimeout is how long Close waits for functions.
const settleTimeout = time.Second

// paths are the ways to the other ranks.
func (c *Comm) paths() []mesh.PathInfo { return c.home.mesh.Paths(membership.View{Nodes: c.nodes}) }

// machine are the ranks that are on this machine, this one among them.
func (c *Comm) machine() (ranks []int) {
	own := host.Machine(c.nodes[c.rank].Host)
	for rank, n := range c.nodes {
		if own != "" && host.Machine(n.Host) == own {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// hosts says which ranks are on one host.
func (c *Comm) hosts() plan.Hosts {
	names := make([]string, c.Size())
	for rank, n := range c.nodes {
		names[rank] = n.Host
	}
	return plan.HostsOf(names)
}

// ways are those in which this rank reaches the others.
func (c *Comm) ways() (w cost.Ways) {
	hosts := c.hosts()
	for _, p := range c.paths() {
		w.Add(cost.WayOf(p.Class), hosts.Same(c.rank, p.Rank))
	}
	return w
}

// What the id of a communicator is made for, of that of another one.
const (
	voteOf  = "vote"
	trialOf = "trial"
	childOf = "child"
	callsOf = "calls"
	viewOf  = "view"
)
