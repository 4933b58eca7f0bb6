package plan

import "slices"

// An inner algorithm makes plans that are parts of others.
type inner = func(rank, size, root int) Plan

// A part is a plan that some ranks execute as a part of a larger one, on some of its chunks. A
// chunk of the part may represent several chunks of the larger plan.
type part struct {
	ranks []int // ranks of the larger plan, by rank of the part
	at    sites
}

// A sites has the locations of the chunks of each plan buffer of a part.
type sites = [Temp + 1]site

// A site appends to runs the location of a chunk of a part's plan buffer in the larger plan. All
// ranks of a part number chunks in the same way, so that a message has the same runs on both
// sides.
type site func(runs []Span, chunk int) []Span

// embed appends the rounds of a plan that is part of p.
func (p *Plan) embed(inner Plan, w part) {
	for _, round := range inner.Rounds {
		moves := make(Round, 0, len(round))
		for i := range round {
			moves = w.translate(moves, round[i])
		}
		p.round(moves...)
	}
}

// translate appends a move of the part, as one move for each run of chunks that are contiguous in
// all its spans. A copy of a chunk to itself is dropped.
func (w *part) translate(moves Round, m Move) Round {
	var few [3][4]Span // Most spans lie in one run.
	dst, a, b := w.runs(few[0][:0], m.Dst), w.runs(few[1][:0], m.A), w.runs(few[2][:0], m.B)
	if m.messages() {
		m.Peer = w.ranks[m.Peer]
	}
	for len(dst) > 0 || len(a) > 0 || len(b) > 0 {
		n := 0
		for _, runs := range [...][]Span{dst, a, b} {
			if len(runs) > 0 && (n == 0 || runs[0].Len() < n) {
				n = runs[0].Len()
			}
		}
		m.Dst, m.A, m.B = take(&dst, n), take(&a, n), take(&b, n)
		if m.Kind != Copy || m.Dst != m.A {
			moves = append(moves, m)
		}
	}
	return moves
}

// runs appends the location of a span of the part, in as few spans as possible.
func (w *part) runs(runs []Span, s Span) []Span {
	for i := s.Lo; i < s.Hi; i++ {
		runs = w.at[s.Buf](runs, i)
	}
	return runs
}

// extend appends a span to runs, or makes the last of them longer.
func extend(runs []Span, s Span) []Span {
	if last := len(runs) - 1; last >= 0 && runs[last].Buf == s.Buf && runs[last].Hi == s.Lo {
		runs[last].Hi = s.Hi
		return runs
	}
	return append(runs, s)
}

// take takes the first n chunks off runs, if there are any.
func take(runs *[]Span, n int) Span {
	if len(*runs) == 0 {
		return Span{}
	}
	first := &(*runs)[0]
	s := Span{first.Buf, first.Lo, first.Lo + n}
	if first.Lo += n; first.Lo == first.Hi {
		*runs = (*runs)[1:]
	}
	return s
}

// A version is one of the vectors that a plan works on.
type version int

const (
	input version = iota - 2
	data
	// Temp has as many copies of the vector as needed, one after the other.
	sums  // partial results of a rank that may not write Data yet
	spare // scratch of parts that may use sums
)

// at returns the location of chunk i of the vector.
func (v version) at(i, chunks int) Span {
	switch v {
	case input:
		return one(Input, i)
	case data:
		return one(Data, i)
	}
	return one(Temp, int(v-sums)*chunks+i)
}

// cut returns a site for n chunks: equal parts of the chunks lo ≤ i < hi of a vector. Further
// chunks are in the copies after it.
func (p *Plan) cut(v version, lo, hi, n int) site {
	each, chunks := (hi-lo)/n, p.Chunks
	return func(runs []Span, i int) []Span {
		s := (v + version(i/n)).at(lo+i%n*each, chunks)
		s.Hi = s.Lo + each
		return extend(runs, s)
	}
}

// pick returns a site for chunks that each represent a list of chunks of a vector.
func (p *Plan) pick(v version, lists [][]int) site {
	chunks := p.Chunks
	return func(runs []Span, i int) []Span {
		for _, c := range lists[i%len(lists)] {
			runs = extend(runs, (v+version(i/len(lists))).at(c, chunks))
		}
		return runs
	}
}

// sparing converts an all-gather for the case that one rank, the owner, has all chunks already: the owner sends as before, and
// nobody sends to it.
func sparing(f inner, owner int) inner {
	return func(rank, size, root int) Plan {
		p := f(rank, size, root)
		q := Plan{Chunks: p.Chunks, Temps: p.Temps}
		for _, round := range p.Rounds {
			q.round(slices.DeleteFunc(slices.Clone(round), func(m Move) bool {
				if rank == owner {
					return m.Kind != Send
				}
				return m.Kind == Send && m.Peer == owner
			})...)
		}
		return q
	}
}

// apart converts an algorithm that reads its operands from Data to one that reads them from
// Input. Of every span of Data that f reads, it has written all or nothing.
func apart(f inner) inner {
	return func(rank, size, root int) Plan { return readInput(f(rank, size, root)) }
}

// readInput makes a plan read from Input the chunks of Data that it has not written.
func readInput(p Plan) Plan {
	q := Plan{Chunks: p.Chunks, Temps: p.Temps}
	written := make([]bool, p.Chunks)
	for _, round := range p.Rounds {
		moves := make(Round, len(round))
		for i, m := range round {
			for _, s := range [...]*Span{&m.A, &m.B} {
				if s.Buf == Data && s.Len() > 0 && !written[s.Lo] {
					s.Buf = Input
				}
			}
			moves[i] = m
		}
		for i := range round {
			for k := round[i].Dst.Lo; k < round[i].Dst.Hi && round[i].Dst.Buf == Data; k++ {
				written[k] = true
			}
		}
		q.Rounds = append(q.Rounds, moves)
	}
	return q
}
