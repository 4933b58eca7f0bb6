package membership

import (
	"fmt"
	"math/bits"
)

// modelRanks is the largest number of ranks of a modelled world.
const modelRanks = 4

// A pairSet is a set of pairs of ranks.
type pairSet uint16

func (g pairSet) has(a, b int) bool { return g>>(a*modelRanks+b)&1 == 1 }
func (g *pairSet) add(a, b int)     { *g |= 1 << (a*modelRanks + b) }
func (g *pairSet) remove(a, b int)  { *g &^= 1 << (a*modelRanks + b) }
func (g pairSet) column(b, n int) (c int) {
	for a := range n {
		if g.has(a, b) {
			c++
		}
	}
	return c
}

// A notice is a report in flight, from one rank to another: by has lost peer.
type notice struct {
	from, to, peer, by int
	closed             bool
}

func (r notice) index() int {
	i := r.from | r.to<<2 | r.peer<<4 | r.by<<6
	if r.closed {
		i |= 1 << 8
	}
	return i
}

func noticeAt(i int) notice {
	return notice{i & 3, i >> 2 & 3, i >> 4 & 3, i >> 6 & 3, i>>8 == 1}
}

// A modelState is the joint state of all ranks and of the messages between them. In a
// pairSet, rows are the ranks that know or do something, and columns the ranks that it
// concerns.
type modelState struct {
	next   uint8 // number of the scenario's incidents that have happened
	gone   [modelRanks]bool
	killed [modelRanks]bool
	moved  [modelRanks]bool // to the next view
	states [modelRanks][modelRanks]PeerState
	down   pairSet // link ends that the rank has noticed as lost

	// In flight:
	lost, closed, bye pairSet
	notices           [8]uint64

	// Done:
	comms, ops, refused           pairSet
	revoked                       [modelRanks]pairSet // at each rank: communicators of two others
	reportedLost, reportedLeft    pairSet
	notified                      pairSet
	toldOwn, toldLost, toldClosed pairSet
	sawLost, sawClosed, sawBye    pairSet

	losses, copies, moves uint8 // that may still happen
}

func (s *modelState) push(r notice) { i := r.index(); s.notices[i/64] |= 1 << (i % 64) }
func (s *modelState) pull(r notice) { i := r.index(); s.notices[i/64] &^= 1 << (i % 64) }

// each calls f for every report in flight.
func (s *modelState) each(f func(r notice)) {
	for w, word := range s.notices {
		for ; word != 0; word &= word - 1 {
			f(noticeAt(w*64 + bits.TrailingZeros64(word)))
		}
	}
}

// purge drops all messages in flight between two ranks.
func (s *modelState) purge(a, b int) {
	s.each(func(r notice) {
		if r.from == a && r.to == b || r.from == b && r.to == a {
			s.pull(r)
		}
	})
}

// An incident is an event in the life of a rank: it leaves, it dies, or it and another
// rank lose their link.
type incident struct {
	kind  incidentKind
	rank  int
	other int // second rank of a cut
}

type incidentKind uint8

const (
	leaves incidentKind = iota
	dies
	isCut
)

func (f incident) String() string {
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

// A scenario is a number of ranks, their incidents, in any order, and the faults of the
// network, which may lose a single report on a working link or deliver one twice.
// Adopters may adopt the next view before the others know of the end of this one.
type scenario struct {
	ranks                    int
	incidents                []incident
	losses, copies, adopters uint8
}

func (c scenario) String() string {
	return fmt.Sprintf("%d ranks, %v, %d losses, %d copies, %d early adopters", c.ranks, c.incidents, c.losses, c.copies, c.adopters)
}
