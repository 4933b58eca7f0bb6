package cluster

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/mem"
)

// peerMemoryMax is the limit of the heap, in bytes, that a node takes for each further peer without a link.
const peerMemoryMax = 1 << 10

// TestPeerMemory: a further peer without a link costs a node at most peerMemoryMax bytes of heap, in all its parts together. The nodes
// of both worlds have the same number of links, within the process.
func TestPeerMemory(t *testing.T) {
	const few, many = 80, 240
	heapOfWorld(t, few) // Memory that the first world alone takes is not counted.
	small, links := heapOfWorld(t, few)
	large, more := heapOfWorld(t, many)
	if math.Abs(links-more) > 0.01 {
		t.Fatalf("a node has %v links in a world of %d and %v in one of %d, want as many", links, few, more, many)
	}
	each := (large/many - small/few) / (many - few)
	t.Logf("a node has %.1f KiB and %.1f links among %d nodes, %.1f KiB among %d: %.0f B for each further peer", small/few/1024, links, few, large/many/1024, many, each)
	if each > peerMemoryMax {
		t.Errorf("a peer without a link costs %.0f B, want at most %d", each, peerMemoryMax)
	}
}

// heapOfWorld forms a world of n nodes, and returns the bytes of heap that it takes and the mean number of links of a node.
func heapOfWorld(t *testing.T, n int) (heap, links float64) {
	before := usedHeap()
	ctx := t.Context()
	seed, err := nexar.StartSeed(ctx, nexar.SeedConfig{Listen: "127.0.0.1:0", World: n})
	if err != nil {
		t.Fatal(err)
	}
	network := mem.NewNetwork()
	cfg := nexar.Config{
		Seeds: []string{seed.Addr()}, Listen: "127.0.0.1:0", Transports: []string{"near", "tcp", "quic"}, Log: slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Factories: []transport.Factory{{Name: "near", Direct: true, Listen: func(_ context.Context, env transport.Env) (transport.Transport, error) {
			tr, err := network.Listen(env.Node)
			return anyHost{tr}, err
		}}},
	}
	nodes := make([]*nexar.Node, n)
	began := time.Now()
	err = worldtest.ForEach(n, func(rank int) (err error) {
		nodes[rank], err = nexar.Join(ctx, cfg)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Log("formed after", time.Since(began))
	heap = float64(usedHeap() - before)
	if name := os.Getenv("PEER_MEMORY_PROFILE"); name != "" {
		f, _ := os.Create(fmt.Sprint(name, n))
		pprof.WriteHeapProfile(f)
		f.Close()
	}
	for _, node := range nodes {
		for _, p := range node.Peers() {
			if p.LinkPurpose != "" {
				links += 1 / float64(n)
			}
		}
	}
	at := time.Now()
	seed.Close()
	err = worldtest.ForEach(n, func(rank int) error { return nodes[rank].Close() })
	if err != nil {
		t.Log(err)
	}
	t.Log("closed after", time.Since(at))
	return heap, links
}

// usedHeap returns the bytes of the objects in use. It collects garbage three times, since the contents of a sync.Pool survive one
// collection, and finalizers need another one.
func usedHeap() int {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// anyHost is a transport of this process as one between hosts, so that nodes link themselves on demand and share no memory.
type anyHost struct{ transport.Transport }

// Capabilities implements [transport.Capable].
func (a anyHost) Capabilities() transport.Capabilities { return transport.Capabilities{} }
