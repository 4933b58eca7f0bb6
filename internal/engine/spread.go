package engine

import (
	"github.com/nexar-go/nexar/internal/affinity"
	"github.com/nexar-go/nexar/internal/shmcoll"
)

// sightings is how often in a row a rank has to hear that it is beside another one:
// what came last may have been sent on by the processor of this rank.
const sightings = 3

// Spread has this rank keep away from the processors of others, where links tell
// which those are. Machine are the ranks of this machine. It is called when something
// has come on every link, and before the first collective; a board knows better.
func (c *Comm) Spread(machine []int) {
	before, ranks := giveWay(c.rank, machine, func(rank int) bool {
		return c.links[rank] != nil && c.links[rank].Locates()
	})
	processors := shmcoll.Processors()
	if c.board != nil || len(before) == 0 || ranks > visitsMax || processors == 1 {
		return
	}
	c.place = affinity.New(affinity.Config{
		Ranks: ranks, Processors: processors, Others: len(before), Sightings: sightings,
		Where: func(on []int) {
			for i, rank := range before {
				on[i] = c.links[rank].Processor()
			}
		},
	})
}

// giveWay is to whom a rank gives way, of so many: to those before it alone, so that
// of two that find themselves beside each other one goes.
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
