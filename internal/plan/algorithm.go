package plan

// An Algorithm carries out a collective.
type Algorithm struct {
	// Name is unique among the algorithms of the collective: "ring".
	Name string

	// Ordered says that operands are combined in the order of the ranks, so that the op need
	// not be commutative. It is false if nothing is reduced.
	Ordered bool

	// Canonical says that every chunk is reduced by one expression, which depends on the number
	// of ranks alone. All canonical algorithms of all collectives that reduce over all ranks
	// have the same expression, and a scan has one canonical algorithm. So the bits of a result
	// depend neither on the choice among them nor on the division of the vector into slices and
	// chunks.
	Canonical bool

	// Uneven says that chunks may differ in length. In an all-to-all they
	// may then differ from pair to pair.
	Uneven bool

	// Single says that every span of its plans is a single chunk, for any number of ranks and any
	// root, so that a vector can be cut into parts. See [Plan.Single].
	Single bool

	// Shared says that the algorithm is for shared memory, where a message to many ranks is
	// stored once and received data stays in place. Over links it would waste messages or memory.
	Shared bool

	// Apart says that the algorithm has fewer rounds than others, but more messages. It is for ranks
	// on hosts of their own: where ranks share processors, every message takes time of the others.
	Apart bool

	// Placed says that the algorithm is for hosts on a torus or an oversubscribed tree, in the order of their ranks.
	// Ranks do not know their network, so the algorithm is used only if a setting fixes it.
	Placed bool

	// PerPeer is the least number of messages that every rank receives from each other rank, or 0. If it is positive, the
	// work of every rank grows with the number of ranks, and in shared memory the algorithm can be excluded for many ranks and short
	// vectors without its plans. Over links the cost model has a bound for all algorithms.
	PerPeer int

	// Alike says that all ranks but the root have like plans, or all but rank 0 in a collective without a root: as many moves of
	// the same kinds and numbers of chunks in each round. So the plans of two ranks tell the greatest number of messages and chunks
	// of any rank.
	Alike bool

	// Fits reports whether the algorithm is suitable for a number of ranks. It would be correct
	// for any other number, but waste memory or messages.
	Fits func(size int) bool

	// Plan returns the plan of a rank. Collectives without a root ignore root.
	Plan func(rank, size, root int) Plan

	// Rounds returns the same plans, computed round by round. It is nil if plans are only made
	// as a whole.
	Rounds func(size, root int) Rounds
}

// Plans returns the plans of all ranks.
func (a Algorithm) Plans(size, root int) []Plan {
	plans := make([]Plan, size)
	for rank := range plans {
		plans[rank] = a.Plan(rank, size, root)
	}
	return plans
}

