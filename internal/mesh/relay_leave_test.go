package mesh

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/deadline"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/relay/forward"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// recordLost records the nodes that a rank reports as lost, from now on. The returned function returns them in the order of their NodeIDs.
func (w *world) recordLost(by int) func() []membership.NodeID {
	var mu sync.Mutex
	var lost []membership.NodeID
	w.lostBy = func(rank int, id membership.NodeID) {
		mu.Lock()
		defer mu.Unlock()
		if rank == by {
			lost = append(lost, id)
		}
	}
	return func() []membership.NodeID {
		mu.Lock()
		defer mu.Unlock()
		return slices.SortedFunc(slices.Values(lost), func(a, b membership.NodeID) int { return slices.Compare(a[:], b[:]) })
	}
}

// TestLeavesAfterItsRelays: both neighbors of a node die, and the node closes before it notices that: it waits for the connection of a link
// with a frame. When it notices the deaths, it has no route to the others, and its links to them end. It reports only its neighbors as lost: the
// others live.
func TestLeavesAfterItsRelays(t *testing.T) {
	relayed(t, "k-regular:2", 6, func(w *world) {
		lost := w.recordLost(0)
		w.form()
		if err := w.exchange(0, 3); err != nil {
			t.Fatal(err)
		}
		dead := w.neighbors(6, 0)
		for _, rank := range dead {
			w.network.Crash(w.host(rank))
		}
		if err := sendOn(w.Context(), w.comms[0], []byte("hello"), 1, 2, 9); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		w.meshes[0].Close(ctx)
		if got, want := lost(), []membership.NodeID{idOf(dead[0]), idOf(dead[1])}; !slices.Equal(got, want) {
			t.Errorf("rank 0 reports these as lost: %v, want its neighbors %v", got, want)
		}
	})
}

// TestLeavesWhileANeighborIsDialed: the link to a neighbor breaks, since the neighbor has died, and the node closes while it dials the neighbor
// again. It reports the neighbor as lost.
func TestLeavesWhileANeighborIsDialed(t *testing.T) {
	relayed(t, "k-regular:2", 6, func(w *world) {
		lost := w.recordLost(0)
		w.form()
		dead := w.neighbors(6, 0)[0]
		w.cut(0, dead)
		w.network.PowerOff(w.host(dead))
		time.Sleep(interval / 10)
		if !w.linkOf(0, dead).IsPending() {
			t.Fatal("the link has not broken")
		}
		if err := sendOn(w.Context(), w.comms[0], []byte("hello"), 1, dead, 9); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		w.meshes[0].Close(ctx)
		if got, want := lost(), []membership.NodeID{idOf(dead)}; !slices.Equal(got, want) {
			t.Errorf("rank 0 reports these as lost: %v, want its neighbor %v", got, want)
		}
	})
}

// TestReleasedWhileItLeaves: a rank leaves as soon as it has a message that came over relays. The sender releases the connection at about that time, as it
// does when the ranks become neighbors. The send succeeds.
func TestReleasedWhileItLeaves(t *testing.T) {
	for after := time.Duration(0); after <= 20*delay; after += 2 * delay {
		relayed(t, "k-regular:2", 6, func(w *world) {
			w.form()
			if err := w.exchange(3, 0); err != nil {
				t.Fatal(err)
			}
			time.Sleep(300 * time.Millisecond) // between two heartbeats
			var both sync.WaitGroup
			both.Go(func() {
				if err := sendOn(w.Context(), w.comms[3], make([]byte, 1<<20), 1, 0, 5); err != nil {
					t.Errorf("released %v after the arrival: %v", after, err)
				}
			})
			both.Go(func() {
				if _, err := recvOn(w.Context(), w.comms[0], make([]byte, 1<<20), 1, 3, 5); err != nil {
					t.Error(err)
				}
				time.AfterFunc(after, func() { w.linkOf(3, 0).Disconnect() })
				w.meshes[0].Close(w.Context())
			})
			both.Wait()
			w.wantNoFailures()
		})
	}
}

