package shm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/transport"
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

// TestConformanceAsleep runs the suite without spinning, with rings that are always full.
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

// TestConformanceLarge runs the suite with large pipes.
func TestConformanceLarge(t *testing.T) {
	transporttest.Run(t, func(tb testing.TB, n int) transporttest.Cluster {
		c := newCluster(tb, n)
		for _, tr := range c.Transports {
			tr.(*endpoint).ringBytes = tr.(*endpoint).largeBytes
		}
		return c
	})
}

// TestConformanceReclaim runs the suite while the memory of empty rings is reclaimed.
func TestConformanceReclaim(t *testing.T) {
	transporttest.Run(t, func(tb testing.TB, n int) transporttest.Cluster {
		c := newCluster(tb, n)
		for _, tr := range c.Transports {
			tr.(*endpoint).reclaimer.every = 200 * time.Microsecond
		}
		return c
	})
}

// TestLargePipe: a pipe takes about as many bytes as its ring has, without a reader.
func TestLargePipe(t *testing.T) {
	a, b := newPair(t, Config{})
	for size, open := range map[int]func(context.Context) (transport.Sender, error){ringBytes: a.OpenPipe, largeBytes: a.OpenLarge} {
		s, err := open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.AcceptPipe(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		if n, err := s.Write(make([]byte, 2*largeBytes)); n < size-size/256 || n > size || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("wrote %d bytes and got %v, want about %d bytes", n, err, size)
		}
	}
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
