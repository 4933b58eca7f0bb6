package plan

import "slices"

// A Collective is an operation that all ranks of a communicator call in the same order: the number of a [Descriptor].
type Collective uint8

// The collectives. The numbers are on the wire: a new collective comes last.
const (
	Barrier Collective = iota + 1
	Broadcast
	Reduction
	AllReduce
	Gather
	AllGather
	Scatter
	ReduceScatter
	AllToAll
	Scan
	ExclusiveScan

	// CollectiveLimit is more than the number of any collective.
	CollectiveLimit Collective = 16
)

// A Descriptor is all that distinguishes a collective from others. It defines the plan buffers of the n ranks before and after
// a plan has run. They have n chunks if Both is false; otherwise plans choose their number. A plan never writes Input.
type Descriptor struct {
	Name string // in settings, such as "all_reduce"

	// Given is the vector that a rank contributes, and Taken its result. If Both is set they are one vector, in Data. Otherwise
	// Given is in Input and Taken in Data, and the caller has a block for each chunk.
	Given, Taken Vector
	Both         bool
	Rooted       bool // one rank is the root

	// From returns the origin of a chunk of Data at the end: a rank, and the number of its chunk. It is nil if vectors are reduced.
	From func(rank, size, root, chunk int) (from, at int)
	// Operands are the ranks with the vectors that the result reduces, chunk by chunk.
	Operands Operands

	// Algorithms are the plans. The first is a good choice for short vectors. See [Algorithms].
	Algorithms []Algorithm
	// Across returns the plans for given hosts; nil if there are none. See [Hierarchical].
	Across func(h Hosts) []Algorithm
}

// A Vector describes the chunks of the ranks: all chunks or chunk rank alone, on all ranks or some.
type Vector struct {
	Own bool
	At  Ranks
}

// Ranks are those that have a vector.
type Ranks uint8

// The ranks that have a vector.
const (
	EveryRank Ranks = iota
	RootOnly
	AllButRoot
	AllButFirst // all but rank 0
)

// Have reports whether a rank is one of those.
func (r Ranks) Have(rank, root int) bool {
	switch r {
	case RootOnly:
		return rank == root
	case AllButRoot:
		return rank != root
	case AllButFirst:
		return rank != 0
	}
	return true
}

// Operands are the ranks with the vectors that are reduced for a rank.
type Operands uint8

// The operands of reductions.
const (
	NoRanks      Operands = iota // nothing is reduced
	AllRanks                     // in any order, unless the op requires that of the ranks
	RanksThrough                 // ranks 0 to this one, in this order
	RanksBefore                  // the ranks before this one, in order
)

// Count returns the number of operands of a rank: those of the ranks from 0 on.
func (o Operands) Count(rank, size int) int {
	switch o {
	case AllRanks:
		return size
	case RanksThrough:
		return rank + 1
	case RanksBefore:
		return rank
	}
	return 0
}

// Prefix reports whether the operands depend on the rank. Then they are combined in the order of the ranks.
func (o Operands) Prefix() bool { return o > AllRanks }

func chunkOfRoot(_, _, root, chunk int) (from, at int)      { return root, chunk }
func chunkOfItsRank(_, _, _, chunk int) (from, at int)      { return chunk, chunk }
func chunkForThisRank(rank, _, _, chunk int) (from, at int) { return chunk, rank }

// Descriptor returns the descriptor. The caller does not change it. An unknown collective has the name "unknown" and nothing else.
func (c Collective) Descriptor() *Descriptor {
	if c < CollectiveLimit && collectives[c] != nil {
		return collectives[c]
	}
	return collectives[0]
}

// String returns the name of the collective in settings, such as "all_reduce".
func (c Collective) String() string { return c.Descriptor().Name }

// Rooted reports whether the collective has a root.
func (c Collective) Rooted() bool { return c.Descriptor().Rooted }

// Reduces reports whether the collective applies an op.
func (c Collective) Reduces() bool { return c.Descriptor().Operands != NoRanks }

// Collectives returns all collectives, in order.
func Collectives() (all []Collective) {
	for c, d := range collectives {
		if c > 0 && d != nil {
			all = append(all, Collective(c))
		}
	}
	return all
}

// Empty reports whether the collective moves no data.
func (d *Descriptor) Empty() bool { return d.From == nil && d.Operands == NoRanks }

// Parts reports whether one of two vectors is a block of the other. Then it may be in place there: see [InPlace].
func (d *Descriptor) Parts() bool { return !d.Both && d.Given.Own != d.Taken.Own }

// pairs reports whether every rank has a block for every other. Then the lengths of blocks differ from pair to pair.
func (d *Descriptor) pairs() bool { return !d.Both && d.Given == d.Taken }

// sameEverywhere reports whether all ranks have the same reduction. The same expression computes it everywhere, so that it has
// the same bits.
func (d *Descriptor) sameEverywhere() bool {
	return d.Both && d.Operands == AllRanks && d.Taken == (Vector{})
}

// wholeBlocks reports whether plans may rely on chunks of the same length, which are blocks of the caller. If they do,
// [Algorithm].Uneven is false.
func (d *Descriptor) wholeBlocks() bool { return d.Parts() && !d.Rooted }

// Algorithms returns a copy of the list of all algorithms of a collective.
func Algorithms(c Collective) []Algorithm { return slices.Clone(c.Descriptor().Algorithms) }
