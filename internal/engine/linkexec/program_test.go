package linkexec

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nexar-go/nexar/internal/plan"
)

// TestCompileRing compares the program of rank 1 of 4 with the paper: in round k of the first three
// it sends chunk 1-k and reduces chunk -k, in the others it sends chunk 2-k and receives chunk
// 1-k.
func TestCompileRing(t *testing.T) {
	g := Compile(plan.RingAllReduce(4, 0).Plan(1), 4)
	type row struct {
		move  string
		index uint32
		waits int32
		next  []int32
	}
	// A move that overwrites a chunk depends on the send that reads it, and on
	// the move that has written it.
	want := []row{
		{"send Data[1:2] to rank 2", 0, 0, []int32{7}},
		{"reduce Data[0:1] = message of rank 0 op Data[0:1]", 0, 0, []int32{2, 9}},
		{"send Data[0:1] to rank 2", 1, 1, []int32{9}},
		{"reduce Data[3:4] = message of rank 0 op Data[3:4]", 1, 0, []int32{4, 11}},
		{"send Data[3:4] to rank 2", 2, 1, []int32{11}},
		{"reduce Data[2:3] = message of rank 0 op Data[2:3]", 2, 0, []int32{6}},
		{"send Data[2:3] to rank 2", 3, 1, nil},
		{"receive Data[1:2] from rank 0", 3, 1, []int32{8}},
		{"send Data[1:2] to rank 2", 4, 1, nil},
		{"receive Data[0:1] from rank 0", 4, 2, []int32{10}},
		{"send Data[0:1] to rank 2", 5, 1, nil},
		{"receive Data[3:4] from rank 0", 5, 2, nil},
	}
	if len(g.moves) != len(want) {
		t.Fatalf("%d moves, want %d", len(g.moves), len(want))
	}
	for i, w := range want {
		m := g.moves[i]
		if want := int32(i/2 + 1); m.round != want {
			t.Errorf("move %d is in round %d, want %d", i, m.round, want)
		}
		if got := (row{m.String(), m.index, m.waits, m.next}); got.move != w.move || got.index != w.index || got.waits != w.waits || !slices.Equal(got.next, w.next) {
			t.Errorf("move %d:\n got %v\nwant %v", i, got, w)
		}
	}
	if want := []int32{0, 1, 3, 5}; !slices.Equal(g.first, want) {
		t.Errorf("moves %v wait for none, want %v", g.first, want)
	}
	if g.chunks != 4 || g.temp.Len() != 0 {
		t.Errorf("%d chunks, and %v; want 4, and nothing of Temp", g.chunks, g.temp)
	}
}

// TestDependenciesAreEnough: of two moves that conflict, the later one depends on the earlier one,
// directly or through others, so results do not depend on the order of moves.
func TestDependenciesAreEnough(t *testing.T) {
	for _, kind := range plan.Collectives() {
		for _, a := range plan.Algorithms(kind) {
			for size := 1; size <= 7; size++ {
				for rank := range size {
					g := Compile(a.Plan(rank, size, size/2), size)
					if err := ordered(g); err != nil {
						t.Errorf("%v, %s, rank %d of %d: %v", kind, a.Name, rank, size, err)
					}
				}
			}
		}
	}
}

func ordered(g *Program) error {
	n := len(g.moves)
	before := make([][]bool, n) // before[j][i]: j waits for i, if not directly
	waits := make([]int32, n)
	for i := range before {
		before[i] = make([]bool, n)
	}
	for i, m := range g.moves {
		for _, j := range m.next {
			if int(j) <= i {
				return fmt.Errorf("move %d waits for the later move %d", j, i)
			}
			waits[j]++
			before[j][i] = true
		}
	}
	for j := range n {
		if waits[j] != g.moves[j].waits {
			return fmt.Errorf("move %d waits for %d moves and counts %d", j, waits[j], g.moves[j].waits)
		}
		for i := range j {
			if !before[j][i] {
				continue
			}
			for k := range i {
				before[j][k] = before[j][k] || before[i][k]
			}
		}
		for i := range j {
			if conflict(&g.moves[i].Move, &g.moves[j].Move) && !before[j][i] {
				return fmt.Errorf("moves %d (%v) and %d (%v) may be made in any order", i, g.moves[i], j, g.moves[j])
			}
		}
	}
	return nil
}

// conflict reports whether one of two moves writes memory that the other uses.
func conflict(a, b *plan.Move) bool {
	touches := func(m *plan.Move) []plan.Span { return []plan.Span{m.Dst, m.A, m.B} }
	for _, pair := range [][2]*plan.Move{{a, b}, {b, a}} {
		w := pair[0].Dst
		for _, s := range touches(pair[1]) {
			if s.Buf == w.Buf && s.Lo < w.Hi && w.Lo < s.Hi {
				return true
			}
		}
	}
	return false
}

// TestStepsArePaired: the k-th step that a rank sends to another is as long as the k-th step that
// the other receives from it.
func TestStepsArePaired(t *testing.T) {
	for _, kind := range plan.Collectives() {
		for _, a := range plan.Algorithms(kind) {
			for size := 1; size <= 7; size++ {
				var programs []*Program
				for rank := range size {
					programs = append(programs, Compile(a.Plan(rank, size, 0), size))
				}
				for i, p := range programs {
					for j, q := range programs {
						if len(p.sends[j]) != len(q.recvs[i]) {
							t.Fatalf("%v, %s, %d ranks: %d sends %d messages to %d, which takes %d", kind, a.Name, size, i, len(p.sends[j]), j, len(q.recvs[i]))
						}
						for k, s := range p.sends[j] {
							from, to := p.moves[s], q.moves[q.recvs[i][k]]
							if from.A.Len() != to.Dst.Len() || from.index != uint32(k) || to.index != uint32(k) {
								t.Errorf("%v, %s, %d ranks: message %d from %d to %d: %v and %v", kind, a.Name, size, k, i, j, from, to)
							}
						}
					}
				}
			}
		}
	}
}
