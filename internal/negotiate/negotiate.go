// Package negotiate lets the ranks of a new communicator agree on the properties that determine
// the algorithms of collectives.
//
// All ranks call [Run] before the first operation of the communicator. Each rank contributes a
// vector of numbers: the slowest classes of its paths, how it can share memory with the others, the
// key of its areas, and the parts of them that are in use. The element-wise maximum of all vectors is
// the result, the same on all ranks. If the ranks are on several hosts, a few of them measure
// all-reduces to determine the deviation of the links from the model of their class.
//
// Run waits for all ranks, limited only by its context and Config.Timeout. It fails if the
// context ends or the process of a rank does. Several communicators may negotiate concurrently.
//
// The first ranks of up to eight hosts measure, and a result within a factor of five of the model is ignored, since it may be due to a
// busy machine. Split communicators use the result of the world. More than 64 ranks negotiate over a tree of links that exist. If a
// rank leaves meanwhile, some ranks may have agreed and others not: one that has not agreed begins no collective.
package negotiate

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/bufpool"
	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/engine/shmexec"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/selector"
	"github.com/nexar-go/nexar/transport"
)

// PieceBytes is the length of the pieces of a vector in shared memory. Ranks that share a
// processor do a useful amount of work on a piece in each turn.
const PieceBytes = 256 << 10

// NoPart is the part of a communicator without shared memory.
const NoPart = -1

// WithoutMemory begins every log message about a communicator without shared memory on a host
// that supports it.
const WithoutMemory = "communicator without shared memory"

// Areas is the number of areas that a node shares with others of its host, one for each
// communicator. An unused area takes no memory.
const Areas = shmexec.AreasMax

// AreaSize returns the length of each area in bytes.
func AreaSize() int { return shmexec.AreaSize(PieceBytes) }

// Config describes a communicator from the view of one of its ranks.
type Config struct {
	Comm *engine.Comm
	// Control is a communicator of the same ranks that carries the negotiation. Trial is a
	// communicator of the MeasuringRanks, nil on all others.
	Control, Trial *engine.Comm
	Rank           int
	Hosts          plan.Hosts       // of the ranks
	Classes        cost.PathClasses // of the paths to all others
	Hops           cost.Hops        // between ranks, the same on all of them; nil: 1
	// Distances are those of ranks that watch each other, in ascending order and from 1 on. Ranks of a large
	// communicator negotiate over a tree of these distances. Nil means none.
	Distances []int
	// Watches returns the ranks that a rank watches, and those that watch it. It is the same on all ranks.
	Watches func(rank int) []int
	// OnDemand says that this node links itself to others only when something needs it.
	OnDemand bool
	// Known is the result of an earlier negotiation among more ranks. It is the same on all of
	// them, and zero on ranks that took no part.
	Known LinkModel
	// Timeout bounds the wait for other ranks. An engine.TimeoutError names the missing ones. 0
	// means no limit.
	Timeout time.Duration
	// Selector receives the result.
	Selector *selector.Selector
	// Allocator allocates parts of the node's areas. SameProcess says that all users are
	// goroutines of this process. Detached has the numbers of nodes that no longer access the
	// memory of others.
	Allocator   *shmexec.Allocator
	SameProcess bool
	Detached    []int
	Sharing
	Pool *bufpool.Pool // for the buffers of the negotiation
	Log  *slog.Logger
}

// A Sharing has the means of the ranks of one host to share memory. The zero value has none but the links
// that exist.
type Sharing struct {
	// Host, if not nil, attaches the areas of all ranks without links to them. Names are the names of the
	// ranks there.
	Host  transport.HostMemory
	Names []string
	// LinkAll, if not nil, links this rank to all others, which call it as well, and returns the
	// classes of the paths then. It is called if the areas of some rank cannot be attached.
	LinkAll func(ctx context.Context) (cost.PathClasses, error)
}

// A LinkModel describes the links between hosts.
type LinkModel struct {
	Class transport.Class // the slowest of all links
	Costs cost.Links
}

