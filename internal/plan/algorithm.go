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

	// Sizes reports whether the algorithm is suitable for a number of ranks; nil: for any. It would be correct
	// for any other number, but waste memory or messages. See [Algorithm.Fits].
	Sizes func(size int) bool

	// Depths are the depths of the plans for [DepthRanks], so that the cost model need not make them; zero: unknown.
	Depths Depths

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

// Fits reports whether the algorithm is suitable for a number of ranks.
func (a Algorithm) Fits(size int) bool { return a.Sizes == nil || a.Sizes(size) }

// Depths are the numbers of messages on the critical path (see [Depth]) for each of [DepthRanks].
type Depths [len(DepthRanks)]uint8

// DepthRanks are the numbers of ranks of Depths.
var DepthRanks = [...]int{4, 8, 16, 32}

func rootless(f func(rank, size int) Plan) inner {
	return func(rank, size, _ int) Plan { return f(rank, size) }
}

// roundwise returns the plans that f computes round by round.
func roundwise(f func(size, root int) Rounds) inner {
	return func(rank, size, root int) Plan { return f(size, root).Plan(rank) }
}

func upTo(most int) func(size int) bool { return func(size int) bool { return size <= most } }

func above(few int) func(size int) bool { return func(size int) bool { return size > few } }
