package comm

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/bufpool"
	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/engine/shmexec"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/mesh"
	"github.com/nexar-go/nexar/internal/negotiate"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/rpc"
	"github.com/nexar-go/nexar/internal/selector"
)

// firstID is the id of the communicator with which a world forms. All others are
// derived by engine.ID.
const firstID = 1

// Config configures a Factory.
type Config struct {
	Mesh          *mesh.Mesh
	Network       cost.Network // cost model of links that were not measured
	Algorithms    []string     // pinned algorithms; see selector.ParsePins
	Hints         selector.Hints
	Memory        string        // profile of the buffer pool; see NewPool
	Pool          *bufpool.Pool // replaces that pool, if not nil
	CallTimeout   time.Duration
	CallsInFlight int
	// MessageTimeout and DeadlockTimeout are those of [engine.StallConfig].
	MessageTimeout, DeadlockTimeout time.Duration
	Errors                          Errors
	Log                             *slog.Logger
}

// Errors translates errors of the engine for users of a communicator.
type Errors interface {
	// Translate names the ranks, nodes and calls in err.
	Translate(c *Comm, err error) error
	// Ended returns the error of operations on c after cause has ended it.
	Ended(c *Comm, cause error) error
	engine.Describer
}

// A Factory builds the communicators of a node, from view to view.
type Factory struct {
	Pool *bufpool.Pool // of all communicators

	mesh      *mesh.Mesh
	engine    *engine.Engine // of mesh
	network   cost.Network
	allocator *shmexec.Allocator
	pins      map[plan.Collective]selector.Pin
	config    Config
	errors    Errors
	log       *slog.Logger

	// last and lastKnown are used by First and next, which do not run concurrently.
	last      membership.View     // of the latest communicator of a world
	lastKnown negotiate.LinkModel // ViewContext.known of that view

	mu       sync.Mutex
	services map[*rpc.Service]bool // of the communicators that have not been closed
	calls    uint64                // number of remote calls on closed communicators
}

// A ViewContext builds communicators of one view.
type ViewContext struct {
	*Factory
	View   membership.View
	Before membership.View // of the world's previous communicator
	// known is the LinkModel of the first world. It is the same on all nodes of the view
	// that have one, and final once the communicator of the world is built.
	known negotiate.LinkModel
	// timeout bounds the wait for ranks of the world; 0 means no limit.
	timeout time.Duration
}

// NewFactory returns the Factory of a node that is in no view yet.
func NewFactory(cfg Config) (*Factory, error) {
	pins, err := selector.ParsePins(cfg.Algorithms)
	pool := cfg.Pool
	if pool == nil {
		pool = NewPool(cfg.Memory)
	}
	f := &Factory{
		Pool: pool, mesh: cfg.Mesh, engine: cfg.Mesh.Engine(), network: cfg.Network, allocator: new(shmexec.Allocator), pins: pins,
		config: cfg, errors: cfg.Errors, log: cfg.Log, services: make(map[*rpc.Service]bool),
	}
	f.engine.WatchStalls(engine.StallConfig{
		MessageTimeout: cfg.MessageTimeout, DeadlockTimeout: cfg.DeadlockTimeout,
		Describer: cfg.Errors, Calls: f.activity, Log: cfg.Log,
	})
	return f, err
}

// activity returns the number of remote calls that this node has begun on all communicators, and
// whether one is in progress.
func (f *Factory) activity() (begun uint64, busy bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	begun = f.calls
	for s := range f.services {
		n, working := s.Activity()
		begun, busy = begun+n, busy || working
	}
	return begun, busy
}

// NewPool returns a buffer pool of a memory profile: "inference", or "training", the
// default.
func NewPool(profile string) *bufpool.Pool {
	tiers := bufpool.Training()
	if profile == "inference" {
		tiers = bufpool.Inference()
	}
	pool, err := bufpool.New(tiers)
	if err != nil {
		panic("nexar: " + err.Error())
	}
	return pool
}

