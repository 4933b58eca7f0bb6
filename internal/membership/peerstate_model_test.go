package membership

import (
	"fmt"
	"math/bits"
)

// modelRanks is the largest number of ranks of a modelled world.
const modelRanks = 4

// A grid is a set of pairs of ranks.
type grid uint16

func (g grid) has(a, b int) bool { return g>>(a*modelRanks+b)&1 == 1 }
func (g *grid) add(a, b int)     { *g |= 1 << (a*modelRanks + b) }
func (g *grid) remove(a, b int)  { *g &^= 1 << (a*modelRanks + b) }
func (g grid) column(b, n int) (c int) {
	for a := range n {
		if g.has(a, b) {
			c++
		}
	}
	return c
}

// A rumor is a report on its way: from one rank to another, that by has lost peer.
type rumor struct {
	from, to, peer, by int
	closed             bool
}

func (r rumor) index() int {
	i := r.from | r.to<<2 | r.peer<<4 | r.by<<6
	if r.closed {
		i |= 1 << 8
	}
	return i
}

func rumorAt(i int) rumor {
	return rumor{i & 3, i >> 2 & 3, i >> 4 & 3, i >> 6 & 3, i>>8 == 1}
}

// A modelState is the joint state of all ranks and of the messages between
// them. Rows of grids are the ranks that know or do something, columns the ranks that
// it is about.
type modelState struct {
	next   uint8 // how many of the scenario's fates have been met
	gone   [modelRanks]bool
	killed [modelRanks]bool
	moved  [modelRanks]bool // to the next view
	states [modelRanks][modelRanks]PeerState
	down   grid // link ends that the rank has noticed

	// On their way:
	lost, closed, bye grid
	rumors            [8]uint64

	// Done:
	comms, ops, refused           grid
	revoked                       [modelRanks]grid // at each rank: communicators of two others
	reportedLost, reportedLeft    grid
	notified                      grid
	toldOwn, toldLost, toldClosed grid
	sawLost, sawClosed, sawBye    grid

	losses, copies, moves uint8 // that may still happen
}

func (s *modelState) push(r rumor) { i := r.index(); s.rumors[i/64] |= 1 << (i % 64) }
func (s *modelState) pull(r rumor) { i := r.index(); s.rumors[i/64] &^= 1 << (i % 64) }

// each calls f for every report on its way.
func (s *modelState) each(f func(r rumor)) {
	for w, word := range s.rumors {
		for ; word != 0; word &= word - 1 {
			f(rumorAt(w*64 + bits.TrailingZeros64(word)))
		}
	}
}

// purge loses all that is on its way between two ranks.
func (s *modelState) purge(a, b int) {
	s.each(func(r rumor) {
		if r.from == a && r.to == b || r.from == b && r.to == a {
			s.pull(r)
		}
	})
}

// A fate is an event in the life of a rank: it leaves, it dies, or it and another rank lose
// their link.
type fate struct {
	kind  fateKind
	rank  int
	other int // of a cut
}

type fateKind uint8

const (
	leaves fateKind = iota
	dies
	isCut
)

func (f fate) String() string {
	switch f.kind {
	case leaves:
		return fmt.Sprintf("rank %d leaves", f.rank)
	case dies:
		return fmt.Sprintf("rank %d dies", f.rank)
	}
	return fmt.Sprintf("ranks %d and %d lose their link", f.rank, f.other)
}

// A table is the subject of the model: the one of the package, or one with a planted
// fault.
type table struct {
	next  func(s PeerState, e PeerEvent) (PeerState, PeerEffects)
	event func(r PeerReport, epoch uint64) PeerEvent
}

func soundTable() table { return table{PeerState.Next, PeerReport.Event} }

// A scenario is a number of ranks, their fates, in any order, and the faults of the
// network: it may lose a single report on a link that stands, or deliver one twice.
// Adopters may go on with the next view before the others have heard of
// the end of this one.
type scenario struct {
	ranks                    int
	fates                    []fate
	losses, copies, adopters uint8
}

func (c scenario) String() string {
	return fmt.Sprintf("%d ranks, %v, %d losses, %d copies, %d early adopters", c.ranks, c.fates, c.losses, c.copies, c.adopters)
}
