package conformance

import (
	"fmt"
	"iter"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestConformance runs every collective with every algorithm and with the choice of the
// model, for all types, ops and roots, and for lengths around every limit. Over mem it runs all trials, or a third of them
// if the test is brief, and over other transports a sample that is spread over all trials.
func TestConformance(t *testing.T) {
	relayed, relayedSample := []int{4, 7, 8}, uint64(8)
	pendingRanks, memSample := []int{5, 8}, uint64(1)
	mostRanks := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16}
	manyRanks := []int{34} // in groups
	someRanks := []int{2, 3, 4, 5, 8}
	fewRanks := []int{2, 3, 5}
	if worldtest.Brief() {
		relayed, relayedSample = []int{7}, 40
		pendingRanks, memSample = []int{5}, 3
		mostRanks, manyRanks, someRanks, fewRanks = []int{1, 2, 3, 5, 8}, []int{18}, []int{2, 5}, []int{3}
	}
	for _, test := range []struct {
		worldtest.Medium
		ranks  []int
		sample uint64 // runs one of so many trials
	}{
		{worldtest.Mem(), mostRanks, memSample},
		{worldtest.Mem(), manyRanks, 500},
		{worldtest.MemLinks(), mostRanks, 3},
		{worldtest.Sim(), someRanks, 10},
		{worldtest.QUIC(), someRanks, 10},
		{worldtest.SHM(), someRanks, 10},
		{worldtest.SHMLinks(), fewRanks, 5},
		{worldtest.TLS(), fewRanks, 10},
		{worldtest.TCP(), fewRanks, 10},
		{worldtest.Mixed(), []int{3, 4, 6}, 10},
		{worldtest.Sim().OnDemand(), pendingRanks, 80},
		{worldtest.QUIC().OnDemand(), pendingRanks, 80},
		{worldtest.TLS().OnDemand(), pendingRanks, 80},
		{worldtest.MemLinks().Eager(), pendingRanks, 80},
		{worldtest.TLS().Eager(), pendingRanks, 80},
		{worldtest.MemLinks().Relayed(t, "k-regular:2"), relayed, relayedSample},
		{worldtest.MemLinks().Relayed(t, "k-regular:4"), relayed, relayedSample},
		{worldtest.MemLinks().Relayed(t, "hypercube"), relayed, relayedSample},
		{worldtest.Sim().Relayed(t, "k-regular:2"), relayed, 2 * relayedSample},
		{worldtest.Sim().Relayed(t, "k-regular:4"), relayed, 2 * relayedSample},
		{worldtest.Sim().Relayed(t, "hypercube"), relayed, 2 * relayedSample},
	} {
		test.sample = worldtest.Thin(test.sample)
		for _, n := range test.ranks {
			t.Run(fmt.Sprintf("%s/ranks=%d", test.Name, n), func(t *testing.T) {
				test.Require(t)
				w := test.World(t, n, nexar.Config{})
				b := trialGenerator{n: n, kinds: kinds(), network: test.Cost}
				tried := make(map[plan.Collective]int)
				all, sampled, pending := uint64(0), 0, 0
				for tr := range b.trials {
					all++
					if tried[tr.collective] > 0 && worldtest.Mix(all)%test.sample != 0 {
						continue
					}
					sampled++
					tried[tr.collective]++
					if test.IsOnDemand() && sampled%4 == 1 {
						w.AwaitPending(t, 0)
						pending++
					}
					if err := tr.run(w.Comms); err != nil {
						t.Fatal(err)
					}
				}
				t.Logf("%d of %d trials, at least %d of them with pending links, by collective %v", sampled, all, pending, tried)
			})
		}
	}
}

// A trialGenerator generates trials for n ranks.
type trialGenerator struct {
	n       int
	kinds   []*kind
	network cost.Network
	drawn   uint64 // number of trials
}

