package poll

import "github.com/nexar-go/nexar/internal/affinity"

// sightings is the number of consecutive sightings of another rank on the processor of this one
// before this rank moves. The processor of this rank may have forwarded the last bytes.
const sightings = 3

// Spread keeps this rank away from the processors of other ranks of its machine, as far as links
// report them. It must be called before the first wait. It has no effect if Place is set.
func (p *Poller) Spread(rank int, machine []int, processors int) {
	before, ranks := ranksBefore(rank, machine, func(rank int) bool {
		return p.Links[rank] != nil && p.Links[rank].Locator() != nil
	})
	if p.Place != nil || len(before) == 0 || ranks > linksMax || processors == 1 {
		return
	}
	p.Place = affinity.New(affinity.Config{
		Processors: processors, Others: len(before), Before: len(before), Sightings: sightings,
		Where: func(on []int) {
			for i, rank := range before {
				on[i] = -1
				if locator := p.Links[rank].Locator(); locator != nil {
					on[i] = locator.PeerCPU()
				}
			}
		},
	})
}

// ranksBefore returns the located ranks before a rank, and the number of located ranks with
// itself. Only the later one of two ranks on a processor moves.
func ranksBefore(rank int, machine []int, locates func(rank int) bool) (before []int, ranks int) {
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
