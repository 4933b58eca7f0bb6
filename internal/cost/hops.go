package cost

import "github.com/nexar-go/nexar/internal/plan"

// Hops returns the number of links that a message between two ranks passes: 1, or more over relays. Nil
// means 1 between all ranks.
type Hops func(from, to int) int

// Unreachable is the number of hops between ranks without a way between them. An algorithm with messages between
// such ranks is only chosen if all others have some, too.
const Unreachable = 1 << 20

// Over makes the Tuner count the hops of messages, and returns it. It must be called before the first choice. A message
// takes its latency and the work of its ranks again on each further link.
func (t *Tuner) Over(h Hops) *Tuner {
	t.hops = h
	return t
}

// A distance is the mean number of hops of the messages of a plan, and of their bytes.
type distance struct{ message, byte float64 }

// distanceOf returns the distance of an algorithm. With many ranks it is that of the messages of a few.
func (t *Tuner) distanceOf(i int, a plan.Algorithm, n Need) distance {
	if t.hops == nil {
		return distance{1, 1}
	}
	return t.distances.of(n, i, func() distance { return measureDistance(a, n.Size, t.hops) })
}

func measureDistance(a plan.Algorithm, size int, hops Hops) distance {
	ranks := sampled(size)
	var messages, passed, chunks, carried float64
	for i, p := range samples(a, size, 0) {
		for _, round := range p.Rounds {
			for k := range round {
				if m := &round[k]; m.Kind == plan.Send {
					h, length := float64(hops(ranks[i], m.Peer)), float64(m.A.Len())
					messages, passed = messages+1, passed+h
					chunks, carried = chunks+length, carried+float64(h*length)
				}
			}
		}
	}
	d := distance{1, 1}
	if messages > 0 {
		d.message = passed / messages
	}
	if chunks > 0 {
		d.byte = carried / chunks
	}
	return d
}