// A Result is the outcome of a negotiation.
type Result struct {
	// Known is Config.Known of the ranks that have one.
	Known LinkModel
	// Links is Known if it has the class of these links, and measured otherwise.
	Links LinkModel
	// Part is the part of the shared memory that belongs to the communicator until it is
	// returned to the Allocator, or NoPart.
	Part int
}

// Run negotiates with all ranks of a communicator, and configures its engine.Comm and Selector.
func Run(ctx context.Context, cfg Config) (r Result, err error) {
	r.Part = NoPart
	size := cfg.Comm.Size()
	if size == 1 {
		return r, nil
	}
	n := negotiator{comm: cfg.Control, selector: selector.New(cfg.Rank, size, cfg.Pool, cfg.tuner()), timeout: cfg.Timeout}
	cfg.Allocator.Forget(cfg.Detached)
	nodes := nodesOf(cfg.Comm.Links())
	b := ballot{
		Paths: paths{cfg.Classes.Ballot(), cfg.level()}, Crowd: cfg.crowd(), Demand: cfg.demand(),
		Parts: [shmexec.AreasMax]uint8(cfg.Allocator.Votes(nodes)), Known: cfg.Known,
	}
	profiles := newProfiles(cfg.Rank, size, cfg.key())
	if err := n.agree(ctx, &b, profiles); err != nil {
		return r, cfg.failed(ctx, err)
	}
	classes, level, parts := cost.CountClasses(b.Paths.Classes), b.Paths.Level, b.Parts[:]
	r.Known = b.Known
	r.Links.Class = classes.Far
	switch {
	case r.Known.Class == classes.Far:
		r.Links = r.Known
	case cfg.Hops == nil: // Ranks several hops apart would measure relays as well.
		if r.Links.Costs, err = n.measureLinks(ctx, classes.Far, cfg); err != nil {
			return r, cfg.failed(ctx, err)
		}
	}
	useClasses := func(classes cost.PathClasses, linked cost.Linked) {
		if tuner := classes.Tuner(cfg.Hosts, r.Links.Costs, cfg.Hops); tuner != nil {
			cfg.Selector.SetTuner(tuner.Crowded(b.Crowd).Linked(linked))
		}
	}
	useClasses(classes, cfg.linked(b.Demand))
	cfg.Selector.UseHosts(cfg.Hosts)
	var mem *memory
	defer func() {
		if mem != nil && r.Part == NoPart {
			mem.release()
		}
	}()
	attached := level == attachable
	if attached {
		mem = cfg.attachMemory(profiles)
		r.Part, attached, err = n.claimPart(ctx, cfg, parts, nodes, mem)
	}
	if err == nil && !attached && level != notShared {
		if mem != nil {
			mem.release()
		}
		if mem, classes, err = n.linkedMemory(ctx, cfg); err != nil {
			return r, cfg.failed(ctx, err)
		}
		useClasses(classes, nil)
		if mem == nil {
			return r, nil
		}
		parts = cfg.Allocator.Votes(nodes)
		if err = n.maximum(ctx, parts); err == nil {
			r.Part, _, err = n.claimPart(ctx, cfg, parts, nodes, mem)
		}
	}
	if err != nil {
		return r, cfg.failed(ctx, err)
	}
	if r.Part == NoPart {
		return r, nil
	}
	shared := shmexec.New(mem.config(cfg, r.Part, processors(profiles)))
	cfg.Comm.UseExecutor(exec.Shared, shared.Executor)
	cfg.Comm.SetPlace(shared.Place())
	cfg.Selector.UseSharedMemory(shared, groups(profiles))
	return r, nil
}

