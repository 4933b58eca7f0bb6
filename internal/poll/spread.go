package poll

import "github.com/nexar-go/nexar/internal/affinity"

// sightings is how often in a row a rank has to be seen on the processor of another
// one before it moves: the last bytes may have been forwarded by the processor of this
// rank.
const sightings = 3

// Spread keeps this rank away from the processors of other ranks of its machine, where
// links tell which those are. It must be called before the first wait, and does nothing
// if there is a Place.
func (p *Poller) Spread(rank int, machine []int, processors int) {
	before, ranks := giveWay(rank, machine, func(rank int) bool {
		return p.Links[rank] != nil && p.Links[rank].Locates()
	})
	if p.Place != nil || len(before) == 0 || ranks > linksMax || processors == 1 {
		return
	}
	p.Place = affinity.New(affinity.Config{
		Ranks: ranks, Processors: processors, Others: len(before), Sightings: sightings,
		Where: func(on []int) {
			for i, rank := range before {
				on[i] = p.Links[rank].Processor()
			}
		},
	})
}

// giveWay returns the ranks to which a rank gives way, and the number of ranks that are
// located. A rank gives way to those before it only, so that one of two that share a
// processor moves.
func giveWay(rank int, machine []int, locates func(rank int) bool) (before []int, ranks int) {
	ranks = 1
	for _, other := range machine {
		if other == rank || !locates(other) {
			continue
		}
		ranks++
		if other < rank {
			before = append(before, other)
		}
	}
	return before, ranks
}