// Algorithms returns all algorithms of a collective. The first is a good choice for short
// vectors.
func Algorithms(c Collective) []Algorithm {
	switch c {
	case Barrier:
		return []Algorithm{
			{Name: "dissemination", Plan: rootless(DisseminationBarrier), Rounds: disseminationBarrier, Fits: always, Uneven: true},
			{Name: "two-phase", Plan: rootless(TwoPhaseBarrier), Fits: upTo(4), Uneven: true},
			{Name: "flat", Plan: rootless(FlatBarrier), Single: true, Fits: upTo(64), Uneven: true, Shared: true},
			{Name: "leader", Plan: rootless(TwoPhaseBarrier), Fits: above(8), Uneven: true, Shared: true, Alike: true},
			{Name: "ring", Plan: rootless(RingBarrier), Rounds: ringBarrier, Single: true, Fits: always, Uneven: true},
			{Name: "recursive-doubling", Plan: rootless(RecursiveDoublingBarrier), Rounds: recursiveDoublingBarrier, Fits: always, Uneven: true},
			{Name: "binomial", Plan: rootless(BinomialBarrier), Fits: above(64), Uneven: true},
		}
	case Broadcast:
		return []Algorithm{
			{Name: "binomial", Plan: BinomialBroadcast, Single: true, Fits: always, Uneven: true},
			{Name: "chain", Plan: ChainBroadcast, Single: true, Fits: always, Uneven: true},
			{Name: "scatter-ring", Plan: ScatterRingBroadcast, Fits: always, Uneven: true},
			{Name: "flat", Plan: FlatBroadcast, Single: true, Fits: always, Uneven: true, Shared: true, Alike: true},
		}
	case Gather:
		return []Algorithm{
			{Name: "binomial", Plan: BinomialGather, Fits: always, Uneven: true},
			{Name: "direct", Plan: DirectGather, Single: true, Fits: always, Uneven: true},
		}
	case AllGather:
		return []Algorithm{
			{Name: "circulant", Plan: rootless(CirculantAllGather), Rounds: circulantAllGather, Fits: always, Uneven: true},
			{Name: "direct", Plan: rootless(DirectAllGather), Single: true, PerPeer: 1, Fits: always, Uneven: true},
			{Name: "ring", Plan: rootless(RingAllGather), Rounds: ringAllGather, Single: true, Fits: always, Uneven: true},
			{Name: "halving", Plan: rootless(HalvingAllGather), Rounds: halvingAllGather, Fits: always, Uneven: true},
			{Name: "leader", Plan: rootless(LeaderAllGather), Fits: above(8), Uneven: true, Shared: true, Alike: true},
			{Name: "pat", Plan: rootless(PATAllGather), Rounds: patAllGather, Fits: always, Placed: true},
		}
	case Scatter:
		return []Algorithm{
			{Name: "binomial", Plan: BinomialScatter, Fits: always, Uneven: true},
			{Name: "direct", Plan: DirectScatter, Single: true, Fits: always, Uneven: true},
		}
	case AllToAll:
		return []Algorithm{
			{Name: "pairwise", Plan: rootless(PairwiseAllToAll), Single: true, PerPeer: 1, Fits: always, Uneven: true},
			{Name: "bruck", Plan: rootless(BruckAllToAll), Fits: always},
		}
	}
	return reductions(c)
}