// TestLeavesAfterItReleases: a rank releases the connection to a rank whose message it has received and not acknowledged, and leaves at once. The other
// rank dials again, and is refused. It takes the rank for one that has left, and not for failed.
func TestLeavesAfterItReleases(t *testing.T) {
	for after := time.Duration(0); after <= 20*delay; after += delay / 2 {
		relayed(t, "k-regular:2", 6, func(w *world) {
			w.form()
			if err := w.exchange(3, 0); err != nil {
				t.Fatal(err)
			}
			time.Sleep(300 * time.Millisecond) // between two heartbeats
			wantNone(t, w.exchange(3, 0))
			time.Sleep(after)
			w.linkOf(0, 3).Disconnect()
			unread, err := w.meshes[0].Leave(w.Context(), nil)
			if err != nil || len(unread) > 0 {
				t.Errorf("released %v after the arrival: %v have not read everything, %v", after, unread, err)
			}
			w.wantNoFailures()
		})
	}
}

// TestLostAnswerOverRelays: all ranks leave at the same time, and relays lose the next packets from rank 3 to rank 0, which have the answer to the
// goodbye of rank 0. If the connection repeats the answer before rank 3 has left, rank 0 reads it. If not, rank 3 says that it leaves, and has
// read the goodbye of rank 0 before.
func TestLostAnswerOverRelays(t *testing.T) {
	for name, lost := range map[string]int64{"one": 1, "two": 2, "all": math.MaxInt64} {
		t.Run(name, func(t *testing.T) {
			sparse(t, "k-regular:2", 6, func(w *world) {
				var leaves atomic.Bool
				var packets atomic.Int64
				w.addRelays(6, func(int) Tamper {
					return func(_ membership.NodeID, f forward.Frame) []forward.Frame {
						if leaves.Load() && f.Source == idOf(3) && f.Destination == idOf(0) && packets.Add(1) <= lost {
							return nil
						}
						return []forward.Frame{f}
					}
				})
				w.form()
				if err := w.exchange(0, 3); err != nil {
					t.Fatal(err)
				}
				time.Sleep(300 * time.Millisecond) // between two heartbeats
				leaves.Store(true)
				var all sync.WaitGroup
				for rank, m := range w.meshes {
					all.Go(func() {
						unread, err := m.Leave(w.Context(), nil)
						if err != nil || len(unread) > 0 {
							t.Errorf("rank %d has left, %v have not read everything, %v", rank, unread, err)
						}
					})
				}
				began := time.Now()
				all.Wait()
				if took := time.Since(began); took > deadline.Linger+interval {
					t.Errorf("the ranks have left after %v", took)
				}
				w.wantNoFailures()
			})
		})
	}
}

// TestReportsARefusal: a node closes, and waits for the connection of a link with a frame. Meanwhile it refuses a connection. It tells the seed
// at once if the connection is direct, and after its goodbyes if the connection goes over relays.
func TestReportsARefusal(t *testing.T) {
	for name, test := range map[string]struct {
		path  int // of the node that dials
		wants int32
	}{"direct": {0, 1}, "over relays": {1, 0}} {
		t.Run(name, func(t *testing.T) {
			relayed(t, "k-regular:2", 8, func(w *world) {
				w.form()
				w.network.PowerOff(w.host(4))
				w.linkOf(0, 4).SendMessage(wire.Message{Comm: 1}, []byte("x"))
				var reports atomic.Int32
				left := make(chan error, 1)
				go func() {
					_, err := w.meshes[0].Leave(w.Context(), func() { reports.Add(1) })
					left <- err
				}()
				time.Sleep(interval / 10)
				ctx, cancel := context.WithTimeout(w.Context(), 2*interval)
				defer cancel()
				c, err := w.meshes[2].cfg.Paths[test.path].Transport.Dial(ctx, w.host(0), w.host(0))
				if err == nil {
					select {
					case <-c.Done():
					case <-ctx.Done():
					}
					err = c.Err()
				}
				// The refusal may come before the handshake ends, and then the relays try other paths: one leads over the dead node.
				if err == nil || !strings.Contains(err.Error(), transport.ErrPeerClosed.Error()) {
					t.Errorf("the connection ended with %v, want that the node refuses it", err)
				}
				if got := reports.Load(); got != test.wants {
					t.Errorf("after the refusal the seed has got %d reports, want %d", got, test.wants)
				}
				if err := <-left; err != nil || reports.Load() != 1 {
					t.Errorf("the node has left with error %v and %d reports, want 1", err, reports.Load())
				}
			})
		})
	}
}
