package mesh

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
)

// TestDisconnectFormer: nodes die, and the others get other neighbors. They release the connections to their former neighbors while they
// exchange messages on a communicator of the old view: all messages arrive, in order. Then each node has connections to its
// neighbors alone, and the new view works.
func TestDisconnectFormer(t *testing.T) {
	for _, name := range []string{"k-regular:4", "hypercube"} {
		t.Run(name, func(t *testing.T) {
			const n = 10
			relayed(t, name, n, func(w *world) {
				w.form()
				before := make([][]int, n)
				for rank := range n {
					before[rank] = w.neighbors(n, rank)
				}
				dead := []int{3, 6}
				for _, rank := range dead {
					w.network.PowerOff(w.host(rank))
				}
				time.Sleep(timeout + 3*interval)
				rest, slots := membership.View{Epoch: 2}, w.ranks(dead...)
				old := make([]*engine.Comm, len(slots))
				for _, slot := range slots {
					rest.Nodes = append(rest.Nodes, w.view.Nodes[slot])
				}
				for rank, slot := range slots {
					var links []*link.Link
					for _, other := range slots {
						links = append(links, w.linkOf(slot, other))
					}
					old[rank] = w.meshes[slot].Engine().NewComm(5, rank, links)
				}
				for _, slot := range slots {
					w.adopt(w.meshes[slot], rest)
				}
				var all sync.WaitGroup
				former := 0
				for from, slot := range slots {
					for to, other := range slots {
						if from == to || !slices.Contains(before[slot], other) || slices.Contains(w.neighbors(len(slots), from), to) {
							continue
						}
						former++
						all.Go(func() { w.sendNumbers(old[from], to) })
						all.Go(func() { w.receiveNumbers(old[to], from) })
					}
				}
				if former == 0 {
					t.Fatal("all former neighbors are neighbors")
				}
				time.Sleep(numberPause * 10)
				for _, slot := range slots {
					w.meshes[slot].DisconnectFormer()
				}
				all.Wait()
				w.wantNeighborsAlone(slots, dead)
				for rank, err := range w.reduceIn(2, rest, slots...) {
					if err != nil {
						t.Errorf("rank %d: %v", rank, err)
					}
				}
				for _, slot := range slots {
					failed := w.notes[slot].all()
					if slices.Sort(failed); !slices.Equal(failed, dead) {
						t.Errorf("node %d: failed nodes %v, want %v", slot, failed, dead)
					}
				}
			})
		})
	}
}

// wantNeighborsAlone checks that each node with one of the slots has connections to its neighbors among them alone. The others are dead.
func (w *world) wantNeighborsAlone(slots, dead []int) {
	w.Helper()
	for rank, slot := range slots {
		var got, want []int
		for other := range w.meshes {
			if other != slot && !slices.Contains(dead, other) && w.isDirect(slot, other) {
				got = append(got, other)
			}
		}
		for _, r := range w.neighbors(len(slots), rank) {
			want = append(want, slots[r])
		}
		if !slices.Equal(got, want) {
			w.Errorf("node %d has connections to %v, want %v", slot, got, want)
		}
	}
}

// TestDisconnectFormerWithoutBeats: nodes leave a world without beats, and the others release the connections to their former neighbors soon after
// they have connections to all neighbors.
func TestDisconnectFormerWithoutBeats(t *testing.T) {
	relayed(t, "k-regular:4", 10, func(w *world) {
		w.interval = 0
		w.form()
		left := []int{3, 6}
		for _, rank := range left {
			w.meshes[rank].Close(w.Context())
		}
		time.Sleep(2 * soonAfter) // The others have connected to their neighbors after the reports.
		rest, slots := membership.View{Epoch: 2}, w.ranks(left...)
		for _, slot := range slots {
			rest.Nodes = append(rest.Nodes, w.view.Nodes[slot])
		}
		for _, slot := range slots {
			w.adopt(w.meshes[slot], rest)
		}
		for _, slot := range slots {
			w.meshes[slot].DisconnectFormer()
		}
		time.Sleep(3 * soonAfter)
		w.wantNeighborsAlone(slots, left)
	})
}

const (
	// numbers is the number of messages of sendNumbers, and numberPause the time between two of them.
	numbers     = 60
	numberPause = 20 * time.Millisecond
)

// sendNumbers sends numbered messages of 8 B and, in between, of 1 MiB.
func (w *world) sendNumbers(c *engine.Comm, to int) {
	for i := range numbers {
		b := make([]byte, 8)
		if i%10 == 0 {
			b = make([]byte, 1<<20)
		}
		binary.BigEndian.PutUint64(b, uint64(i))
		if err := sendOn(w.Context(), c, b, 1, to, 1); err != nil {
			w.Error(fmt.Errorf("message %d to rank %d: %w", i, to, err))
			return
		}
		time.Sleep(numberPause)
	}
}

// receiveNumbers receives the messages of sendNumbers.
func (w *world) receiveNumbers(c *engine.Comm, from int) {
	b := make([]byte, 1<<20)
	for i := range numbers {
		if _, err := recvOn(w.Context(), c, b, 1, from, 1); err != nil || binary.BigEndian.Uint64(b) != uint64(i) {
			w.Error(fmt.Errorf("message %d from rank %d is %d: %w", i, from, binary.BigEndian.Uint64(b), err))
			return
		}
	}
}
