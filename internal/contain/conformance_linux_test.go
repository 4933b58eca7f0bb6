package contain

import (
	"crypto/rand"
	"fmt"
	"testing"

	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/shm"
	"github.com/nexar-go/nexar/transport/transporttest"
)

// TestConformanceSharedMemory: shared memory has the capabilities that mem lacks: writing parts and polling.
func TestConformanceSharedMemory(t *testing.T) {
	transporttest.Run(t, newSharedMemory)
}

func newSharedMemory(tb testing.TB, n int) (c transporttest.Cluster) {
	name := rand.Text()
	for i := range n {
		inner, err := shm.New(shm.Config{Cluster: name, Node: fmt.Sprintf("node %d", i), AreaSize: 1 << 16})
		if err != nil {
			tb.Fatal(err)
		}
		c.Transports = append(c.Transports, wrap(tb, "shm", inner, 0, nil))
	}
	return c
}

// TestCapabilities: a contained conn and its pipes have the capabilities of the inner ones.
func TestCapabilities(t *testing.T) {
	c := newSharedMemory(t, 2)
	for _, tr := range c.Transports {
		defer tr.Close()
	}
	a, err := c.Transports[0].Dial(t.Context(), c.Transports[1].Addr(), "node 1")
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Transports[1].Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	can := transport.CapabilitiesOf(a)
	if can.Locality != transport.SameHost || can.Class != transport.ClassMemory || can.LargeOpener == nil || can.MemorySharer == nil {
		t.Errorf("capabilities of a conn: %+v", can)
	}
	if can.TLSConn != nil || can.Authenticator != nil || can.PairOpener != nil || can.RemoteMemory != nil {
		t.Errorf("a conn has capabilities that the inner one lacks: %+v", can)
	}
	s, err := a.OpenPipe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if can := transport.CapabilitiesOf(s); can.TryWriter == nil || can.TryVectorWriter == nil || can.PartWriter == nil || can.LazyWriter == nil || can.VectorWriter != nil {
		t.Errorf("capabilities of a sender: %+v", can)
	}
	if _, err := s.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	r, err := b.AcceptPipe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if can := transport.CapabilitiesOf(r); can.Poller == nil || can.CPULocator != nil {
		t.Errorf("capabilities of a receiver: %+v", can)
	}
	areas, err := can.MemorySharer.AcquireAreas()
	if err != nil {
		t.Fatal(err)
	}
	if own, peer := areas.Area(0); len(own) != 1<<16 || len(peer) != 1<<16 {
		t.Errorf("areas of %d and %d bytes", len(own), len(peer))
	}
	areas.Release()
}