// algorithms returns all algorithms for ranks on the hosts of hostsOf.
func (b *trialGenerator) algorithms(c plan.Collective) []plan.Algorithm {
	return plan.AlgorithmsOn(c, hostsOf(b.n))
}

// hostsOf returns the hosts of n ranks of a world.
func hostsOf(n int) plan.Hosts {
	names := make([]string, n)
	for rank := range names {
		names[rank] = worldtest.HostOf(rank)
	}
	return plan.HostsOf(names)
}

// ops are the ops of integers. Floats have the first floatOps of them.
var ops = [...]nexar.Op{nexar.Sum, nexar.Prod, nexar.Min, nexar.Max, nexar.Avg, nexar.BitAnd, nexar.BitOr, nexar.BitXor}

const floatOps = 5

func (k *kind) ops() []nexar.Op {
	if k.isFloat() {
		return ops[:floatOps]
	}
	return ops[:]
}

// draw fills in the open fields of a trial. They vary between trials, and are the same in
// each run.
func (b *trialGenerator) draw(tr trial) trial {
	b.drawn++
	h := worldtest.Mix(b.drawn)
	if tr.kind == nil {
		tr.kind = b.kinds[h%uint64(len(b.kinds))]
	}
	if tr.op == 0 {
		list := tr.kind.ops()
		tr.op = list[h>>16%uint64(len(list))]
		tr.flavour = flavour(h >> 24 % uint64(flavours))
	}
	tr.late = int(h >> 32 % uint64(8*b.n)) // usually none
	tr.started = h>>56%3 == 0
	return tr
}

// trials returns all trials, those of different kinds mixed.
func (b *trialGenerator) trials(yield func(trial) bool) {
	next, stop := iter.Pull(b.matrix)
	defer stop()
	for tr := range b.shapes {
		if !yield(tr) {
			return
		}
		if tr, ok := next(); ok && !yield(tr) {
			return
		}
	}
	for {
		tr, ok := next()
		if !ok || !yield(tr) {
			return
		}
	}
}

// matrix returns trials of each reduction, with every type, op and flavour, at the
// lengths where the tuner switches, and with functions.
func (b *trialGenerator) matrix(yield func(trial) bool) {
	for _, c := range plan.Collectives() {
		if !c.Reduces() {
			continue
		}
		for _, k := range b.kinds {
			for _, op := range k.ops() {
				for f := range flavours {
					tr := b.draw(trial{collective: c, kind: k, op: op, flavour: f, algorithm: -1, root: int(b.drawn) % b.n})
					tr.count = [...]int{1, 19, 1009}[b.drawn%3]
					if !yield(tr) {
						return
					}
				}
			}
		}
	}
	for _, tr := range b.custom() {
		if !yield(tr) {
			return
		}
	}
	for _, tr := range b.switches() {
		if !yield(tr) {
			return
		}
	}
}

// custom returns AllReduceFunc by every algorithm that keeps the order of ranks.
func (b *trialGenerator) custom() (list []trial) {
	for i, a := range b.algorithms(plan.AllReduce) {
		if !a.Ordered || !a.Fits(b.n) {
			continue
		}
		for _, channels := range []int{1, 3} {
			for _, count := range []int{0, 1, 1009, 40_009} {
				list = append(list, b.draw(trial{
					collective: plan.AllReduce, op: nexar.Sum, custom: true, count: count, algorithm: i, channels: channels,
				}))
			}
		}
	}
	return list
}

// switches returns the lengths at which the tuner switches to another algorithm or number
// of channels, and the next shorter ones.
func (b *trialGenerator) switches() (list []trial) {
	tuner := cost.New(b.network)
	most := 22
	if b.n > 5 {
		most = 17
	}
	for _, c := range plan.Collectives() {
		last := ""
		for exponent := range most {
			need := cost.Need{
				Collective: c, Size: b.n, Bytes: 1 << exponent, Blocks: inBlocks(c),
				Ordered: c == plan.Scan || c == plan.ExclusiveScan,
			}
			choice := tuner.Choose(need)
			this := fmt.Sprint(choice.Index, choice.Channels)
			if this == last {
				continue
			}
			last = this
			for _, less := range []int{0, 1} {
				tr := b.draw(trial{collective: c, algorithm: -1, root: int(b.drawn) % b.n})
				tr.count = (1<<exponent)/tr.kind.typ.Size() - less
				if inBlocks(c) {
					tr.count /= b.n
				}
				tr.count = max(0, tr.count)
				list = append(list, tr)
			}
		}
	}
	return list
}