// linkedMemory links this rank to all others, and returns the areas that they share over the links, or nil if
// not all ranks share them, and the classes of the paths of all ranks.
func (n negotiator) linkedMemory(ctx context.Context, cfg Config) (mem *memory, classes cost.PathClasses, err error) {
	own := cfg.Classes
	if cfg.LinkAll != nil {
		if own, err = cfg.LinkAll(ctx); err != nil {
			return nil, classes, err
		}
	}
	p := paths{own.Ballot(), notShared}
	if mem = memoryOf(cfg.Comm.Links(), cfg.Rank); mem != nil {
		p.Level = linkable
	}
	if err = n.agree(ctx, &p); mem != nil && (err != nil || p.Level == notShared) {
		mem.release()
		mem = nil
	}
	return mem, cost.CountClasses(p.Classes), err
}

// claimTries bounds the attempts to claim the same part on all ranks.
const claimTries = 8

// claimPart claims a part of the memory that is free on all ranks, and clears it. Other
// communicators with some of these ranks may claim it concurrently, so the ranks exchange their
// success, and otherwise try again. That exchange also ensures that all ranks have completed
// the first one, so that none can still claim the part for another communicator. mem is nil if
// this rank has not attached the areas that it needs; attached reports whether all ranks have.
func (n negotiator) claimPart(ctx context.Context, cfg Config, used []uint8, nodes []int, mem *memory) (part int, attached bool, err error) {
	for try := range claimTries {
		part, ok := shmexec.Choose(used, int(cfg.Comm.ID()>>(8*try)%shmexec.AreasMax)*min(1, try))
		if !ok {
			cfg.Log.Info(WithoutMemory+": all parts are in use, or may still be read by ranks that have gone", "parts", shmexec.AreasMax)
			return NoPart, true, nil
		}
		claimed, all, err := n.tryPart(ctx, cfg, part, nodes, mem)
		isUnattached := errors.Is(err, errNotAttached)
		switch {
		case err == nil && all:
			return part, true, nil
		case claimed && err != nil && !isUnattached:
			cfg.Allocator.Return(part)
		case claimed:
			cfg.Allocator.Undo(part)
		}
		if isUnattached {
			return NoPart, false, nil
		}
		if err == nil {
			used = cfg.Allocator.Votes(nodes)
			err = n.maximum(ctx, used)
		}
		if err != nil {
			return NoPart, false, err
		}
	}
	cfg.Log.Info(WithoutMemory+": other communicators have claimed the parts concurrently", "tries", claimTries)
	return NoPart, true, nil
}

// The outcomes of a rank's claim, from best to worst.
const (
	claimedClean uint8 = iota
	claimedDirty
	notClaimed
	notAttached
)

// errNotAttached says that some rank has not attached the areas that it needs.
var errNotAttached = errors.New("the areas of some rank cannot be attached")

// tryPart claims a part, and reports whether this rank has succeeded and whether all have. Only
// in the second case it clears the part, and a further exchange confirms that. Otherwise a rank
// may still use the part for a communicator that has ended on all other ranks.
func (n negotiator) tryPart(ctx context.Context, cfg Config, part int, nodes []int, mem *memory) (claimed, all bool, err error) {
	worst := []uint8{notClaimed}
	if mem == nil {
		worst[0] = notAttached
		return false, false, cmp.Or(n.maximum(ctx, worst), errNotAttached)
	}
	isClean, claimed := cfg.Allocator.Take(part, nodes)
	if claimed && !mem.reserveCounters(part, cfg.Log) {
		cfg.Allocator.Undo(part)
		claimed = false
	}
	switch {
	case claimed && isClean:
		worst[0] = claimedClean
	case claimed:
		worst[0] = claimedDirty
	}
	err = n.maximum(ctx, worst)
	if err == nil && worst[0] == notAttached {
		err = errNotAttached
	}
	if err != nil || worst[0] != claimedDirty {
		return claimed, worst[0] == claimedClean, err
	}
	if !isClean {
		shmexec.Clear(mem.own(part))
	}
	return claimed, true, n.maximum(ctx, worst)
}

