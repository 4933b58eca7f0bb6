package plan

// allHeads is more heads than a host can have.
const allHeads = 1 << 30

// Hierarchical returns further algorithms, which take the hosts of the ranks into account and
// save traffic between hosts. Those of a collective are always the same, in the same order.
// They fit if the hosts are crowded, and are correct for any Hosts of the number of ranks.
func Hierarchical(c Collective, h Hosts) []Algorithm {
	across := c.Descriptor().Across
	if across == nil {
		return nil
	}
	list := across(h)
	for i := range list {
		a := &list[i]
		a.Uneven = true
		a.Ordered = a.Ordered && h.inOrder()
		a.Canonical = a.Canonical && h.canonical()
		a.Sizes = func(size int) bool { return size == h.Size() && h.Crowded() }
	}
	return list
}

// AlgorithmsOn returns Algorithms followed by Hierarchical.
func AlgorithmsOn(c Collective, h Hosts) []Algorithm {
	return append(Algorithms(c), Hierarchical(c, h)...)
}

// on returns a plan of ranks on the hosts.
func (h Hosts) on(f func(h Hosts, rank, root int) Plan) inner {
	return func(rank, _, root int) Plan { return f(h, rank, root) }
}

func barriersAcross(h Hosts) []Algorithm {
	return []Algorithm{
		{Name: "hosts-leader", Plan: h.on(hierarchicalBarrier{DirectGather, roundwise(DisseminationBarrier), BinomialBroadcast}.plan)},
		{Name: "groups", Shared: true, Plan: h.on(hierarchicalBarrier{DirectGather, rootless(FlatBarrier), FlatBroadcast}.plan)},
	}
}

func broadcastsAcross(h Hosts) []Algorithm {
	return []Algorithm{
		{Name: "hosts-leader", Plan: h.on(hierarchicalBroadcast{1, nil, BinomialBroadcast, nil, BinomialBroadcast}.plan)},
		{Name: "hosts-binomial", Plan: h.on(hierarchicalBroadcast{allHeads, DirectScatter, BinomialBroadcast, rootless(DirectAllGather), BinomialBroadcast}.plan)},
		{Name: "hosts-chain", Plan: h.on(hierarchicalBroadcast{allHeads, DirectScatter, ChainBroadcast, rootless(DirectAllGather), ChainBroadcast}.plan)},
	}
}

func reductionsAcross(h Hosts) []Algorithm {
	canonical := rootless(RabenseifnerReduceScatter)
	return []Algorithm{
		{Name: "hosts-leader", Ordered: true, Canonical: true,
			Plan: h.on(hierarchicalReduce{1, BinomialReduce, nil, BinomialReduce, nil}.plan)},
		{Name: "hosts-binomial", Ordered: true, Canonical: true,
			Plan: h.on(hierarchicalReduce{allHeads, BinomialReduce, canonical, BinomialReduce, DirectGather}.plan)},
		{Name: "hosts-chain",
			Plan: h.on(hierarchicalReduce{allHeads, ChainReduce, rootless(DirectReduceScatter), ChainReduce, DirectGather}.plan)},
		{Name: "groups", Ordered: true, Canonical: true, Shared: true, Single: true,
			Plan: h.on(hierarchicalReduce{1, FlatReduce, nil, FlatReduce, nil}.plan)},
	}
}

func allGathersAcross(h Hosts) []Algorithm {
	across := func(name string, f, spread inner) Algorithm {
		return Algorithm{Name: name, Plan: h.on(hierarchicalAllGather{allHeads, DirectGather, f, spread, BinomialBroadcast}.plan)}
	}
	return []Algorithm{
		{Name: "hosts-leader", Plan: h.on(hierarchicalAllGather{1, BinomialGather, roundwise(CirculantAllGather), nil, BinomialBroadcast}.plan)},
		across("hosts-circulant", roundwise(CirculantAllGather), roundwise(CirculantAllGather)),
		across("hosts-direct", rootless(DirectAllGather), rootless(DirectAllGather)),
		across("hosts-ring", roundwise(RingAllGather), rootless(DirectAllGather)),
		{Name: "groups", Shared: true, Plan: h.on(hierarchicalAllGather{1, DirectGather, rootless(DirectAllGather), nil, FlatBroadcast}.plan)},
	}
}

