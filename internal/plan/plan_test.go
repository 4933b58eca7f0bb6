//race:none one goroutine makes plans and proves them; its tests only run side by side

package plan

import (
	"fmt"
	"testing"
)

// In the first half partial sums circulate, in the second half results.
func ExampleRingAllReduce() {
	for i, round := range RingAllReduce(3, 0).Plan(0).Rounds {
		for _, move := range round {
			fmt.Println(i, move)
		}
	}
	// Output:
	// 0 send Data[0:1] to rank 1
	// 0 reduce Data[2:3] = message of rank 2 op Data[2:3]
	// 1 send Data[2:3] to rank 1
	// 1 reduce Data[1:2] = message of rank 2 op Data[1:2]
	// 2 send Data[1:2] to rank 1
	// 2 receive Data[0:1] from rank 2
	// 3 send Data[0:1] to rank 1
	// 3 receive Data[2:3] from rank 2
}

func TestMoveString(t *testing.T) {
	for _, test := range []struct {
		move fmt.Stringer
		want string
	}{
		{reduce(one(Temp, 1), one(Input, 0), 2), "reduce Temp[1:2] = Input[0:1] op message of rank 2"},
		{copyTo(span(Data, 0, 2), span(Temp, 4, 6)), "copy Data[0:2] = Temp[4:6]"},
		{combine(one(Data, 0), one(Data, 0), one(Temp, 0)), "combine Data[0:1] = Data[0:1] op Temp[0:1]"},
		{Move{}, "Kind(0)"},
		{Span{Buf: 9, Lo: 1, Hi: 2}, "Buf(9)[1:2]"},
		{AllToAll, "all_to_all"},
		{Collective(0), "unknown"},
		{CollectiveLimit, "unknown"},
		{Collective(200), "unknown"},
	} {
		if got := test.move.String(); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

// Temp has exactly the chunks that the plan touches, and TempUsed returns their number.
func TestTempUsed(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, c Collective, a Algorithm) {
		for size := 1; size <= 20; size++ {
			for _, root := range roots(c, a, size) {
				for rank, p := range a.Plans(size, root) {
					touched := make(map[int]bool)
					for _, round := range p.Rounds {
						for _, m := range round {
							for _, s := range []Span{m.Dst, m.A, m.B} {
								for i := s.Lo; i < s.Hi && s.Buf == Temp; i++ {
									touched[i] = true
								}
							}
						}
					}
					want := Span{Temp, p.Temps, p.Temps}
					highest := 0
					for i := range touched {
						want.Lo = min(want.Lo, i)
						highest = max(highest, i+1)
					}
					if got := p.TempUsed(); got != want || highest != p.Temps {
						t.Fatalf("size %d, root %d, rank %d: TempUsed is %v of %d, want %v of %d", size, root, rank, got, p.Temps, want, highest)
					}
				}
			}
		}
	})
}

// The merges of all ranks are one tree: every group that is merged is a rank
// or was merged before, and every rank ends in the group of all.
func TestMerges(t *testing.T) {
	t.Parallel()
	for size := 1; size <= 130; size++ {
		for rank := range size {
			lo, hi := rank, rank+1
			for _, m := range merges(rank, size) {
				if gotLo, gotHi := m.group(rank); gotLo != lo || gotHi != hi {
					t.Fatalf("size %d, rank %d: %v merges [%d,%d), want [%d,%d)", size, rank, m, gotLo, gotHi, lo, hi)
				}
				lo, hi = m.lo, m.hi
			}
			if lo != 0 || hi != size {
				t.Fatalf("size %d, rank %d: ends in [%d,%d)", size, rank, lo, hi)
			}
		}
	}
}

func BenchmarkPlan(b *testing.B) {
	for _, c := range Collectives() {
		for _, a := range Algorithms(c) {
			for _, size := range []int{8, 64, 1000} {
				b.Run(fmt.Sprintf("%v/%s/%d", c, a.Name, size), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						a.Plan(size/2, size, 0)
					}
				})
			}
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	for _, size := range []int{8, 64, 256} {
		plans := make([]Plan, size)
		for rank := range plans {
			plans[rank] = RingAllReduce(size, 0).Plan(rank)
		}
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := Check(AllReduce, 0, plans); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
