package cluster

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
)

// BenchmarkFirstMessage measures an exchange of 8 bytes with a peer without a connection, over TCP with TLS,
// and the same exchange again. It reports the medians: "first-µs", "warm-µs", and their difference,
// the cost of the connection, "connect-µs". The rest of the world is idle.
func BenchmarkFirstMessage(b *testing.B) {
	const ranks = 32
	var first, warm []time.Duration
	var nodes []*nexar.Node
	var pairs [][2]int
	for b.Loop() {
		if len(pairs) == 0 {
			b.StopTimer()
			closeAll(b, nodes)
			nodes = form(b, ranks, func(cfg *nexar.Config) { cfg.Transports = []string{"tcp"} })
			if pairs = unlinkedPairs(nodes); len(pairs) == 0 {
				b.Fatalf("all pairs of %d nodes are connected", ranks)
			}
			b.StartTimer()
		}
		p := pairs[0]
		pairs = pairs[1:]
		first = append(first, exchange(b, nodes, p))
		b.StopTimer()
		for range 20 {
			warm = append(warm, exchange(b, nodes, p))
		}
		b.StartTimer()
	}
	cold, hot := middle(first), middle(warm)
	b.ReportMetric(float64(cold.Nanoseconds())/1e3, "first-µs")
	b.ReportMetric(float64(hot.Nanoseconds())/1e3, "warm-µs")
	b.ReportMetric(float64((cold-hot).Nanoseconds())/1e3, "connect-µs")
}

// unlinkedPairs returns the pairs of ranks without a connection.
func unlinkedPairs(nodes []*nexar.Node) (pairs [][2]int) {
	for rank, n := range nodes {
		for _, p := range n.Peers() {
			if p.Rank > rank && p.LinkPurpose == "" {
				pairs = append(pairs, [2]int{rank, p.Rank})
			}
		}
	}
	return pairs
}

// exchange sends a message from the first rank of a pair to the second and one back, and returns the time.
func exchange(b *testing.B, nodes []*nexar.Node, p [2]int) time.Duration {
	b.Helper()
	const tag = 3
	answered := make(chan error, 1)
	go func() {
		c, x := nodes[p[1]].World(), make([]int64, 1)
		_, err := nexar.Recv(context.Background(), c, x, p[0], tag)
		if err == nil {
			err = nexar.Send(context.Background(), c, x, p[0], tag)
		}
		answered <- err
	}()
	c, x, began := nodes[p[0]].World(), []int64{int64(p[1])}, time.Now()
	err := nexar.Send(b.Context(), c, x, p[1], tag)
	if err == nil {
		_, err = nexar.Recv(b.Context(), c, x, p[1], tag)
	}
	took := time.Since(began)
	for _, err := range []error{err, <-answered} {
		if err != nil {
			b.Fatal(err)
		}
	}
	return took
}

func middle(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}
