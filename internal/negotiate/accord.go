// Package negotiate has the ranks of a communicator find out what they have in
// common, so that all of them carry collectives out alike.
//
// Most callers make a communicator and call Reach before its first operation.
// The ranks vote: on the slowest classes of paths between any two of them, on whether all
// share memory, and a part of that which none of them uses for something else.
// If they are on several hosts, a few of them time a few all-reduces, which
// tells how far the links are from what their class predicts. The largest of all
// votes counts, number by number, so that all ranks come to the same result.
//
// Reach waits for all ranks, with no limit but its context, and fails if that
// ends, or the process of a rank does. All ranks call it for the same
// communicators at the same time; calls for several communicators may run at
// once.
package negotiate

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"math"
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

// PieceBytes is how much of a vector a rank shows at a time: enough for ranks that
// share a processor to have something to do in each turn.
const PieceBytes = 256 << 10

// NoPart says that a communicator has no part of the shared memory.
const NoPart = -1

// Areas is how many areas of memory a node shares with others of its host, one for each
// communicator. What none uses costs nothing.
const Areas = shmexec.AreasMax

// AreaSize is the length of each in bytes.
func AreaSize() int { return shmexec.AreaSize(PieceBytes) }

// Config is what a rank knows of a communicator.
type Config struct {
	Comm *engine.Comm
	// Vote is another communicator of the same ranks, for the votes, and Trial
	// one of TrialRanks, nil on all others.
	Vote, Trial *engine.Comm
	Rank        int
	Hosts       plan.Hosts       // of the ranks
	Classes     cost.PathClasses // of the paths to all others
	// Known is what ranks have found that include those of this communicator: the
	// same on all of them, but for ranks that know nothing, where it is the zero
	// value.
	Known Finding
	// Timeout is how long ranks wait for others that do not come, which are then
	// named in an engine.TimeoutError. 0 is for ever.
	Timeout time.Duration
	// Selector is told how collectives are carried out.
	Selector *selector.Selector
	// Allocator is that of the node, and SameProcess says that its memory is shared
	// by goroutines of this process alone. Gone are the numbers of nodes that use no
	// memory of others any more.
	Allocator   *shmexec.Allocator
	SameProcess bool
	Gone        []int
	Pool        *bufpool.Pool // lends memory for the votes
	Log         *slog.Logger
}

// A Finding is what the links between hosts are like.
type Finding struct {
	Class transport.Class // the slowest between two of them
	Links cost.Links
}

// ballot is f as votes, so that the largest are of those that know something.
func (f Finding) ballot() []uint8 {
	b := []uint8{uint8(f.Class)}
	for _, x := range [...]float64{f.Links.Delay, f.Links.Work, f.Links.Byte} {
		b = binary.BigEndian.AppendUint64(b, math.Float64bits(x))
	}
	return b
}

func parseFinding(votes []uint8) (f Finding) {
	f.Class = transport.Class(votes[0])
	for i, x := range [...]*float64{&f.Links.Delay, &f.Links.Work, &f.Links.Byte} {
		*x = math.Float64frombits(binary.BigEndian.Uint64(votes[1+8*i:]))
	}
	return f
}

// An Accord is what ranks have come to.
type Accord struct {
	// Known is what any of the ranks knew.
	Known Finding

	// Part is the part of the shared memory that the communicator has, which
	// goes back to the Allocator when it ends, or NoPart.
	Part  int
	Found Finding // that of Known where that is for the same class
}

// Reach has the ranks come to an Accord.
func Reach(ctx context.Context, cfg Config) (a Accord, err error) {
	a.Part = NoPart
	size := cfg.Comm.Size()
	if size == 1 {
		return a, nil
	}
	v := voters{comm: cfg.Vote, selector: selector.New(cfg.Rank, size, cfg.Pool, fixed(0)), timeout: cfg.Timeout}
	cfg.Allocator.Forget(cfg.Gone)
	mem, nodes := memoryOf(cfg.Comm.Links(), cfg.Rank), nodesOf(cfg.Comm.Links())
	if mem != nil {
		defer func() {
			if a.Part == NoPart {
				mem.release()
			}
		}()
	}
	ballot := append(cfg.Classes.Ballot(), cost.Scarcity(shmexec.Processors()), mem.level())
	ballot = append(ballot, cfg.Allocator.Ballot(nodes)...)
	known := len(ballot)
	ballot = append(ballot, cfg.Known.ballot()...)
	if err := v.most(ctx, ballot); err != nil {
		return a, cfg.failed(ctx, err)
	}
	classes, scarcity, level, parts := cost.CountClasses(ballot), ballot[3], ballot[4], ballot[5:known]
	a.Known = parseFinding(ballot[known:])
	a.Found.Class = classes.Far
	if a.Known.Class == classes.Far {
		a.Found = a.Known
	} else if a.Found.Links, err = v.gauge(ctx, classes.Far, cfg); err != nil {
		return a, cfg.failed(ctx, err)
	}
	if tuner := classes.Tuner(cfg.Hosts, a.Found.Links); tuner != nil {
		cfg.Selector.SetTuner(tuner)
	}
	cfg.Selector.UseHosts(cfg.Hosts)
	if level == apart {
		return a, nil
	}
	if a.Part, err = v.share(ctx, cfg, parts, nodes, mem); err != nil {
		return a, cfg.failed(ctx, err)
	}
	if a.Part == NoPart {
		return a, nil
	}
	b := shmexec.New(mem.config(cfg, a.Part, int(cost.Scarcity(int(scarcity)))))
	cfg.Comm.UseExecutor(exec.Shared, b.Executor)
	cfg.Comm.SetPlace(b.Place())
	cfg.Selector.UseBoard(b)
	return a, nil
}

