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

// newCluster returns n transports of a new network.
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

// TestKilledSendsNothing: the conns of a killed transport end one after another. After the
// first end, it can neither write to the others nor close them regularly.
func TestKilledSendsNothing(t *testing.T) {
	const n = 9
	for range 100 {
		network := mem.NewNetwork()
		victim := listen(t, network, "victim")
		var own, peer [n]transport.Conn
		var senders [n]transport.Sender
		var receivers [n]transport.Receiver
		for i := range n {
			other := listen(t, network, string(rune('a'+i)))
			own[i], peer[i] = connectTo(t, victim, other)
			senders[i], receivers[i] = pipe(t, own[i], peer[i])
		}
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				<-own[i].Done()
				for k := range n {
					if _, err := senders[k].Write([]byte("goodbye")); !errors.Is(err, transport.ErrClosed) {
						t.Errorf("Write of a killed transport: error %v", err)
					}
					own[k].Close()
				}
			})
			all.Go(func() {
				if got, err := receivers[i].Read(make([]byte, 8)); got != 0 || !errors.Is(err, transport.ErrPeerGone) {
					t.Errorf("the peer of a killed transport has read %d bytes, error %v", got, err)
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
