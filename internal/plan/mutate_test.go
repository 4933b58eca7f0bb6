package plan

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// A mutant is the plan of one rank with one fault.
type mutant struct {
	kind string
	plan Plan
}

// clone returns a plan that shares no memory with p.
func clone(p Plan) Plan {
	p.Rounds = slices.Clone(p.Rounds)
	for r := range p.Rounds {
		p.Rounds[r] = slices.Clone(p.Rounds[r])
	}
	return p
}

// mutants calls f for each mutant of a rank's plan.
func mutants(p Plan, size int, f func(mutant)) {
	change := func(kind string, edit func(p *Plan)) {
		q := clone(p)
		edit(&q)
		f(mutant{kind, q})
	}
	change("chunks", func(p *Plan) { p.Chunks++ })
	change("temps", func(p *Plan) { p.Temps-- })
	for r := range p.Rounds {
		for other := range r {
			change("exchange two rounds", func(p *Plan) { p.Rounds[r], p.Rounds[other] = p.Rounds[other], p.Rounds[r] })
		}
		if r > 0 {
			change("join two rounds", func(p *Plan) {
				p.Rounds[r-1] = append(p.Rounds[r-1], p.Rounds[r]...)
				p.Rounds = slices.Delete(p.Rounds, r, r+1)
			})
		}
		for i := range p.Rounds[r] {
			mutateMove(p, r, i, size, change)
		}
	}
}

// mutateMove makes the mutants of one move.
func mutateMove(p Plan, r, i, size int, change func(kind string, edit func(p *Plan))) {
	m := p.Rounds[r][i]
	edit := func(kind string, f func(m *Move)) { change(kind, func(p *Plan) { f(&p.Rounds[r][i]) }) }

	change("drop a move", func(p *Plan) { p.Rounds[r] = slices.Delete(p.Rounds[r], i, i+1) })
	change("repeat a move", func(p *Plan) { p.Rounds[r] = append(p.Rounds[r], m) })
	change("repeat a move later", func(p *Plan) { p.Rounds = slices.Insert(p.Rounds, r+1, Round{m}) })
	change("delay a move", func(p *Plan) {
		p.Rounds[r] = slices.Delete(p.Rounds[r], i, i+1)
		p.Rounds = slices.Insert(p.Rounds, r+1, Round{m})
	})
	for peer := range size {
		edit("redirect", func(m *Move) { m.Peer = peer })
	}
	edit("flip left", func(m *Move) { m.Left = !m.Left })
	edit("exchange operands", func(m *Move) { m.A, m.B = m.B, m.A })
	for kind := Send; kind <= Combine; kind++ {
		edit("change the kind", func(m *Move) { m.Kind = kind })
	}
	for _, pick := range []func(m *Move) *Span{
		func(m *Move) *Span { return &m.Dst }, func(m *Move) *Span { return &m.A }, func(m *Move) *Span { return &m.B },
	} {
		if *pick(&m) == (Span{}) {
			continue
		}
		for _, by := range [][2]int{{1, 1}, {-1, -1}, {0, 1}, {-1, 0}, {1, 0}, {0, -1}} {
			edit("change a chunk", func(m *Move) { pick(m).Lo += by[0]; pick(m).Hi += by[1] })
		}
		for b := Data; b <= Temp; b++ {
			edit("change a buffer", func(m *Move) { pick(m).Buf = b })
		}
	}
	for later := r; later < min(r+2, len(p.Rounds)); later++ {
		for j, other := range p.Rounds[later] {
			if later > r || j > i {
				change("swap the spans of two moves", func(p *Plan) {
					a, b := &p.Rounds[r][i], &p.Rounds[later][j]
					a.Dst, a.A, a.B, b.Dst, b.A, b.B = other.Dst, other.A, other.B, m.Dst, m.A, m.B
				})
			}
		}
	}
}