// reductions returns the algorithms of the collectives that apply an op.
func reductions(c Collective) []Algorithm {
	switch c {
	case Reduction:
		return []Algorithm{
			{Name: "binomial", Plan: BinomialReduce, Single: true, Fits: always, Uneven: true, Ordered: true, Canonical: true},
			{Name: "rabenseifner", Plan: RabenseifnerReduce, Fits: always, Uneven: true, Ordered: true, Canonical: true},
			{Name: "chain", Plan: ChainReduce, Single: true, Fits: always, Uneven: true},
			{Name: "staged", Plan: StagedReduce, Single: true, Fits: always, Uneven: true, Ordered: true, Canonical: true, Shared: true},
			{Name: "flat", Plan: FlatReduce, Single: true, Fits: above(8), Uneven: true, Ordered: true, Canonical: true, Shared: true, Alike: true},
		}
	case AllReduce:
		return []Algorithm{
			{Name: "recursive-doubling", Plan: rootless(RecursiveDoublingAllReduce), Rounds: recursiveDoublingAllReduce, Single: true, Fits: always, Uneven: true, Ordered: true, Canonical: true},
			{Name: "flat", Plan: rootless(FlatAllReduce), Single: true, Fits: upTo(8), Uneven: true, Ordered: true, Canonical: true},
			{Name: "ordered", Plan: rootless(OrderedAllReduce), Single: true, Fits: always, Uneven: true, Ordered: true, Canonical: true},
			{Name: "rabenseifner", Plan: rootless(RabenseifnerAllReduce), Rounds: rabenseifnerAllReduce, Fits: always, Uneven: true, Ordered: true, Canonical: true},
			{Name: "direct", Plan: rootless(DirectAllReduce), Rounds: directAllReduce, Single: true, PerPeer: 2, Fits: always, Uneven: true},
			{Name: "circulant", Plan: rootless(CirculantAllReduce), Rounds: circulantAllReduce, Fits: always, Uneven: true},
			{Name: "ring", Plan: rootless(RingAllReduce), Rounds: ringAllReduce, Single: true, Fits: always, Uneven: true},
			{Name: "staged", Plan: rootless(StagedAllReduce), Single: true, PerPeer: 2, Fits: always, Uneven: true, Ordered: true, Canonical: true, Shared: true},
			{Name: "leader", Plan: rootless(LeaderAllReduce), Single: true, Fits: above(8), Uneven: true, Ordered: true, Canonical: true, Shared: true, Alike: true},
			{Name: "recursive-multiplying", Plan: rootless(RecursiveMultiplyingAllReduce), Rounds: recursiveMultiplyingAllReduce, Single: true, Fits: always, Uneven: true, Ordered: true, Canonical: true, Apart: true},
			{Name: "swing-1d", Plan: rootless(SwingAllReduce(1)), Rounds: swingAllReduce(1), Fits: above(3), Uneven: true, Placed: true},
			{Name: "swing-2d", Plan: rootless(SwingAllReduce(2)), Rounds: swingAllReduce(2), Fits: above(3), Uneven: true, Placed: true},
			{Name: "swing-3d", Plan: rootless(SwingAllReduce(3)), Rounds: swingAllReduce(3), Fits: above(7), Uneven: true, Placed: true},
			{Name: "swing-short-2d", Plan: rootless(SwingShortAllReduce(2)), Rounds: swingShortAllReduce(2), Single: true, Fits: above(3), Uneven: true, Placed: true},
			{Name: "swing-short-3d", Plan: rootless(SwingShortAllReduce(3)), Rounds: swingShortAllReduce(3), Single: true, Fits: above(7), Uneven: true, Placed: true},
		}
	case ReduceScatter:
		return []Algorithm{
			{Name: "circulant", Plan: rootless(CirculantReduceScatter), Rounds: circulantReduceScatter, Fits: always, Uneven: true},
			{Name: "rabenseifner", Plan: rootless(RabenseifnerReduceScatter), Fits: always, Uneven: true, Ordered: true, Canonical: true},
			{Name: "direct", Plan: rootless(DirectReduceScatter), Single: true, PerPeer: 1, Fits: always, Uneven: true},
			{Name: "ring", Plan: rootless(RingReduceScatter), Rounds: ringReduceScatter, Single: true, Fits: always, Uneven: true},
			{Name: "staged", Plan: rootless(StagedReduceScatter), Single: true, PerPeer: 1, Fits: always, Uneven: true, Ordered: true, Canonical: true, Shared: true},
			{Name: "leader", Plan: rootless(LeaderReduceScatter), Fits: above(8), Uneven: true, Ordered: true, Canonical: true, Shared: true, Alike: true},
			{Name: "pat", Plan: rootless(PATReduceScatter), Rounds: patReduceScatter, Fits: always, Placed: true},
		}
	case Scan:
		return []Algorithm{
			{Name: "recursive-doubling", Plan: rootless(RecursiveDoublingScan), Single: true, Fits: always, Uneven: true, Ordered: true, Canonical: true},
			{Name: "flat", Plan: rootless(FlatScan), Single: true, Fits: upTo(8), Uneven: true, Ordered: true, Shared: true},
		}
	case ExclusiveScan:
		return []Algorithm{
			{Name: "recursive-doubling", Plan: rootless(RecursiveDoublingExclusiveScan), Single: true, Fits: always, Uneven: true, Ordered: true, Canonical: true},
			{Name: "flat", Plan: rootless(FlatExclusiveScan), Single: true, Fits: upTo(8), Uneven: true, Ordered: true, Shared: true},
		}
	}
	return nil
}

func rootless(f func(rank, size int) Plan) func(rank, size, root int) Plan {
	return func(rank, size, _ int) Plan { return f(rank, size) }
}

func always(int) bool { return true }

func upTo(most int) func(size int) bool { return func(size int) bool { return size <= most } }

func above(few int) func(size int) bool { return func(size int) bool { return size > few } }