// shapes returns all collectives by all algorithms, with all roots and several numbers of
// channels, for short lengths and lengths around the limits.
func (b *trialGenerator) shapes(yield func(trial) bool) {
	for _, c := range plan.Collectives() {
		for i, a := range b.algorithms(c) {
			if !a.Fits(b.n) {
				continue
			}
			roots := 1
			if c.Rooted() {
				roots = b.n
			}
			for root := range roots {
				for _, channels := range b.channels(c, a, root) {
					tr := trial{collective: c, algorithm: i, channels: channels, root: root}
					for _, tr := range b.lengths(tr) {
						if !yield(tr) {
							return
						}
					}
				}
			}
			if c == plan.Barrier {
				continue
			}
			for _, tr := range b.limits(trial{collective: c, algorithm: i, root: i % b.n}) {
				if !yield(tr) {
					return
				}
			}
		}
	}
}

// lengths returns short lengths.
func (b *trialGenerator) lengths(tr trial) (list []trial) {
	if tr.collective == plan.Barrier {
		return []trial{b.draw(tr)}
	}
	for _, count := range []int{0, 1, 2, b.n, 5*b.n + 1, 1009} {
		tr.count = count
		list = append(list, b.draw(tr))
	}
	return list
}

// inBlocks reports whether the vector of a collective consists of a block for each rank.
func inBlocks(c plan.Collective) bool {
	switch c {
	case plan.Gather, plan.AllGather, plan.Scatter, plan.ReduceScatter, plan.AllToAll:
		return true
	}
	return false
}

// channels returns the numbers of channels to try. Messages of several blocks use one
// channel.
func (b *trialGenerator) channels(c plan.Collective, a plan.Algorithm, root int) []int {
	if inBlocks(c) {
		for _, p := range a.Plans(b.n, root) {
			if !p.Single() {
				return []int{1}
			}
		}
	}
	return []int{1, 3, 8}
}

// limits are lengths in bytes at which the way of transfer changes.
var limits = [...]int{2 << 10, 4 << 10, wire.PayloadMax, wire.SegmentMax}

// limits returns trials with messages as long as a limit, or longer or shorter by an element;
// and one over several channels to a late rank, with many more bytes than the credit.
func (b *trialGenerator) limits(tr trial) (list []trial) {
	channels := b.channels(tr.collective, b.algorithms(tr.collective)[tr.algorithm], tr.root)
	chunks := 1
	if !inBlocks(tr.collective) {
		chunks = b.algorithms(tr.collective)[tr.algorithm].Plan(0, b.n, tr.root).Chunks
	}
	add := func(bytes, delta, channels int) {
		tr.channels = channels
		d := b.draw(tr)
		d.count = chunks*channels*(bytes/d.kind.typ.Size()) + delta
		list = append(list, d)
	}
	for i, limit := range limits {
		if limit >= wire.PayloadMax && b.n > 5 || limit >= wire.SegmentMax && b.n > 2 {
			continue
		}
		for delta := -1; delta <= 1; delta++ {
			if limit == wire.SegmentMax && delta != tr.algorithm%3-1 {
				continue
			}
			add(limit, delta, channels[i%min(2, len(channels))])
		}
	}
	if b.n <= 3 && len(channels) > 1 {
		add(wire.PayloadMax-8, 0, 20)
		list[len(list)-1].late = tr.algorithm % b.n
	}
	return list
}
