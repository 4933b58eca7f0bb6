package simulate

import "github.com/nexar-go/nexar/internal/plan"

// A source provides the plans of all ranks. The rounds of a rank are asked for in order, each once.
type source interface {
	chunks() int
	length(rank int) int // number of rounds
	// round appends the moves of a round.
	round(to []move, rank, k int) []move
}

// A roundwise source computes rounds as they are needed. With a positive section, the length of the
// sections of the plans, it leaves out all but the first rounds of each, keep of them.
type roundwise struct {
	rounds        plan.Rounds
	section, keep int
	buffer        plan.Round
}

func (s *roundwise) chunks() int { return s.rounds.Chunks }

func (s *roundwise) length(rank int) int {
	if s.section > 0 {
		return s.rounds.Len(rank) / s.section * s.keep
	}
	return s.rounds.Len(rank)
}

func (s *roundwise) round(to []move, rank, k int) []move {
	if s.section > 0 {
		k = k/s.keep*s.section + k%s.keep
	}
	s.buffer = s.rounds.Append(s.buffer[:0], rank, k)
	return appendMoves(to, s.buffer)
}

// A premade source makes the plan of a rank when it is first needed, and drops it after the last
// round.
type premade struct {
	algorithm   plan.Algorithm
	ranks, root int
	plans       []stored
	divided     int // chunks of the plans
}

// A stored plan has the moves of all rounds, and the end of each round among them.
type stored struct {
	moves []move
	ends  []int32
	made  bool
}

func newPremade(c call) *premade {
	return &premade{
		algorithm: c.algorithm, ranks: c.Ranks, root: c.Root, plans: make([]stored, c.Ranks),
		divided: c.algorithm.Plan(0, c.Ranks, c.Root).Chunks,
	}
}

func (s *premade) chunks() int { return s.divided }

func (s *premade) length(rank int) int {
	p := &s.plans[rank]
	if !p.made {
		p.made = true
		for _, round := range s.algorithm.Plan(rank, s.ranks, s.root).Rounds {
			p.moves = appendMoves(p.moves, round)
			p.ends = append(p.ends, int32(len(p.moves)))
		}
	}
	return len(p.ends)
}

func (s *premade) round(to []move, rank, k int) []move {
	p := &s.plans[rank]
	first := int32(0)
	if k > 0 {
		first = p.ends[k-1]
	}
	to = append(to, p.moves[first:p.ends[k]]...)
	if k == len(p.ends)-1 {
		p.moves = nil
	}
	return to
}

// A sliced source executes the plans of another one on several channels. Each channel has all chunks of a slice of the
// vector.
type sliced struct {
	source
	channels int
	buffer   []move
}

func (s *sliced) chunks() int { return s.source.chunks() * s.channels }

func (s *sliced) round(to []move, rank, k int) []move {
	s.buffer = s.source.round(s.buffer[:0], rank, k)
	chunks := int32(s.source.chunks())
	for channel := range int32(s.channels) {
		on := func(sp span) span {
			vector := sp.lo / chunks // of Temp
			lo := (vector*int32(s.channels)+channel)*chunks + sp.lo%chunks
			return span{lo, lo + sp.hi - sp.lo, sp.buf}
		}
		for _, m := range s.buffer {
			m.dst, m.a, m.b = on(m.dst), on(m.a), on(m.b)
			to = append(to, m)
		}
	}
	return to
}

// appendMoves appends the moves of a round.
func appendMoves(to []move, round plan.Round) []move {
	for i := range round {
		m := &round[i]
		to = append(to, move{kind: m.Kind, peer: int32(m.Peer), dst: chunksOf(m.Dst), a: chunksOf(m.A), b: chunksOf(m.B)})
	}
	return to
}
