package nexar

import (
	"testing"
	"time"
)

// A rank that has done its part and closes takes nothing from those that are
// not as far.
func TestLeaveAfterLast(t *testing.T) {
	for _, m := range []medium{overMem, overSim, overQUIC, overRings, overTCP, overMixed} {
		t.Run(m.name, func(t *testing.T) {
			m.needs(t)
			rounds := 20
			if m.name == "mem" {
				rounds = 200
			}
			if m.name == overTCP.name || m.name == overMixed.name {
				rounds = 5 // Each makes many connections.
			}
			if raceDetector {
				rounds = max(5, rounds/10)
			}
			for round := range rounds {
				comms := m.cluster(t, 2+round%4, Config{})
				count := []int{0, 1, 1000, 30_000, 300_000}[round%5]
				onAll(t, comms, func(rank int, c *Comm) error {
					if rank == round%7 {
						time.Sleep(time.Duration(round%5) * 200 * time.Microsecond)
					}
					x := make([]float32, count)
					if err := AllReduce(t.Context(), c, x, Sum); err != nil {
						return err
					}
					if err := Broadcast(t.Context(), c, x, round%c.Size()); err != nil {
						return err
					}
					return c.Close()
				})
			}
		})
	}
}
