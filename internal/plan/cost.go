package plan

import "slices"

// A Cost has the terms of the time of a plan on one rank, for a model with a latency for each
// round or message and a time for each byte moved or reduced. Bytes are mean values if the
// vector cannot be divided evenly.
type Cost struct {
	Rounds   int     // rounds with messages
	Messages int     // messages sent and received
	Sent     float64 // bytes
	Received float64 // bytes
	Reduced  float64 // bytes of results of the op
	Copied   float64 // bytes copied within the rank
}

// CostOf returns the cost of a plan for a vector of the given length in bytes, all chunks
// together.
func CostOf(p Plan, bytes int) Cost {
	var c Cost
	chunk := float64(bytes) / float64(p.Chunks)
	for _, round := range p.Rounds {
		c.add(round, chunk)
	}
	return c
}

// CostOf is the function CostOf for the plan of a rank. It does not make the plan.
func (r Rounds) CostOf(rank, bytes int) Cost {
	var c Cost
	var round Round
	chunk := float64(bytes) / float64(r.Chunks)
	for k := range r.Len(rank) {
		round = r.Append(round[:0], rank, k)
		c.add(round, chunk)
	}
	return c
}

// add adds the cost of a round, given the bytes of a chunk.
func (c *Cost) add(round Round, chunk float64) {
	before := c.Messages
	for i := range round {
		m := &round[i]
		switch m.Kind {
		case Send:
			c.Messages++
			c.Sent += chunk * float64(m.A.Len())
		case Recv, Reduce:
			c.Messages++
			c.Received += chunk * float64(m.Dst.Len())
		case Copy:
			c.Copied += chunk * float64(m.Dst.Len())
		}
		if m.Kind == Reduce || m.Kind == Combine {
			c.Reduced += chunk * float64(m.Dst.Len())
		}
	}
	if c.Messages > before {
		c.Rounds++
	}
}

// Depth returns the number of messages on the critical path: the longest chain of dependent
// messages. It determines the latency of a collective on a short vector. It can be far less
// than the number of rounds, since rounds without common chunks overlap.
//
// Plans that deadlock are an error. Plans must have the form that [Check] requires.
func Depth(plans []Plan) (int, error) {
	// Inputs exist from the beginning, and are not written.
	depths := make([][Temp + 1][]int, len(plans))
	for rank, p := range plans {
		depths[rank] = [...][]int{Data: make([]int, p.Chunks), Input: nil, Temp: make([]int, p.Temps)}
	}
	latest := func(rank int, s Span) int {
		if s.Buf == Input || s.Len() == 0 {
			return 0
		}
		return slices.Max(depths[rank][s.Buf][s.Lo:s.Hi])
	}
	most := 0
	err := run(plans, func(rank int, m, sent *Move) error {
		d := max(latest(rank, m.Dst), latest(rank, m.A), latest(rank, m.B))
		if sent != nil {
			d = max(d, 1+latest(m.Peer, sent.A))
		}
		for i := m.Dst.Lo; i < m.Dst.Hi; i++ {
			depths[rank][m.Dst.Buf][i] = d
		}
		most = max(most, d)
		return nil
	})
	return most, err
}