// negotiationPool returns a pool for the short vectors of a negotiation.
func negotiationPool() *bufpool.Pool {
	pool, err := bufpool.New(bufpool.Config{Tiers: []bufpool.Tier{{Size: 4 << 10, Keep: 4}}})
	if err != nil {
		panic("nexar: " + err.Error())
	}
	return pool
}

// Mesh returns the mesh of the node.
func (f *Factory) Mesh() *mesh.Mesh { return f.mesh }

// First builds the communicator of the view with which a world forms.
func (f *Factory) First(ctx context.Context, view membership.View) (*Comm, error) {
	v := &ViewContext{Factory: f, View: view}
	world, err := v.world(ctx, firstID)
	if err != nil {
		return nil, translated(err)
	}
	v.known = world.reached.Links
	f.last, f.lastKnown = view, v.known
	return world, nil
}

// next builds the communicator of a later view. The error, which may be a buildError,
// names the ranks that do not take part within timeout.
func (f *Factory) next(ctx context.Context, view membership.View, timeout time.Duration) (*Comm, error) {
	if err := f.mesh.Adopt(ctx, view); err != nil {
		return nil, err // A later view exists, or the caller may try again.
	}
	v := &ViewContext{Factory: f, View: view, Before: f.last, known: f.lastKnown, timeout: timeout}
	for epoch := f.last.Epoch + 1; f.last.Epoch > 0 && epoch < view.Epoch; epoch++ {
		v.Decline(engine.ID(firstID, viewID, epoch)) // Others may have begun to build it.
	}
	world, err := v.world(ctx, engine.ID(firstID, viewID, view.Epoch))
	if err != nil {
		return nil, err
	}
	v.mesh.DisconnectFormer()     // All ranks have adopted the view.
	v.known = world.reached.Known // A new node learns it from the others.
	f.last, f.lastKnown = view, v.known
	return world, nil
}

// world builds the communicator of all ranks of the view.
func (v *ViewContext) world(ctx context.Context, id uint64) (*Comm, error) {
	ranks := make([]int, v.View.Size())
	for r := range ranks {
		ranks[r] = r
	}
	self, _ := v.View.Rank(v.mesh.Self())
	world, err := v.build(ctx, id, ranks, self)
	v.timeout = 0
	return world, err
}

// trialComm returns a communicator of the ranks that measure links, or nil on other ranks.
func (v *ViewContext) trialComm(id uint64, rank int, hosts plan.Hosts, links []*link.Link) *engine.Comm {
	ranks := negotiate.MeasuringRanks(hosts)
	i := slices.Index(ranks, rank)
	if i < 0 {
		return nil
	}
	some := make([]*link.Link, len(ranks))
	for i, r := range ranks {
		some[i] = links[r]
	}
	return v.engine.NewNamedComm(id, i, some, ranks)
}

// Decline drops all frames for a communicator that this node does not build. It does not notify
// the other ranks.
func (v *ViewContext) Decline(id uint64) {
	for _, id := range [...]uint64{id, engine.ID(id, controlID), engine.ID(id, trialID), engine.ID(id, callsID)} {
		v.engine.Decline(id)
	}
}

// settle waits for functions that other ranks have called on ended communicators. Their
// contexts have ended.
func (f *Factory) settle(ended ...*rpc.Service) {
	ctx, cancel := context.WithTimeout(context.Background(), SettleTimeout)
	defer cancel()
	for _, s := range ended {
		if err := s.Wait(ctx); err != nil {
			f.log.Warn("functions called by other ranks still run after the communicator was closed", "waited", SettleTimeout)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range ended {
		if f.services[s] {
			begun, _ := s.Activity()
			f.calls += begun
		}
		delete(f.services, s)
	}
}

// Settle waits for the called functions of all communicators, which must all have ended.
func (f *Factory) Settle() {
	f.mu.Lock()
	open := slices.Collect(maps.Keys(f.services))
	f.mu.Unlock()
	f.settle(open...)
}
