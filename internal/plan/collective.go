package plan

// collectives are the descriptors, by number.
var collectives = [CollectiveLimit]*Descriptor{
	0: {Name: "unknown"},
	// No rank ends before every rank has begun. Data is one chunk without bytes.
	Barrier: {
		Name: "barrier", Both: true, Across: barriersAcross,
		Algorithms: []Algorithm{
			{Name: "dissemination", Plan: roundwise(DisseminationBarrier), Rounds: DisseminationBarrier, Uneven: true, Depths: Depths{2, 3, 4, 5}},
			{Name: "two-phase", Plan: rootless(TwoPhaseBarrier), Sizes: upTo(4), Uneven: true, Depths: Depths{2, 2, 2, 2}},
			{Name: "flat", Plan: rootless(FlatBarrier), Single: true, Sizes: upTo(64), Uneven: true, Shared: true, Depths: Depths{1, 1, 1, 1}},
			{Name: "leader", Plan: rootless(TwoPhaseBarrier), Sizes: above(8), Uneven: true, Shared: true, Alike: true, Depths: Depths{2, 2, 2, 2}},
			{Name: "ring", Plan: roundwise(RingBarrier), Rounds: RingBarrier, Single: true, Uneven: true},
			{Name: "recursive-doubling", Plan: roundwise(RecursiveDoublingBarrier), Rounds: RecursiveDoublingBarrier, Uneven: true},
			{Name: "binomial", Plan: rootless(BinomialBarrier), Sizes: above(64), Uneven: true},
		},
	},
	Broadcast: {
		Name: "broadcast", Both: true, Rooted: true, Given: Vector{At: RootOnly}, Taken: Vector{At: AllButRoot}, From: chunkOfRoot, Across: broadcastsAcross,
		Algorithms: []Algorithm{
			{Name: "binomial", Plan: BinomialBroadcast, Single: true, Uneven: true, Depths: Depths{2, 3, 4, 5}},
			{Name: "chain", Plan: ChainBroadcast, Single: true, Uneven: true, Depths: Depths{3, 7, 15, 31}},
			{Name: "scatter-ring", Plan: ScatterRingBroadcast, Uneven: true, Depths: Depths{3, 7, 15, 31}},
			{Name: "flat", Plan: FlatBroadcast, Single: true, Uneven: true, Shared: true, Alike: true, Depths: Depths{1, 1, 1, 1}},
		},
	},
	Reduction: {
		Name: "reduce", Both: true, Rooted: true, Taken: Vector{At: RootOnly}, Operands: AllRanks, Across: reductionsAcross,
		Algorithms: []Algorithm{
			{Name: "binomial", Plan: BinomialReduce, Single: true, Uneven: true, Ordered: true, Canonical: true, Depths: Depths{2, 3, 4, 5}},
			{Name: "rabenseifner", Plan: RabenseifnerReduce, Uneven: true, Ordered: true, Canonical: true, Depths: Depths{4, 6, 8, 10}},
			{Name: "chain", Plan: ChainReduce, Single: true, Uneven: true, Depths: Depths{3, 7, 15, 31}},
			{Name: "staged", Plan: StagedReduce, Single: true, Uneven: true, Ordered: true, Canonical: true, Shared: true, Depths: Depths{2, 2, 2, 2}},
			{Name: "flat", Plan: FlatReduce, Single: true, Sizes: above(8), Uneven: true, Ordered: true, Canonical: true, Shared: true, Alike: true, Depths: Depths{1, 1, 1, 1}},
		},
	},
	// The same expression reduces a chunk on all ranks, so that the result has the same bits.
	AllReduce: {
		Name: "all_reduce", Both: true, Operands: AllRanks, Across: allReducesAcross,
		Algorithms: []Algorithm{
			{Name: "recursive-doubling", Plan: roundwise(RecursiveDoublingAllReduce), Rounds: RecursiveDoublingAllReduce, Single: true, Uneven: true, Ordered: true, Canonical: true, Depths: Depths{2, 3, 4, 5}},
			{Name: "flat", Plan: rootless(FlatAllReduce), Single: true, Sizes: upTo(8), Uneven: true, Ordered: true, Canonical: true, Depths: Depths{1, 1, 1, 1}},
			{Name: "ordered", Plan: rootless(OrderedAllReduce), Single: true, Uneven: true, Ordered: true, Canonical: true, Depths: Depths{4, 6, 8, 10}},
			{Name: "rabenseifner", Plan: roundwise(RabenseifnerAllReduce), Rounds: RabenseifnerAllReduce, Uneven: true, Ordered: true, Canonical: true, Depths: Depths{4, 6, 8, 10}},
			{Name: "direct", Plan: roundwise(DirectAllReduce), Rounds: DirectAllReduce, Single: true, PerPeer: 2, Uneven: true, Depths: Depths{2, 2, 2, 2}},
			{Name: "circulant", Plan: roundwise(CirculantAllReduce), Rounds: CirculantAllReduce, Uneven: true, Depths: Depths{4, 6, 8, 10}},
			{Name: "ring", Plan: roundwise(RingAllReduce), Rounds: RingAllReduce, Single: true, Uneven: true, Depths: Depths{6, 14, 30, 62}},
			{Name: "staged", Plan: rootless(StagedAllReduce), Single: true, PerPeer: 2, Uneven: true, Ordered: true, Canonical: true, Shared: true, Depths: Depths{2, 2, 2, 2}},
			{Name: "leader", Plan: rootless(LeaderAllReduce), Single: true, Sizes: above(8), Uneven: true, Ordered: true, Canonical: true, Shared: true, Alike: true, Depths: Depths{2, 2, 2, 2}},
			{Name: "recursive-multiplying", Plan: roundwise(RecursiveMultiplyingAllReduce), Rounds: RecursiveMultiplyingAllReduce, Single: true, Uneven: true, Ordered: true, Canonical: true, Apart: true, Depths: Depths{1, 2, 2, 3}},
			{Name: "swing-1d", Plan: roundwise(SwingAllReduce(1)), Rounds: SwingAllReduce(1), Sizes: above(3), Uneven: true, Placed: true, Depths: Depths{4, 6, 8, 10}},
			{Name: "swing-2d", Plan: roundwise(SwingAllReduce(2)), Rounds: SwingAllReduce(2), Sizes: above(3), Uneven: true, Placed: true, Depths: Depths{4, 6, 8, 10}},
			{Name: "swing-3d", Plan: roundwise(SwingAllReduce(3)), Rounds: SwingAllReduce(3), Sizes: above(7), Uneven: true, Placed: true, Depths: Depths{4, 6, 8, 10}},
			{Name: "swing-short-2d", Plan: roundwise(SwingShortAllReduce(2)), Rounds: SwingShortAllReduce(2), Single: true, Sizes: above(3), Uneven: true, Placed: true, Depths: Depths{2, 3, 4, 5}},
			{Name: "swing-short-3d", Plan: roundwise(SwingShortAllReduce(3)), Rounds: SwingShortAllReduce(3), Single: true, Sizes: above(7), Uneven: true, Placed: true, Depths: Depths{2, 3, 4, 5}},
		},
	},
	Gather: {
		Name: "gather", Rooted: true, Given: Vector{Own: true}, Taken: Vector{At: RootOnly}, From: chunkOfItsRank,
		Algorithms: []Algorithm{
			{Name: "binomial", Plan: BinomialGather, Uneven: true, Depths: Depths{2, 3, 4, 5}},
			{Name: "direct", Plan: DirectGather, Single: true, Uneven: true, Depths: Depths{1, 1, 1, 1}},
		},
	},
	AllGather: {
		Name: "all_gather", Given: Vector{Own: true}, From: chunkOfItsRank, Across: allGathersAcross,
		Algorithms: []Algorithm{
			{Name: "circulant", Plan: roundwise(CirculantAllGather), Rounds: CirculantAllGather, Uneven: true, Depths: Depths{2, 3, 4, 5}},
			{Name: "direct", Plan: rootless(DirectAllGather), Single: true, PerPeer: 1, Uneven: true, Depths: Depths{1, 1, 1, 1}},
			{Name: "ring", Plan: roundwise(RingAllGather), Rounds: RingAllGather, Single: true, Uneven: true, Depths: Depths{3, 7, 15, 31}},
			{Name: "halving", Plan: roundwise(HalvingAllGather), Rounds: HalvingAllGather, Uneven: true, Depths: Depths{3, 4, 5, 6}},
			{Name: "leader", Plan: rootless(LeaderAllGather), Sizes: above(8), Uneven: true, Shared: true, Alike: true, Depths: Depths{2, 2, 2, 2}},
			{Name: "pat", Plan: roundwise(PATAllGather), Rounds: PATAllGather, Placed: true, Depths: Depths{2, 3, 4, 5}},
		},
	},
	Scatter: {
		Name: "scatter", Rooted: true, Given: Vector{At: RootOnly}, Taken: Vector{Own: true}, From: chunkOfRoot,
		Algorithms: []Algorithm{
			{Name: "binomial", Plan: BinomialScatter, Uneven: true, Depths: Depths{2, 3, 4, 5}},
			{Name: "direct", Plan: DirectScatter, Single: true, Uneven: true, Depths: Depths{1, 1, 1, 1}},
		},
	},
	ReduceScatter: {
		Name: "reduce_scatter", Taken: Vector{Own: true}, Operands: AllRanks, Across: reduceScattersAcross,
		Algorithms: []Algorithm{
			{Name: "circulant", Plan: roundwise(CirculantReduceScatter), Rounds: CirculantReduceScatter, Uneven: true, Depths: Depths{2, 3, 4, 5}},
			{Name: "rabenseifner", Plan: rootless(RabenseifnerReduceScatter), Uneven: true, Ordered: true, Canonical: true, Depths: Depths{3, 4, 5, 6}},
			{Name: "direct", Plan: rootless(DirectReduceScatter), Single: true, PerPeer: 1, Uneven: true, Depths: Depths{1, 1, 1, 1}},
			{Name: "ring", Plan: roundwise(RingReduceScatter), Rounds: RingReduceScatter, Single: true, Uneven: true, Depths: Depths{3, 7, 15, 31}},
			{Name: "staged", Plan: rootless(StagedReduceScatter), Single: true, PerPeer: 1, Uneven: true, Ordered: true, Canonical: true, Shared: true, Depths: Depths{1, 1, 1, 1}},
			{Name: "leader", Plan: rootless(LeaderReduceScatter), Sizes: above(8), Uneven: true, Ordered: true, Canonical: true, Shared: true, Alike: true, Depths: Depths{2, 2, 2, 2}},
			{Name: "pat", Plan: roundwise(PATReduceScatter), Rounds: PATReduceScatter, Placed: true, Depths: Depths{2, 3, 4, 5}},
		},
	},
	AllToAll: {
		Name: "all_to_all", From: chunkForThisRank,
		Algorithms: []Algorithm{
			{Name: "pairwise", Plan: rootless(PairwiseAllToAll), Single: true, PerPeer: 1, Uneven: true, Depths: Depths{1, 1, 1, 1}},
			{Name: "bruck", Plan: rootless(BruckAllToAll), Depths: Depths{2, 3, 4, 5}},
		},
	},
	Scan: {
		Name: "scan", Both: true, Operands: RanksThrough, Across: scansAcross,
		Algorithms: []Algorithm{
			{Name: "recursive-doubling", Plan: rootless(RecursiveDoublingScan), Single: true, Uneven: true, Ordered: true, Canonical: true, Depths: Depths{2, 3, 4, 5}},
			{Name: "flat", Plan: rootless(FlatScan), Single: true, Sizes: upTo(8), Uneven: true, Ordered: true, Shared: true, Depths: Depths{1, 1, 1, 1}},
		},
	},
	ExclusiveScan: {
		Name: "exclusive_scan", Both: true, Taken: Vector{At: AllButFirst}, Operands: RanksBefore, Across: exclusiveScansAcross,
		Algorithms: []Algorithm{
			{Name: "recursive-doubling", Plan: rootless(RecursiveDoublingExclusiveScan), Single: true, Uneven: true, Ordered: true, Canonical: true, Depths: Depths{2, 3, 4, 5}},
			{Name: "flat", Plan: rootless(FlatExclusiveScan), Single: true, Sizes: upTo(8), Uneven: true, Ordered: true, Shared: true, Depths: Depths{1, 1, 1, 1}},
		},
	},
}