// TestCheckCatchesWritesToInputs: a rank that gives a buffer without a result in it sends one chunk of it to another rank, which returns
// it: the values stay right, and Check still finds the write. The same detour through Temp is allowed.
func TestCheckCatchesWritesToInputs(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, c Collective, a Algorithm) {
		const size = 4
		if !a.Fits(size) {
			return
		}
		for _, root := range roots(c, a, size) {
			plans := a.Plans(size, root)
			for rank := range plans {
				j := job{c: c, root: root, chunks: plans[rank].Chunks}
				for _, b := range [...]Buf{Data, Input} {
					lo, hi := j.present(rank, b)
					if lo == hi || c == Barrier {
						continue
					}
					detour := slices.Clone(plans)
					other, chunk, temp := mod(rank+1, size), one(b, lo), one(Temp, plans[rank].Chunks+lo)
					back := func(dst Span) error {
						detour[rank], detour[other] = clone(plans[rank]), clone(plans[other])
						detour[rank].Rounds = append([]Round{{send(chunk, other)}, {recv(dst, other)}}, detour[rank].Rounds...)
						detour[rank].Temps = max(detour[rank].Temps, temp.Hi)
						detour[other].Temps = max(detour[other].Temps, temp.Hi)
						detour[other].Rounds = append([]Round{{recv(temp, rank)}, {send(temp, rank)}}, detour[other].Rounds...)
						return Check(c, root, detour)
					}
					if !j.givesOnly(rank, b) {
						continue
					}
					if err := back(temp); err != nil {
						t.Fatalf("rank %d, root %d: the detour of %v to Temp: %v", rank, root, chunk, err)
					}
					if err := back(chunk); err == nil || !strings.Contains(err.Error(), "may not be written") {
						t.Errorf("rank %d, root %d: the detour of %v: error %v, want that it may not be written", rank, root, chunk, err)
					}
				}
			}
		}
	})
}

// A tally counts mutants by their outcome.
type tally struct{ made, identical, caught, equivalent int }

func (t *tally) add(o tally) {
	t.made += o.made
	t.identical += o.identical
	t.caught += o.caught
	t.equivalent += o.equivalent
}

// A census has a tally for each kind of mutant.
type census map[string]*tally

// try makes all mutants of the plans of an algorithm, at some roots.
func (k census) try(t *testing.T, c Collective, a Algorithm, size int) (sum tally) {
	someRoots := []int{0}
	if c.Rooted() && size > 2 {
		someRoots = []int{0, size / 2, size - 1}
	}
	for _, root := range someRoots {
		plans := a.Plans(size, root)
		for rank, original := range plans {
			mutants(original, size, func(m mutant) {
				if k[m.kind] == nil {
					k[m.kind] = new(tally)
				}
				got := checkMutant(t, c, a, root, plans, rank, m)
				k[m.kind].add(got)
				sum.add(got)
			})
			plans[rank] = original
		}
	}
	return sum
}

// report requires that nearly all mutants are faults.
func (k census) report(t *testing.T) {
	var all tally
	var text strings.Builder
	for kind, got := range k {
		all.add(*got)
		fmt.Fprintf(&text, "\n%-28s %+v", kind, *got)
	}
	t.Logf("%+v%s", all, text.String())
	if all.made == 0 || all.caught < 9*(all.made-all.identical)/10 {
		t.Errorf("only %d of %d mutants were faults: %+v", all.caught, all.made-all.identical, all)
	}
}

// Check must catch every mutant that is wrong. If it accepts a mutant, the executor, which
// shares no code with Check, must agree, with uneven chunks, and with an op that does not
// commute where the order matters.
func TestCheckCatchesMutants(t *testing.T) {
	t.Parallel()
	kinds := make(census)
	forEach(t, func(t *testing.T, c Collective, a Algorithm) {
		var sum tally
		for _, size := range mutantSizes {
			sum.add(kinds.try(t, c, a, size))
		}
		t.Logf("%+v", sum)
	})
	kinds.report(t)
}

// checkMutant replaces the plan of a rank by a mutant and returns the outcome.
func checkMutant(t *testing.T, c Collective, a Algorithm, root int, plans []Plan, rank int, m mutant) tally {
	t.Helper()
	original := plans[rank]
	if reflect.DeepEqual(m.plan, original) {
		return tally{made: 1, identical: 1}
	}
	plans[rank] = m.plan
	defer func() { plans[rank] = original }()
	err := Check(c, root, plans)
	if err != nil || a.Ordered && !Ordered(c, root, plans) {
		return tally{made: 1, caught: 1}
	}
	if a.Uneven && !Uneven(c, plans) {
		return tally{made: 1, caught: 1}
	}
	for seed := range uint64(3) {
		if err := right(c, a, root, plans, seed); err != nil {
			t.Errorf("size %d, root %d, rank %d: %s: Check accepts it, but %v\n%v", len(plans), root, rank, m.kind, err, m.plan)
			break
		}
	}
	return tally{made: 1, equivalent: 1}
}
