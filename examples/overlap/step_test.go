//race:none its tests start child processes, which the detector does not see

package main

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/nexartest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestDo: each part computes all gradients or none, and averages all or none.
func TestDo(t *testing.T) {
	const layers, ranks = 5, 3
	for p, want := range map[part]struct {
		computed int
		averaged bool
	}{
		computing: {layers, false}, reducing: {0, true}, sequential: {layers, true}, overlapping: {layers, true},
	} {
		t.Run(string(p), func(t *testing.T) {
			nexartest.Run(t, ranks, func(t *testing.T, c *nexar.Comm) {
				s := newStep(c, layers, 1000)
				for _, g := range s.gradients {
					for i := range g {
						g[i] = float32(c.Rank())
					}
				}
				computed := 0
				if err := s.do(t.Context(), p, func() { computed++ }); err != nil {
					t.Fatal(err)
				}
				value := float32(c.Rank())
				if want.averaged {
					value = (ranks - 1) / 2
				}
				for i, g := range s.gradients {
					if g[0] != value || g[len(g)-1] != value {
						t.Errorf("gradient %d is %v to %v, want %v", i, g[0], g[len(g)-1], value)
					}
				}
				if computed != want.computed {
					t.Errorf("%d gradients computed, want %d", computed, want.computed)
				}
			})
		})
	}
}

// TestMeasure: all ranks return the time of the slowest rank.
func TestMeasure(t *testing.T) {
	const slow = 2 * time.Millisecond
	nexartest.Run(t, 2, func(t *testing.T, c *nexar.Comm) {
		s := newStep(c, 3, 10)
		took, err := s.measure(t.Context(), func() {
			if c.Rank() == 1 {
				time.Sleep(slow)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parts() {
			if least := 3 * slow; p != reducing && took[p] < least || took[p] <= 0 {
				t.Errorf("%s takes %v, want at least %v", p, took[p], least)
			}
		}
	})
}

func TestWrite(t *testing.T) {
	took := func(a, b, c, d int) map[part]time.Duration {
		ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
		return map[part]time.Duration{computing: ms(a), reducing: ms(b), sequential: ms(c), overlapping: ms(d)}
	}
	var got strings.Builder
	write(&got, took(10, 9, 20, 15), took(11, 12, 40, 44))
	const want = `
computation on          processor    elsewhere
computation              10.00 ms     11.00 ms
all-reduces               9.00 ms     12.00 ms
sequential               20.00 ms     40.00 ms
overlapping              15.00 ms     44.00 ms
saved                        25 %        -10 %
`
	if got.String() != want[1:] {
		t.Errorf("got\n%swant%s", got.String(), want)
	}
}
