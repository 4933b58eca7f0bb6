package shm

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/transport/transporttest"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		childMain()
		return
	}
	goleak.VerifyTestMain(m)
}

func TestConformance(t *testing.T) { transporttest.Run(t, newCluster) }

// TestConformanceAsleep never spins, and its rings are full all the time.
func TestConformanceAsleep(t *testing.T) {
	transporttest.Run(t, func(tb testing.TB, n int) transporttest.Cluster {
		c := newCluster(tb, n)
		for _, tr := range c.Transports {
			tr.(*endpoint).spinMax = -1
			tr.(*endpoint).ringBytes = ringBytesMin
		}
		return c
	})
}

func BenchmarkShm(b *testing.B) { transporttest.Bench(b, newCluster) }

func newCluster(tb testing.TB, n int) transporttest.Cluster {
	cluster := uniqueCluster()
	var nodes []*endpoint
	c := transporttest.Cluster{Kill: func(i int) { nodes[i].kill() }}
	for i := range n {
		node := newNode(tb, Config{Cluster: cluster, Node: fmt.Sprintf("node %d", i)})
		nodes = append(nodes, node)
		c.Transports = append(c.Transports, node)
	}
	return c
}