// failed returns the error of Run. It is nil if a rank has left or has cancelled: the first
// collective then returns err.
func (cfg *Config) failed(ctx context.Context, err error) error {
	if p, ok := errors.AsType[*engine.PeerError](err); ok && !p.Left {
		return p
	}
	if late, ok := errors.AsType[*engine.TimeoutError](err); ok {
		return late
	}
	if mismatched, ok := errors.AsType[*engine.MismatchError](err); ok {
		return mismatched
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	cfg.Comm.RefuseCollectives(err)
	return nil
}

// nodesOf returns the numbers of the peers of links.
func nodesOf(links []*link.Link) (nodes []int) {
	for _, l := range links {
		nodes = append(nodes, l.Peer)
	}
	return nodes
}

// A negotiator exchanges numbers with all ranks of a communicator.
type negotiator struct {
	comm     *engine.Comm
	selector *selector.Selector
	timeout  time.Duration
}

// crowd returns the number of ranks that share a processor on the host of this rank.
func (cfg *Config) crowd() uint8 {
	ranks := 0
	for rank := range cfg.Comm.Size() {
		if cfg.Hosts.Same(rank, cfg.Rank) {
			ranks++
		}
	}
	return cost.Crowd(ranks, shmexec.Processors())
}

// treeFrom is the size of the smallest communicator that negotiates over a tree. In smaller ones the short
// collectives of the program need the links of the negotiation as well.
const treeFrom = 65

// tuner returns the Tuner of the negotiation. On a sparse topology it must prefer neighbors, and among many ranks the
// links of watches, which exist.
func (cfg *Config) tuner() selector.Tuner {
	switch {
	case cfg.Hops != nil:
		return cost.New(cost.TCP(true)).Over(cfg.Hops)
	case cfg.Comm.Size() >= treeFrom && cfg.Distances != nil:
		return overTree(cfg.Distances)
	}
	return fixed(0)
}

// demand returns 1 if this node links itself to others on demand, or else 0.
func (cfg *Config) demand() uint8 {
	if cfg.OnDemand {
		return 1
	}
	return 0
}

// linked returns the links of the ranks after the negotiation: those of watches, and those of the negotiation itself. demand is
// the maximum over all ranks. If it is 0 all ranks are linked, and linked returns nil.
func (cfg *Config) linked(demand uint8) cost.Linked {
	if demand == 0 || cfg.Watches == nil || cfg.Hops != nil {
		return nil
	}
	size, watches := cfg.Comm.Size(), cfg.Watches
	over := cfg.tuner().Choose(cost.Need{Collective: plan.AllReduce, Size: size}).Algorithm
	return func(rank int) []int {
		return slices.AppendSeq(watches(rank), over.Plan(rank, size, 0).Peers)
	}
}

// overTree returns a Tuner for all-reduces over the tree of some distances. A fingerprint has the index of the algorithm
// that does the same over another tree.
func overTree(distances []int) selector.Tuner {
	a := plan.DistanceAlgorithm(distances)
	index := slices.IndexFunc(plan.Algorithms(plan.AllReduce), func(b plan.Algorithm) bool { return b.Name == "ordered" })
	return selector.Chooser(func(cost.Need) cost.Choice { return cost.Choice{Index: index, Algorithm: a, Channels: 1} })
}

// fixed returns a Tuner that always chooses the algorithm of an index. The first algorithm
// suits short vectors. Unlike the cost model, this takes no time with many ranks.
func fixed(index int) selector.Tuner {
	return selector.Chooser(func(n cost.Need) cost.Choice {
		return cost.Choice{Index: index, Algorithm: plan.Algorithms(n.Collective)[index], Channels: 1}
	})
}

func (n negotiator) allReduce(ctx context.Context, data []byte, count int, t kernel.Type, op kernel.Op) error {
	task := selector.Shape{Kind: plan.AllReduce, Type: uint8(t), Op: uint8(op), Elem: t.Size(), Count: count}
	return n.run(ctx, exec.Work{Schedule: n.selector.Schedule(&task), Data: data, Reduce: kernel.Reducer(t, op)})
}

func (n negotiator) run(ctx context.Context, w exec.Work) error {
	w.Timeout = n.timeout
	op, err := n.comm.Start(&w)
	if err == nil {
		err = op.Wait(ctx)
	}
	return err
}
