package sim_test

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/transport/sim"
	"github.com/nexar-go/nexar/transport/transporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster returns a factory of transports, each on its own host.
func cluster(config sim.Config) transporttest.Factory {
	return func(tb testing.TB, n int) transporttest.Cluster {
		network := sim.New(config)
		tb.Cleanup(func() { network.Close() })
		var c transporttest.Cluster
		for i := range n {
			t, err := network.Host(fmt.Sprintf("host%d", i)).Listen(7000)
			if err != nil {
				tb.Fatal(err)
			}
			c.Transports = append(c.Transports, t)
		}
		c.Kill = func(i int) { network.Crash(fmt.Sprintf("host%d", i)) }
		return c
	}
}

func TestConformance(t *testing.T) {
	transporttest.Run(t, cluster(sim.Config{Delay: 50 * time.Microsecond, Jitter: 50 * time.Microsecond, Loss: 0.01}))
}

func TestConformanceInBubble(t *testing.T) {
	for name, config := range map[string]sim.Config{
		"perfect": {},
		"wan":     {Seed: 1, Delay: 20 * time.Millisecond, Jitter: 5 * time.Millisecond, Loss: 0.02},
		"slow":    {Seed: 2, Delay: time.Millisecond, Rate: 100e6, Window: 20_000},
	} {
		t.Run(name, func(t *testing.T) {
			transporttest.RunInBubble(t, cluster(config))
		})
	}
}
