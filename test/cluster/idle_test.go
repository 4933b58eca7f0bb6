package cluster

import (
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
)

// An idle world does not change. With -short or the race detector the test is shorter.
func TestIdle(t *testing.T) {
	t.Parallel()
	idle := 30 * time.Second
	switch {
	case testing.Short():
		idle = 10 * time.Second
	case require.Race:
		idle = 20 * time.Second
	}
	nodes := form(t, 4, func(cfg *nexar.Config) { cfg.HeartbeatInterval, cfg.HeartbeatTimeout = 100*time.Millisecond, idle/2 })
	time.Sleep(idle)
	mustBeNil(t, onEachNode(nodes, func(c *nexar.Comm) error { return c.Barrier(t.Context()) }))
	mustBeNil(t, onEachNode(nodes, func(c *nexar.Comm) error { return allReduce(t.Context(), c, 100_000, 1) }))
}