func reduceScattersAcross(h Hosts) []Algorithm {
	across := func(name string, ordered bool, reduce, f inner) Algorithm {
		return Algorithm{Name: name, Ordered: ordered, Canonical: ordered,
			Plan: h.on(hierarchicalReduceScatter{allHeads, BinomialReduce, reduce, f, DirectScatter}.plan)}
	}
	return []Algorithm{
		{Name: "hosts-leader", Ordered: true, Canonical: true,
			Plan: h.on(hierarchicalReduceScatter{1, BinomialReduce, nil, rootless(RabenseifnerReduceScatter), BinomialScatter}.plan)},
		across("hosts-circulant", false, roundwise(CirculantReduceScatter), roundwise(CirculantReduceScatter)),
		across("hosts-rabenseifner", true, rootless(RabenseifnerReduceScatter), rootless(RabenseifnerReduceScatter)),
		across("hosts-direct", false, rootless(DirectReduceScatter), rootless(DirectReduceScatter)),
		across("hosts-ring", false, rootless(DirectReduceScatter), roundwise(RingReduceScatter)),
		{Name: "groups", Ordered: true, Canonical: true, Shared: true,
			Plan: h.on(hierarchicalReduceScatter{1, FlatReduce, nil, rootless(StagedReduceScatter), DirectScatter}.plan)},
	}
}

func scansAcross(h Hosts) []Algorithm {
	return []Algorithm{{Name: "groups", Ordered: true, Shared: true, Single: true, Plan: h.on(hierarchicalScan{}.plan)}}
}

func exclusiveScansAcross(h Hosts) []Algorithm {
	return []Algorithm{{Name: "groups", Ordered: true, Shared: true, Single: true, Plan: h.on(hierarchicalScan{exclusive: true}.plan)}}
}

func allReducesAcross(h Hosts) []Algorithm {
	// In a team a chain, which pipelines the slices of channels, moves fewer bytes than a tree,
	// but takes longer for a short vector and does not keep the order of the ranks.
	tree := func(name string, teams int, across inner) Algorithm {
		return Algorithm{Name: name, Ordered: true, Canonical: true, Plan: h.on(hierarchicalAllReduce{
			teams, BinomialReduce, BinomialBroadcast,
			rootless(RabenseifnerReduceScatter), roundwise(CirculantAllGather), across,
		}.plan)}
	}
	chain := func(name string, reduce, spread, across inner) Algorithm {
		return Algorithm{Name: name, Plan: h.on(hierarchicalAllReduce{
			allHeads, ChainReduce, ChainBroadcast, reduce, spread, across,
		}.plan)}
	}
	// In shared memory a head uses the vectors of its group in place. One head for each group
	// is for short vectors, all ranks as heads are for long ones.
	groups := func(name string, teams int, single bool, across inner) Algorithm {
		return Algorithm{Name: name, Ordered: true, Canonical: true, Shared: true, Single: single, Plan: h.on(hierarchicalAllReduce{
			teams, FlatReduce, FlatBroadcast, rootless(StagedReduceScatter), rootless(DirectAllGather), across,
		}.plan)}
	}
	return []Algorithm{
		tree("hosts-leader", 1, roundwise(RecursiveDoublingAllReduce)),
		tree("hosts-recursive-doubling", allHeads, roundwise(RecursiveDoublingAllReduce)),
		tree("hosts-rabenseifner", allHeads, roundwise(RabenseifnerAllReduce)),
		chain("hosts-direct", rootless(DirectReduceScatter), rootless(DirectAllGather), roundwise(DirectAllReduce)),
		chain("hosts-circulant", roundwise(CirculantReduceScatter), roundwise(CirculantAllGather), roundwise(CirculantAllReduce)),
		groups("groups", 1, true, rootless(FlatAllReduce)),
		groups("groups-shares", allHeads, h.even(), rootless(LeaderAllReduce)),
	}
}
