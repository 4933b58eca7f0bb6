package p2p

import (
	"fmt"

	"github.com/nexar-go/nexar/internal/link"
)

// Ranks has the rank of each peer slot of a communicator.
type Ranks struct {
	bySlot []int32     // the rank plus 1; 0: none
	few    map[int]int // in place of bySlot if the ranks have few of the slots
}

// slotsPerRank is the largest ratio of slots to ranks for a list of all slots. With more slots Ranks has a map.
const slotsPerRank = 8

// NewRanks returns the Ranks of links, in the order of ranks. A link may be nil.
func NewRanks(links []*link.Link) *Ranks {
	r, end := new(Ranks), 0
	for _, l := range links {
		if l != nil {
			end = max(end, l.Peer+1)
		}
	}
	if end > slotsPerRank*len(links) {
		r.few = make(map[int]int, len(links))
	} else {
		r.bySlot = make([]int32, end)
	}
	for rank, l := range links {
		switch {
		case l == nil:
		case r.few != nil:
			r.few[l.Peer] = rank
		default:
			r.bySlot[l.Peer] = int32(rank + 1)
		}
	}
	return r
}

// Of returns the rank of a slot. A nil Ranks has none.
func (r *Ranks) Of(slot int) (rank int, ok bool) {
	switch {
	case r == nil:
		return 0, false
	case r.few != nil:
		rank, ok = r.few[slot]
		return rank, ok
	case slot < 0 || slot >= len(r.bySlot):
		return 0, false
	}
	rank = int(r.bySlot[slot]) - 1
	return rank, rank >= 0
}

// A Member is a rank of a communicator, as errors name it. An error can reach the users of another communicator, in
// which the node has another rank, so the number is read by [Ranks.Rank] alone.
type Member struct {
	slot  int // peer slot of the node; -1 for a rank without a link
	named int // the rank in texts
}

// NewMember returns the member with a link, which texts call by the number of a rank.
func NewMember(l *link.Link, named int) Member {
	if l == nil {
		return Member{-1, named}
	}
	return Member{l.Peer, named}
}

// Rank returns the rank of a member of any communicator. It is not ok if the node has none.
func (r *Ranks) Rank(m Member) (rank int, ok bool) { return r.Of(m.slot) }

// String names the member in the communicator that the error is from: "rank 3".
func (m Member) String() string { return fmt.Sprintf("rank %d", m.named) }
