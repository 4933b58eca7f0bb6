package cluster

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
)

// connMax limits the memory of both ends of an idle connection together.
const connMax = 256 << 10

// manyRanks returns the size of a large world in one process.
func manyRanks() int {
	if require.Race {
		return 16
	}
	return 64
}

// patientConfig sets long timeouts for many ranks on a busy machine, and QUIC connections as between
// hosts. On two idle processors 64 ranks form in 1.7 seconds.
func patientConfig(cfg *nexar.Config) {
	cfg.FormTimeout, cfg.CollectiveTimeout, cfg.BarrierTimeout = 5*slowMax, 10*slowMax, 10*slowMax
	cfg.Transports = []string{"quic"}
}

// A large world forms, works, and leaks nothing when it is closed.
func TestManyRanks(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	before := memoryNow().Heap
	t.Run("world", func(t *testing.T) {
		ranks := manyRanks()
		began := time.Now()
		nodes := form(t, ranks, patientConfig)
		formed := time.Since(began)
		mustBeNil(t, onEachNode(nodes, func(c *nexar.Comm) error { return c.Barrier(t.Context()) }))
		conns := ranks * (ranks - 1) / 2
		perConn := (memoryNow().Heap - before) / conns
		t.Logf("%d ranks formed in %v; each of %d connections takes %d KiB", ranks, formed, conns, perConn>>10)
		if perConn > connMax {
			t.Errorf("a connection takes %d KiB, want at most %d", perConn>>10, connMax>>10)
		}
		for _, n := range []int{1, 10_000} {
			mustBeNil(t, onEachNode(nodes, func(c *nexar.Comm) error { return allReduce(t.Context(), c, n, n) }))
		}
		began = time.Now()
		closeAll(t, nodes)
		t.Logf("closed in %v", time.Since(began))
	})
}

func BenchmarkForm(b *testing.B) {
	for _, ranks := range []int{2, 8, manyRanks()} {
		b.Run(fmt.Sprint("ranks=", ranks), func(b *testing.B) {
			b.ReportAllocs()
			conns := max(1, ranks*(ranks-1)/2)
			for b.Loop() {
				before := memoryNow().Heap
				nodes := form(b, ranks, patientConfig)
				b.StopTimer()
				b.ReportMetric(float64(memoryNow().Heap-before)/float64(conns), "B/conn")
				closeAll(b, nodes)
				b.StartTimer()
			}
		})
	}
}
