package mesh

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/relay/forward"
	"github.com/nexar-go/nexar/transport/sim"
)

// swapped returns the next view: two nodes have changed places.
func (w *world) swapped(i, j int) membership.View {
	next := membership.View{Epoch: w.view.Epoch + 1, Nodes: slices.Clone(w.view.Nodes)}
	next.Nodes[i], next.Nodes[j] = next.Nodes[j], next.Nodes[i]
	return next
}

// TestLostEndOverRelays: a node closes a connection through relays, and its last frames do not arrive at its peer. The node dials the peer
// again, since the peer has not acknowledged all frames, and the peer ends the old connection on its side.
func TestLostEndOverRelays(t *testing.T) {
	sparse(t, "k-regular:2", 6, func(w *world) {
		var mu sync.Mutex
		drops := false
		w.addRelays(6, func(int) Tamper {
			return func(_ membership.NodeID, f forward.Frame) []forward.Frame {
				mu.Lock()
				defer mu.Unlock()
				if f.Source != idOf(0) || f.Destination != idOf(2) {
					return []forward.Frame{f}
				}
				const longHeader = 0x80 // of the first byte of a packet that begins another connection (RFC 9000, section 17.2)
				if packet, _ := forward.CutPacket(f.Payload); drops && packet[0]&longHeader == 0 {
					return nil
				}
				drops = false
				return []forward.Frame{f}
			}
		})
		w.form()
		if err := w.exchange(0, 2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		mu.Lock()
		drops = true
		mu.Unlock()
		if !w.linkOf(0, 2).Disconnect() {
			t.Fatal("the connection is not released")
		}
		began := time.Now()
		if err := w.exchange(0, 2); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the next connection has been made after %v", took)
		}
		w.wantNoFailures()
	})
}

// TestFormerNeighborIsDialedOverRelays: the connection of two neighbors breaks, and they cannot dial each other for the time of a dial to a
// neighbor. Shortly before its end they become nodes that are no neighbors: they get the time of a dial over relays.
func TestFormerNeighborIsDialedOverRelays(t *testing.T) {
	relayed(t, "k-regular:2", 6, func(w *world) {
		w.form()
		w.network.SetLink(w.host(0), w.host(1), sim.Link{Down: true})
		w.cut(0, 1)
		time.Sleep(timeout - 4*delay)
		for _, m := range w.meshes {
			w.adopt(m, w.swapped(1, 2))
		}
		if err := w.exchange(0, 1); err != nil {
			t.Error(err)
		}
		w.wantNoFailures()
	})
}

// TestNewNeighborsThatWait: two ranks wait for messages of each other over relays. They become neighbors, and get a connection of their own
// while they wait.
func TestNewNeighborsThatWait(t *testing.T) {
	relayed(t, "k-regular:2", 6, func(w *world) {
		w.form()
		if err := w.exchange(0, 2); err != nil {
			t.Fatal(err)
		}
		var receive sync.WaitGroup
		for from, to := range map[int]int{0: 2, 2: 0} {
			receive.Go(func() {
				if _, err := recvOn(w.Context(), w.comms[to], make([]byte, 8), 1, from, 9); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(interval)
		for _, m := range w.meshes {
			w.adopt(m, w.swapped(1, 2))
		}
		time.Sleep(interval)
		if !w.isDirect(0, 2) || !w.isDirect(2, 0) {
			t.Error("the new neighbors have no connection of their own")
		}
		for from, to := range map[int]int{0: 2, 2: 0} {
			if err := sendOn(w.Context(), w.comms[from], []byte("hello"), 1, to, 9); err != nil {
				t.Error(err)
			}
		}
		receive.Wait()
		w.wantNoFailures()
	})
}
