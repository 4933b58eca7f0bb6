package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// forEach runs a subtest for each algorithm of each collective.
func forEach(t *testing.T, f func(t *testing.T, c Collective, a Algorithm)) {
	for _, c := range Collectives() {
		for _, a := range Algorithms(c) {
			t.Run(fmt.Sprintf("%v/%s", c, a.Name), func(t *testing.T) { f(t, c, a) })
		}
	}
}

// roots returns the roots to try: all, unless that takes too many moves; then those at which
// plans differ most, or a single one.
func roots(c Collective, a Algorithm, size int) []int {
	if !c.Rooted() {
		return []int{0}
	}
	const budget = 500_000
	moves := 0
	for _, p := range a.Plans(size, 0) {
		for _, round := range p.Rounds {
			moves += len(round)
		}
	}
	if moves > budget {
		return []int{size / 3}
	}
	if size > everySize || size > everyRoot {
		f := foldOf(size)
		return []int{0, 1, size / 2, f.first(f.pairs) % size, size - 1}
	}
	all := make([]int, size)
	for i := range all {
		all[i] = i
	}
	return all
}

// Every size up to everySize, and samples above. Up to everyRoot ranks with every root; above,
// five represent all. "make proofs" tries every one.
func TestEveryAlgorithmIsRight(t *testing.T) {
	t.Parallel()
	sizes := largeSizes[:]
	for size := range everySize {
		sizes = append(sizes, size+1)
	}
	forEach(t, func(t *testing.T, c Collective, a Algorithm) {
		for _, size := range sizes {
			if size > everySize && !a.Fits(size) {
				continue
			}
			for _, root := range roots(c, a, size) {
				checkAlgorithm(t, c, a, size, root)
			}
		}
	})
}

// checkAlgorithm proves the plans of an algorithm and its properties in the table.
func checkAlgorithm(t *testing.T, c Collective, a Algorithm, size, root int) {
	t.Helper()
	plans := a.Plans(size, root)
	p, err := prove(c, root, plans, make([]bool, size))
	if err != nil {
		t.Fatalf("root %d: %v", root, err)
	}
	if a.Ordered && !p.ordered {
		t.Fatalf("size %d, root %d: not in the order of the ranks", size, root)
	}
	if a.Uneven && !Uneven(c, plans) {
		t.Fatalf("size %d, root %d: relies on chunks of one length", size, root)
	}
	if a.Single && !single(plans) {
		t.Fatalf("size %d, root %d: a span has several chunks", size, root)
	}
	if rank := unlike(plans, root); a.Alike && rank >= 0 {
		t.Fatalf("size %d, root %d: the plan of rank %d is not like the others", size, root, rank)
	}
}

// unlike returns a rank other than root with a plan unlike those of the others, or -1. Root is 0 in a collective without a root.
func unlike(plans []Plan, root int) int {
	var like []Round
	for rank, p := range plans {
		if rank == root {
			continue
		}
		form := make([]Round, len(p.Rounds))
		for i, round := range p.Rounds {
			for _, m := range round {
				form[i] = append(form[i], Move{Kind: m.Kind, Dst: span(m.Dst.Buf, 0, m.Dst.Len()), A: span(m.A.Buf, 0, m.A.Len()), B: span(m.B.Buf, 0, m.B.Len())})
			}
		}
		if like == nil {
			like = form
		}
		if !slices.EqualFunc(form, like, slices.Equal) {
			return rank
		}
	}
	return -1
}

// canonical returns the expression that all canonical algorithms compute: pairs of ranks make
// the number of operands a power of two, then neighbors are combined until one is left.
func canonical(size int) string {
	pairs := size
	for bit := 1; bit <= size; bit *= 2 {
		pairs = size - bit
	}
	var operands []string
	for rank := 0; rank < size; rank++ {
		if rank < 2*pairs {
			operands = append(operands, fmt.Sprintf("(%d %d)", rank, rank+1))
			rank++
		} else {
			operands = append(operands, fmt.Sprint(rank))
		}
	}
	for len(operands) > 1 {
		for i := range len(operands) / 2 {
			operands[i] = "(" + operands[2*i] + " " + operands[2*i+1] + ")"
		}
		operands = operands[:len(operands)/2]
	}
	return operands[0]
}

func TestCanonicalAlgorithmsComputeOneExpression(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, c Collective, a Algorithm) {
		if !c.Reduces() || c == Scan || c == ExclusiveScan {
			if a.Canonical && !c.Reduces() {
				t.Error("is declared canonical, but nothing is reduced")
			}
			return
		}
		others := 0
		for size := 1; size <= expressionSize; size++ {
			for _, root := range roots(c, a, size) {
				got, err := Expression(c, root, a.Plans(size, root))
				if err != nil {
					t.Fatal(err)
				}
				want := canonical(size)
				if got != want {
					others++
				}
				if a.Canonical && got != want {
					t.Fatalf("size %d, root %d: got %s, want %s", size, root, got, want)
				}
			}
		}
		if !a.Canonical && others == 0 {
			t.Error("is canonical, but not declared so")
		}
	})
}

// Prefixes have no expression in common with other collectives, so that only
// one algorithm can be canonical.
func TestOneCanonicalScan(t *testing.T) {
	for _, c := range []Collective{Scan, ExclusiveScan} {
		n := 0
		for _, a := range Algorithms(c) {
			if a.Canonical {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%v has %d canonical algorithms", c, n)
		}
	}
}

// The table does not understate the properties of algorithms either.
func TestPropertiesAreNotUnderstated(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, c Collective, a Algorithm) {
		disordered, even, wide := 0, 0, 0
		for size := 1; size < 10; size++ {
			for _, root := range roots(c, a, size) {
				plans := a.Plans(size, root)
				if !Ordered(c, root, plans) {
					disordered++
				}
				if !Uneven(c, plans) {
					even++
				}
				if !single(plans) {
					wide++
				}
			}
		}
		if got := disordered == 0; got != a.Ordered {
			t.Errorf("ordered is %v, the table says %v", got, a.Ordered)
		}
		if got := even == 0; got != a.Uneven {
			t.Errorf("uneven is %v, the table says %v", got, a.Uneven)
		}
		if got := wide == 0; got != a.Single {
			t.Errorf("single is %v, the table says %v", got, a.Single)
		}
	})
}

// single reports whether every span of all plans is a single chunk.
func single(plans []Plan) bool {
	return !slices.ContainsFunc(plans, func(p Plan) bool { return !p.Single() })
}

func TestAlgorithmsHaveNames(t *testing.T) {
	t.Parallel()
	for _, c := range Collectives() {
		names := make(map[string]bool)
		for _, a := range Algorithms(c) {
			if a.Name == "" || strings.ToLower(a.Name) != a.Name || names[a.Name] {
				t.Errorf("%v: the name %q is taken or invalid", c, a.Name)
			}
			names[a.Name] = true
			if !a.Fits(4) && !a.Fits(64) && !a.Fits(1000) {
				t.Errorf("%v/%s fits neither few nor many ranks", c, a.Name)
			}
		}
		if all := Algorithms(c); len(all) == 0 || !all[0].Fits(1000) {
			t.Errorf("%v: the first algorithm must fit any number of ranks", c)
		}
	}
	if got := Algorithms(0); got != nil {
		t.Errorf("an unknown collective has %d algorithms", len(got))
	}
}
