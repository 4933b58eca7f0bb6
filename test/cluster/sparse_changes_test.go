//go:build unix

package cluster

import (
	"math/rand/v2"
	"testing"

	"github.com/nexar-go/nexar/internal/require"
)

// TestChangesSparse is TestChanges for sparse topologies: nodes are killed and stopped, join, leave and are replaced by
// spares, and the neighbors change with each view.
func TestChangesSparse(t *testing.T) {
	t.Parallel()
	count := 3
	switch {
	case require.AllTrials():
		count = changesAlways
	case require.Race:
		count = 1
	}
	for i, kind := range []struct{ topology, transports string }{
		{"k-regular:4", "tcp"}, {"hypercube", "quic"}, {"k-regular:2", "shm,tcp,quic tcp,quic quic"}, {"hypercube", "shm"},
	} {
		t.Run(kind.topology, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			w := changingWorld{
				T: t, transports: kind.transports, topology: kind.topology, rng: rand.New(rand.NewPCG(seed, uint64(i))),
				stats: &changeStats{kinds: make(map[string]int)}, every: betweenSteps(),
			}
			w.run(count, false)
		})
	}
}
