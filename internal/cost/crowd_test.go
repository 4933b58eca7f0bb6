package cost

import (
	"math"
	"testing"

	"github.com/nexar-go/nexar/internal/plan"
)

// TestCrowd: the number of ranks for a processor is rounded up, and has bounds.
func TestCrowd(t *testing.T) {
	for _, test := range []struct {
		ranks, processors int
		want              uint8
	}{{1, 64, 1}, {64, 64, 1}, {65, 64, 2}, {128, 2, 64}, {1024, 2, 255}, {8, 0, 8}, {0, 4, 1}} {
		if got := Crowd(test.ranks, test.processors); got != test.want {
			t.Errorf("%d ranks on %d processors: %d, want %d", test.ranks, test.processors, got, test.want)
		}
	}
}

// TestCrowdedChoices: many ranks that share a processor take plans with few messages. With a processor for each rank the
// choices are those without the number of ranks for a processor.
func TestCrowdedChoices(t *testing.T) {
	for _, size := range []int{65, 100, 128, 256, 1000, 1023, 1024} {
		crowded, apart, plain := New(TCP(true)).Crowded(Crowd(size, 2)), New(TCP(true)).Crowded(Crowd(size, size)), New(TCP(true))
		for c, want := range map[plan.Collective][2]string{
			plan.AllReduce: {"ordered", ""}, plan.Barrier: {"binomial", "dissemination"}, plan.Broadcast: {"binomial", "binomial"}, plan.Reduction: {"binomial", "binomial"},
		} {
			n := Need{Collective: c, Size: size, Bytes: 8}
			if c == plan.Barrier {
				n.Bytes = 0
			}
			if got := crowded.Choose(n).Algorithm.Name; got != want[0] {
				t.Errorf("%v of %d ranks on two processors: %s, want %s", c, size, got, want[0])
			}
			if got := apart.Choose(n).Algorithm.Name; want[1] != "" && got != want[1] {
				t.Errorf("%v of %d ranks with a processor each: %s, want %s", c, size, got, want[1])
			}
		}
		if size > 256 {
			continue
		}
		for _, n := range needs(size) {
			if a, b := apart.Choose(n), plain.Choose(n); !same(a, b) {
				t.Errorf("%+v: %s with a processor for each rank, and %s without their number", n, a.Algorithm.Name, b.Algorithm.Name)
			}
		}
	}
}

// TestFewRanksAreNotCrowded: the choices of up to 64 ranks do not depend on the number of processors.
func TestFewRanksAreNotCrowded(t *testing.T) {
	for _, net := range []Network{TCP(false), TCP(true), QUIC(), Local()} {
		for _, size := range []int{2, 3, 4, 8, 13, 16, 32, 64} {
			crowded, plain := New(net).Crowded(crowdMax), New(net)
			for _, n := range needs(size) {
				if a, b := crowded.Choose(n), plain.Choose(n); !same(a, b) {
					t.Errorf("%+v: %s on a crowded processor, %s otherwise", n, a.Algorithm.Name, b.Algorithm.Name)
				}
			}
		}
	}
}

// TestLeastTime: the lower bound of the time of an algorithm among many ranks is below its time, so that the bounds change no
// choice, and close enough that a short all-reduce is chosen without the plans of most algorithms.
func TestLeastTime(t *testing.T) {
	for _, crowd := range []uint8{1, 2, 50, crowdMax} {
		for _, net := range []Network{TCP(true), QUIC(), Local()} {
			for _, size := range []int{65, 100, 128, 250} {
				all := New(net).Crowded(crowd)
				bounded := New(net).Crowded(crowd)
				all.least = nil
				for _, n := range needs(size) {
					for i, a := range plan.Algorithms(n.Collective) {
						if c, ok := all.ChoiceWith(n, i, 0); ok && !a.Shared && !a.Placed {
							if least := bounded.leastTime(i, a, n, 0); least > c.Seconds {
								t.Errorf("%+v by %s, %d ranks for a processor: the bound is %.3g s, the time %.3g s", n, a.Name, crowd, least, c.Seconds)
							}
						}
					}
					if got, want := bounded.Choose(n), all.Choose(n); !same(got, want) {
						t.Errorf("%+v, %d ranks for a processor: %s with bounds, %s without", n, crowd, got.Algorithm.Name, want.Algorithm.Name)
					}
				}
			}
		}
	}
	tuner := New(TCP(true)).Crowded(64)
	tuner.Choose(Need{Collective: plan.AllReduce, Size: 1024, Bytes: 8})
	if got := len(tuner.figures); got > 2 {
		t.Errorf("the plans of %d algorithms were evaluated", got)
	}
}

// TestShareOfManyRanks: the estimated work of a rank among many is that of their plans, within a fifth or
// 0.05 vectors.
func TestShareOfManyRanks(t *testing.T) {
	for _, c := range plan.Collectives() {
		for _, a := range plan.Algorithms(c) {
			if a.Shared || a.Placed || !a.Fits(128) {
				continue
			}
			for _, size := range []int{128, 256} {
				if a.Name == "direct" && size > 128 {
					continue // Its plans have many moves.
				}
				got, want := shareBeyond(a, size, 8), shareAmong(a, size)
				for _, pair := range [...]struct {
					name      string
					got, want float64
				}{{"messages", got.messages, want.messages}, {"bytes", got.moved, want.moved}, {"reduced bytes", got.reduced, want.reduced}} {
					if math.Abs(pair.got-pair.want) > max(0.2*pair.want, 0.05) {
						t.Errorf("%v by %s of %d ranks: %.3g %s for a rank, want %.3g", c, a.Name, size, pair.got, pair.name, pair.want)
					}
				}
			}
		}
	}
}
