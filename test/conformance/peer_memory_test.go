//go:build !race

package conformance

import (
	"context"
	"log/slog"
	"math"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/test/worldtest"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/mem"
)

// unlinkedMax is the largest heap, in bytes, that the test permits for a peer without a connection. The target is 1 KiB, and 896 and
// 974 bytes were measured; the rest is for buffers that are in use at the time of the measurement.
const unlinkedMax = 1280

// TestPeerMemory: a further peer without a connection costs a node little heap, in all its parts together. The real
// nodes of the worlds are in this process, and have as many links in each. The heap of the seed is a part of that of a world, so
// the test bounds that as well.
func TestPeerMemory(t *testing.T) {
	require.Have(t, "starts", os.Getenv("STARTS") != "", `it forms worlds of 392 nodes; "make starts" runs it`)
	const first, few, many = 40, 128, 224 // From 128 nodes on, the longest message to a node fills the buffers of its connection.
	// Memory that the first world alone takes is not counted. All worlds stay until the end: memory that one leaves behind would
	// count for the next.
	heapOfWorld(t, first)
	small, linksSmall := heapOfWorld(t, few)
	large, linksLarge := heapOfWorld(t, many)
	if math.Abs(linksSmall-linksLarge) > 0.01 {
		t.Fatalf("a node has %.1f links in a world of %d and %.1f in one of %d, want as many", linksSmall, few, linksLarge, many)
	}
	each := (large - small) / (many - few)
	t.Logf("a node takes %.1f KiB among %d nodes and %.1f KiB among %d, with %.1f links: %.0f B for each further peer", small/1024, few, large/1024, many, linksSmall, each)
	if each > unlinkedMax {
		t.Errorf("a peer without a connection costs %.0f B, want at most %d", each, unlinkedMax)
	}
}

// heapOfWorld forms a world of n nodes, and returns the heap, in bytes, and the number of links, both for each node.
func heapOfWorld(t *testing.T, n int) (heap, links float64) {
	t.Helper()
	before := usedHeap()
	seed, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: "127.0.0.1:0", World: n, AllowWeakToken: true})
	if err != nil {
		t.Fatal(err)
	}
	network := mem.NewNetwork()
	cfg := nexar.Config{
		Seeds: []string{seed.Addr()}, Listen: "127.0.0.1:0", Transports: []string{"near", "tcp"}, Log: slog.New(slog.DiscardHandler),
		Factories: []transport.Factory{{Name: "near", Listen: func(_ context.Context, env transport.Env) (transport.Transport, error) {
			tr, err := network.Listen(env.Node)
			return betweenHosts{tr}, err
		}}},
	}
	nodes := make([]*nexar.Node, n)
	err = worldtest.ForEach(n, func(i int) (err error) {
		nodes[i], err = nexar.Join(t.Context(), cfg)
		return err
	})
	if err == nil {
		heap = float64(usedHeap()-before) / float64(n)
		for _, node := range nodes {
			for _, p := range node.Peers() {
				if p.LinkPurpose != "" {
					links += 1 / float64(n)
				}
			}
		}
	}
	t.Cleanup(func() {
		seed.Close() // Without it, a node that leaves changes no view of the others.
		err := worldtest.ForEach(n, func(i int) error {
			if nodes[i] == nil {
				return nil
			}
			return nodes[i].Close()
		})
		if err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return heap, links
}

// usedHeap returns the bytes of the objects in use, the least of several samples: nodes use buffers from time to time. It ends when
// further samples are not less. It collects garbage three times for a sample: the contents of a sync.Pool survive one collection,
// and objects with a finalizer another one.
func usedHeap() int {
	least := math.MaxInt
	for tries := 0; tries < 5; tries++ {
		for range 3 {
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if used := int(m.HeapAlloc); used < least-least/1000 {
			least, tries = used, 0
		}
		time.Sleep(50 * time.Millisecond)
	}
	return least
}

// betweenHosts is a transport of this process in the form of one between hosts: nodes link themselves on demand, and share no memory.
type betweenHosts struct{ transport.Transport }

// Capabilities implements [transport.Capable].
func (betweenHosts) Capabilities() transport.Capabilities { return transport.Capabilities{} }
