package shm

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/transport"
)

// exhaustible returns a switch that makes reservations of memory of a node fail, as strict
// overcommit does. It must be called before the node has pipes.
func exhaustible(e *endpoint) (exhausted *atomic.Bool) {
	exhausted = new(atomic.Bool)
	e.reserve = func(b []byte) error {
		if exhausted.Load() {
			return &memoryError{len(b), unix.ENOMEM}
		}
		return reserveMemory(b)
	}
	e.areas.reserve = e.reserve
	return exhausted
}

// wantMemoryError fails the test unless err names the size and a remedy.
func wantMemoryError(t *testing.T, err error) {
	t.Helper()
	if _, ok := errors.AsType[*memoryError](err); !ok {
		t.Errorf("error %v, want a lack of memory", err)
		return
	}
	for _, text := range []string{"bytes", "cgroup", "NEXAR_TRANSPORTS"} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error does not contain %q: %v", text, err)
		}
	}
}

// TestNoMemoryForPipe: OpenPipe fails without memory for the indexes. The conn stays usable.
func TestNoMemoryForPipe(t *testing.T) {
	a, b := newPair(t, Config{})
	exhausted := exhaustible(a.endpoint)
	before := mappings(t)
	exhausted.Store(true)
	_, err := a.OpenPipe(t.Context())
	wantMemoryError(t, err)
	wantMappings(t, before)
	exhausted.Store(false)
	pipe, r := newPipe(t, a, b)
	pass(t, pipe, r, 10)
}

// TestNoMemoryForBytes: a write without memory ends all conns of the node with an error that
// names the cause. Earlier bytes arrive.
func TestNoMemoryForBytes(t *testing.T) {
	for name, before := range map[string]int{"first page": 0, "next page": 5000, "whole ring": fillAfter} {
		t.Run(name, func(t *testing.T) {
			cluster := uniqueCluster()
			hub := newNode(t, Config{Cluster: cluster, Node: "hub"})
			exhausted := exhaustible(hub)
			a, b := connectNodes(t, hub, newNode(t, Config{Cluster: cluster, Node: "b"}))
			_, other := connectNodes(t, hub, newNode(t, Config{Cluster: cluster, Node: "c"}))
			s, r := newPipe(t, a, b)
			pass(t, s, r, before)
			exhausted.Store(true)
			if s.TryWrite(make([]byte, 8000)) || s.TryWritePart([][]byte{make([]byte, 8000)}) != 0 {
				t.Error("bytes were written without memory")
			}
			_, err := s.Write(make([]byte, 8000))
			wantMemoryError(t, err)
			wantMemoryError(t, a.Err())
			for _, peer := range []*conn{b, other} {
				select {
				case <-peer.Done():
				case <-time.After(time.Minute):
					t.Fatal("a peer does not learn that the connection has ended")
				}
				if !errors.Is(peer.Err(), transport.ErrPeerGone) {
					t.Errorf("a peer gets %v, want %v", peer.Err(), transport.ErrPeerGone)
				}
			}
		})
	}
}

// TestNoMemoryForArea: Reserve fails without memory, and names the cause.
func TestNoMemoryForArea(t *testing.T) {
	a, _ := newPair(t, Config{Areas: 2, AreaSize: 100_000})
	exhausted := exhaustible(a.endpoint)
	areas := hold(t, a)
	if err := areas.Reserve(1, 100_000); err != nil {
		t.Error(err)
	}
	exhausted.Store(true)
	wantMemoryError(t, areas.Reserve(0, 256))
}
