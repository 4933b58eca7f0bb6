package mesh

import (
	"fmt"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
)

// TestNewcomerLosesFrames: a newcomer finds that frames of its link to a node are lost, before that node has adopted a view with the newcomer.
// Both count the loss, and the new link connects.
func TestNewcomerLosesFrames(t *testing.T) {
	inBubble(t, demandNodes, func(w *world) {
		w.watches, w.idle = 1, time.Minute
		w.form()
		all := w.newcomers(1)
		time.Sleep(2 * time.Minute)
		if !w.linkOf(demandNodes, 4).FailPending(fmt.Errorf("of the test: %w", link.ErrFramesLost)) {
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
		time.Sleep(time.Minute)
		w.wantNoFailures()
	})
}
