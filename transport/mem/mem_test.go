package mem_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/transport"
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

// TestKilledDoesNothingMore: the conns of one that is killed do not end at the same
// moment, but when the first one has, it can neither write on the others nor close them
// as if it were alive.
func TestKilledDoesNothingMore(t *testing.T) {
	const n = 9
	for range 100 {
		network := mem.NewNetwork()
		victim := listen(t, network, "victim")
		var here, there [n]transport.Conn
		var senders [n]transport.Sender
		var receivers [n]transport.Receiver
		for i := range n {
			other := listen(t, network, string(rune('a'+i)))
			here[i], there[i] = connectTo(t, victim, other)
			senders[i], receivers[i] = pipe(t, here[i], there[i])
		}
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				<-here[i].Done()
				for k := range n {
					if _, err := senders[k].Write([]byte("goodbye")); !errors.Is(err, transport.ErrClosed) {
						t.Errorf("who was killed writes, with error %v", err)
					}
					here[k].Close()
				}
			})
			all.Go(func() {
				if got, err := receivers[i].Read(make([]byte, 8)); got != 0 || !errors.Is(err, transport.ErrPeerGone) {
					t.Errorf("the peer has read %d bytes, error %v", got, err)
				}
			})
		}
		network.Kill("victim")
		all.Wait()
	}
}

func listen(t *testing.T, network *mem.Network, name string) transport.Transport {
	t.Helper()
	e, err := network.Listen(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}
