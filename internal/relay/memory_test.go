package relay

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/relay/relaytest"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/transport"
)

// TestConnMemory: a conn takes at most 64 KiB at each of its ends, and no goroutine beyond the two of quic-go.
func TestConnMemory(t *testing.T) {
	require.NoRace(t, "the race detector takes memory")
	const conns = 60
	graph := make(relaytest.Graph, conns+2)
	for i := range graph[1:] {
		graph[0], graph[i+1] = append(graph[0], i+1), append(graph[i+1], 0)
	}
	n := newNetwork(t, graph, nil)
	n.connect(1, conns+1) // what both nodes need for the first one
	heap, goroutines := use()
	var open []transport.Conn
	for i := range conns - 1 {
		a, b := n.connect(1, i+2)
		open = append(open, a, b)
	}
	heapAfter, goroutinesAfter := use()
	if each := (heapAfter - heap) / len(open); each > 64<<10 {
		t.Errorf("one end of a conn takes %d bytes, want at most 64 KiB", each)
	} else {
		t.Log(fmt.Sprintf("one end of a conn takes %d bytes and %d goroutines", each, (goroutinesAfter-goroutines)/len(open)))
	}
	if each := float64(goroutinesAfter-goroutines) / float64(len(open)); each > 2.5 {
		t.Errorf("one end of a conn takes %.1f goroutines, want 2", each)
	}
	runtime.KeepAlive(open)
}

// use returns the bytes of the heap and the stacks, and the number of goroutines, a second after the last change.
func use() (bytes, goroutines int) {
	time.Sleep(time.Second)
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse), runtime.NumGoroutine()
}