// sharings is how often ranks try to take the same part of the memory.
const sharings = 8

// share has all ranks take the same part of their memory, and clear it. Other
// communicators of some of them may do that at the same time, so that they vote
// on whether it has worked, and otherwise try again. The second vote also tells
// all that no rank has missed the first one: it could take part in another, for
// the same memory.
func (v voters) share(ctx context.Context, cfg Config, votes []uint8, nodes []int, mem *memory) (part int, err error) {
	for try := range sharings {
		part, ok := shmexec.Choose(votes, int(cfg.Comm.ID()>>(8*try)%shmexec.AreasMax)*min(1, try))
		if !ok {
			cfg.Log.Info("no shared memory is left for a communicator: too many are open, or others of these ranks were", "most", shmexec.AreasMax)
			return NoPart, nil
		}
		took, all, err := v.take(ctx, cfg, part, nodes, mem)
		switch {
		case err == nil && all:
			return part, nil
		case took && err != nil:
			cfg.Allocator.Return(part)
		case took:
			cfg.Allocator.Undo(part)
		}
		if err == nil {
			votes = cfg.Allocator.Ballot(nodes)
			err = v.most(ctx, votes)
		}
		if err != nil {
			return NoPart, err
		}
	}
	cfg.Log.Info("no shared memory for a communicator: others that are made at the same time have taken it", "tries", sharings)
	return NoPart, nil
}

// How far a rank has come with a part.
const (
	tookClean uint8 = iota
	tookDirty
	missed
)

// take takes a part, and reports whether this rank has and whether all have.
// Only then is it cleared, and a further vote says that it is: a rank that has
// missed it may still look at it, since it has voted before the others came to
// the vote, for whom a communicator has come and gone meanwhile.
func (v voters) take(ctx context.Context, cfg Config, part int, nodes []int, mem *memory) (took, all bool, err error) {
	isClean, took := cfg.Allocator.Take(part, nodes)
	if took && !mem.reserveCounters(part, cfg.Log) {
		cfg.Allocator.Undo(part)
		took = false
	}
	worst := []uint8{missed}
	switch {
	case took && isClean:
		worst[0] = tookClean
	case took:
		worst[0] = tookDirty
	}
	if err := v.most(ctx, worst); err != nil || worst[0] != tookDirty {
		return took, worst[0] == tookClean, err
	}
	if !isClean {
		shmexec.Clear(mem.own(part))
	}
	return took, true, v.most(ctx, worst)
}

// failed is why a vote has. If a rank has left, or has given up, the first collective
// will tell.
func (cfg *Config) failed(ctx context.Context, err error) error {
	if p, ok := errors.AsType[*engine.PeerError](err); ok && !p.Left {
		return p
	}
	if late, ok := errors.AsType[*engine.TimeoutError](err); ok {
		return late
	}
	if odd, ok := errors.AsType[*engine.MismatchError](err); ok {
		return odd
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	cfg.Comm.RefuseCollectives(err)
	return nil
}

// nodesOf are the numbers of the nodes at the other ends of links.
func nodesOf(links []*link.Link) (nodes []int) {
	for _, l := range links {
		nodes = append(nodes, l.Peer)
	}
	return nodes
}

// voters are the ranks that vote, on a communicator of their own.
type voters struct {
	comm     *engine.Comm
	selector *selector.Selector
	timeout  time.Duration
}

// fixed always chooses the all-reduce of an index. The first one is sound for
// short vectors, and needs no model of what all would cost, which takes its
// time with many ranks.
func fixed(index int) selector.Tuner {
	return selector.Chooser(func(n cost.Need) cost.Choice {
		return cost.Choice{Index: index, Algorithm: plan.Algorithms(n.Collective)[index], Channels: 1}
	})
}

// most leaves the largest of all ranks' votes, number by number.
func (v voters) most(ctx context.Context, votes []uint8) error {
	return v.allReduce(ctx, votes, len(votes), kernel.Uint8, kernel.Max)
}

func (v voters) allReduce(ctx context.Context, data []byte, count int, t kernel.Type, op kernel.Op) error {
	task := selector.Task{Kind: plan.AllReduce, Type: uint8(t), Op: uint8(op), Elem: t.Size(), Count: count}
	return v.run(ctx, exec.Work{Recipe: v.selector.Recipe(&task), Data: data, Reduce: kernel.Reducer(t, op)})
}

func (v voters) run(ctx context.Context, w exec.Work) error {
	w.Timeout = v.timeout
	op, err := v.comm.Start(&w)
	if err == nil {
		err = op.Wait(ctx)
	}
	return err
}
