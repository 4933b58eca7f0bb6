package mesh

import (
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
)

// TestNewcomerLosesFrames: a newcomer finds that frames of its link to a node are lost, before that node has adopted a view with the newcomer.
// Both count the loss, whether the node has had a link to the newcomer or not. The new link connects, also after it was idle, and the newcomer
// alone reports the loss.
func TestNewcomerLosesFrames(t *testing.T) {
	for name, peer := range map[string]int{"no link before": 4, "an idle link before": 1} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, demandNodes, func(w *world) {
				w.watches, w.idle = 1, time.Minute
				var mu sync.Mutex
				resets := make(map[int]int)
				w.reset = func(rank int, _ membership.NodeID) {
					mu.Lock()
					defer mu.Unlock()
					resets[rank]++
				}
				w.form()
				all := w.newcomers(1)
				time.Sleep(2 * time.Minute)
				if l := w.linkOf(peer, demandNodes); (l != nil) != (peer == 1) {
					t.Fatalf("rank %d has a link to the newcomer: %t", peer, l != nil)
				}
				if !w.linkOf(demandNodes, peer).FailPending(fmt.Errorf("of the test: %w", link.ErrFramesLost)) {
					t.Fatal("the link is not pending")
				}
				time.Sleep(time.Minute)
				w.wantNoFailures()
				next := membership.View{Epoch: 2, Nodes: all.Nodes}
				for rank, err := range w.reduceIn(2, next, 0, 1, 2, 3, 4, 5, 6, 7, 8) {
					if err != nil {
						t.Errorf("rank %d: %v", rank, err)
					}
				}
				for _, rank := range []int{peer, demandNodes} {
					m := w.meshes[rank]
					w.comms[rank] = m.Engine().NewComm(3, rank, linksOf(t, m, next))
				}
				for range 2 { // The link is idle after an exchange.
					if err := w.exchange(demandNodes, peer); err != nil {
						t.Error(err)
					}
					time.Sleep(2 * time.Minute)
				}
				w.wantNoFailures()
				mu.Lock()
				defer mu.Unlock()
				if want := map[int]int{demandNodes: 1}; !reflect.DeepEqual(resets, want) {
					t.Errorf("losses reported by rank: %v, want %v", resets, want)
				}
			})
		})
	}
}
