package quic

import (
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

func TestConformance(t *testing.T) {
	transporttest.Run(t, newCluster)
}

func newCluster(tb testing.TB, n int) transporttest.Cluster {
	nodes := newTestNodes(tb, n, Config{PipeWindow: 1 << 20}) // fills sooner
	cluster := transporttest.Cluster{Kill: func(i int) { nodes[i].kill() }}
	for _, n := range nodes {
		cluster.Transports = append(cluster.Transports, n)
		cluster.Identities = append(cluster.Identities, n.name)
	}
	return cluster
}
