package faults

import (
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestLeaveAfterLast: a rank that closes after its last operation does not disturb ranks that
// are still in that operation.
func TestLeaveAfterLast(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.Sim(), worldtest.QUIC(), worldtest.SHMLinks(), worldtest.TLS(), worldtest.Mixed()) {
		t.Run(m.Name, func(t *testing.T) {
			m.Require(t)
			rounds := 20
			if m.Name == "mem" {
				rounds = 200
			} else if !worldtest.AllTrials() {
				rounds = 10
			}
			if m.Name == worldtest.TLS().Name || m.Name == worldtest.Mixed().Name {
				rounds = 5 // Each round makes many connections.
			}
			if !worldtest.AllTrials() {
				rounds = min(5, rounds/4)
			}
			for round := range rounds {
				comms := m.Cluster(t, 2+round%4, nexar.Config{})
				count := []int{0, 1, 1000, 30_000, 300_000}[round%5]
				worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
					if rank == round%7 {
						time.Sleep(time.Duration(round%5) * 200 * time.Microsecond)
					}
					x := make([]float32, count)
					if err := nexar.AllReduce(t.Context(), c, x, nexar.Sum); err != nil {
						return err
					}
					if err := nexar.Broadcast(t.Context(), c, x, round%c.Size()); err != nil {
						return err
					}
					return c.Close()
				})
			}
		})
	}
}
