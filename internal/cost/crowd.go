package cost

import (
	"github.com/nexar-go/nexar/internal/plan"
)

// crowdMax is the largest number of ranks that share a processor in the model. With more of them, choices are the same.
const crowdMax = 255

// Crowd returns the number of ranks on a host that share a processor, rounded up. The maximum over all ranks of a
// communicator is an argument of [Tuner.Crowded].
func Crowd(ranks, processors int) uint8 {
	processors = max(processors, 1)
	return uint8(min(max((ranks+processors-1)/processors, 1), crowdMax))
}

// Crowded makes the Tuner count the processor time of all ranks of a host, where so many ranks share a processor, and
// returns it. It must be called before the first choice. It has no effect on up to 64 ranks: with few ranks
// most of the time is latency, and the parameters of a [Network] contain the effect of two processors.
func (t *Tuner) Crowded(ranks uint8) *Tuner {
	t.crowd = float64(ranks)
	return t
}

// A share is the mean work of a rank in a plan, for a vector of one byte.
type share struct{ messages, moved, reduced, copied float64 }

// crowdedTime returns the time of the work of all ranks of a host on its processors, or 0 if each rank has a processor.
// Every message takes time of a processor that another rank could use, so the number of all messages counts, not the
// number of those of the busiest rank.
func (t *Tuner) crowdedTime(i int, a plan.Algorithm, f figures, d distance, n Need, channels int) float64 {
	if t.crowd <= 1 || n.Size <= depthSizeMax {
		return 0
	}
	bytes, ch, s := float64(n.Bytes), float64(channels), t.shareOf(i, a, n)
	_, perByte, each := t.tolls(bytes*f.largest/ch, d)
	work := bytes * (float64(s.moved*perByte) + float64(s.reduced*t.net.Reduce) + float64(s.copied*t.net.Copy))
	return t.crowd * float64(work+float64(s.messages*ch*each))
}

// leastTime returns a lower bound of the time of an algorithm among many ranks, or 0 if there are few or relays. Their plans
// are long: those of a rank in a ring have a move for each other rank. The work of a rank is a part of the time, and
// estimated from few ranks; half of it is a safe bound.
//
// It is for links alone. [SharedTuner] needs another bound: its model takes the work of a rank from the plans of
// five ranks, and an estimate from few ranks would make more plans than that. There [plan.Algorithm.PerPeer] excludes the algorithms
// with the longest plans, without any plan. Over links PerPeer would exclude too little: a rank of a ring has as many messages, all to one peer.
func (t *Tuner) leastTime(i int, a plan.Algorithm, n Need, _ float64) float64 {
	if n.Size <= depthSizeMax || a.Shared || t.hops != nil {
		return 0
	}
	bytes, s := float64(n.Bytes), t.shareOf(i, a, n)
	perByte, each := min(t.net.Byte, t.net.Bulk), min(t.net.Message, t.net.Grant)
	work := bytes * (float64(s.moved*perByte) + float64(s.reduced*t.net.Reduce) + float64(s.copied*t.net.Copy))
	factor := 0.5
	if t.crowd > 1 {
		factor = t.crowd
	}
	return factor * float64(work+float64(s.messages*each))
}

func (t *Tuner) shareOf(i int, a plan.Algorithm, n Need) share {
	return t.shares.of(n, i, func() share { return shareBeyond(a, n.Size, 8) })
}

// shareBeyond estimates the share of a rank among many, like depthBeyond: a few plans do not determine it, since in a tree
// few ranks have most of the messages.
func shareBeyond(a plan.Algorithm, size, few int) share {
	least, most := shareAmong(a, few), shareAmong(a, 4*few)
	grown := func(least, most float64) float64 { return grownTo(size, few, least, most) }
	return share{
		messages: grown(least.messages, most.messages), moved: grown(least.moved, most.moved),
		reduced: grown(least.reduced, most.reduced), copied: grown(least.copied, most.copied),
	}
}

// shareAmong returns the share of a rank among so many.
func shareAmong(a plan.Algorithm, size int) (s share) {
	var rounds plan.Rounds
	if a.Rounds != nil {
		rounds = a.Rounds(size, 0)
	}
	for rank := range size {
		var c plan.Cost
		var chunks float64
		// With one byte for each chunk the counts are exact, in any order.
		if a.Rounds != nil {
			c, chunks = rounds.CostOf(rank, rounds.Chunks), float64(rounds.Chunks)
		} else {
			p := a.Plan(rank, size, 0)
			c, chunks = plan.CostOf(p, p.Chunks), float64(p.Chunks)
		}
		s.messages += float64(c.Messages)
		s.moved += c.Sent / chunks
		s.reduced += c.Reduced / chunks
		s.copied += c.Copied / chunks
	}
	ranks := float64(size)
	return share{s.messages / ranks, s.moved / ranks, s.reduced / ranks, s.copied / ranks}
}
