package plan

// A Collective is an operation that all ranks of a communicator call in the same order. It
// defines the plan buffers before and after a plan has run; n is the number of ranks. Unless stated
// otherwise every rank has the plan buffer. A plan never writes Input. "Chunk rank" means that the
// plan buffer is the chunk with the number of the rank, of n, and that moves refer to it by that
// number.
type Collective uint8

const (
	// Barrier: Data is one chunk without bytes. No rank ends before every
	// rank has begun. Its plans neither reduce nor combine.
	Barrier Collective = iota + 1
	// Broadcast: Data of root becomes Data of all. Root does not write its Data.
	Broadcast
	// Reduction: Data of root becomes the reduction of Data of all ranks. No
	// other rank writes its Data.
	Reduction
	// AllReduce: Data becomes the reduction of Data of all ranks, computed
	// by the same expression everywhere, so that it has the same bits.
	AllReduce
	// Gather: Input is chunk rank; Data, on root only, is n chunks, chunk i
	// from rank i.
	Gather
	// AllGather is Gather with Data on every rank.
	AllGather
	// Scatter: Input, on root only, is n chunks; Data is chunk rank of it.
	Scatter
	// ReduceScatter: Input is n chunks; Data is chunk rank of the reduction.
	ReduceScatter
	// AllToAll: Input and Data are n chunks; chunk i of Data at rank r is
	// chunk r of Input at rank i.
	AllToAll
	// Scan: Data becomes the reduction of Data of ranks 0 to this one, in
	// this order.
	Scan
	// ExclusiveScan: Data becomes the reduction of Data of the ranks before
	// this one, in order. Rank 0 does not write its Data.
	ExclusiveScan

	// CollectiveLimit is the number after those of all collectives. A new collective is
	// declared directly before it: the numbers of the others are on the wire.
	CollectiveLimit
)

var collectiveNames = [...]string{
	Barrier: "barrier", Broadcast: "broadcast", Reduction: "reduce", AllReduce: "all_reduce",
	Gather: "gather", AllGather: "all_gather", Scatter: "scatter", ReduceScatter: "reduce_scatter",
	AllToAll: "all_to_all", Scan: "scan", ExclusiveScan: "exclusive_scan",
}

// String returns the name of the operation in settings, such as "all_reduce".
func (c Collective) String() string {
	if int(c) < len(collectiveNames) && c != 0 {
		return collectiveNames[c]
	}
	return "unknown"
}

// Collectives returns all collectives, in order.
func Collectives() []Collective {
	all := make([]Collective, 0, len(collectiveNames))
	for c := Barrier; c < CollectiveLimit; c++ {
		all = append(all, c)
	}
	return all
}

// Rooted reports whether the collective has a root.
func (c Collective) Rooted() bool {
	return c == Broadcast || c == Reduction || c == Gather || c == Scatter
}

// Reduces reports whether the collective applies an op.
func (c Collective) Reduces() bool {
	return c == Reduction || c == AllReduce || c == ReduceScatter || c == Scan || c == ExclusiveScan
}

// byRank reports whether the vector is divided into one chunk for each rank.
func (c Collective) byRank() bool {
	return c == Gather || c == AllGather || c == Scatter || c == ReduceScatter || c == AllToAll
}

// wholeBlocks reports whether plans may rely on chunks of the same length, which are blocks of the caller. If they do,
// [Algorithm].Uneven is false.
func (c Collective) wholeBlocks() bool { return c == AllGather || c == ReduceScatter }
