package mem_test

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/transport/mem"
	"github.com/nexar-go/nexar/transport/transporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newCluster makes n ranks of a network of their own.
func newCluster(tb testing.TB, n int) transporttest.Cluster {
	var c transporttest.Cluster
	network := mem.NewNetwork()
	for i := range n {
		t, err := network.Listen(fmt.Sprintf("rank %d", i))
		if err != nil {
			tb.Fatal(err)
		}
		c.Transports = append(c.Transports, t)
	}
	c.Kill = func(i int) { network.Kill(fmt.Sprintf("rank %d", i)) }
	return c
}

func TestConformance(t *testing.T) { transporttest.Run(t, newCluster) }

func TestConformanceInBubble(t *testing.T) { transporttest.RunInBubble(t, newCluster) }

func BenchmarkMem(b *testing.B) { transporttest.Bench(b, newCluster) }
