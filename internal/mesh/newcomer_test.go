package mesh

import (
	"fmt"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/wire"
)

// TestLinkOfANewcomerThatIsExpected: the first link of a node that joins a formed world outlives its connection before the node is in a view,
// whichever side notices the end.
func TestLinkOfANewcomerThatIsExpected(t *testing.T) {
	for _, at := range []string{"newcomer", "member", "both"} {
		t.Run(at, func(t *testing.T) {
			inBubble(t, 2, func(w *world) {
				w.form()
				all := w.newcomers(1)
				before := w.linkOf(0, 2)
				switch at {
				case "newcomer":
					w.network.CutAt(w.host(2), w.host(0))
				case "member":
					w.network.CutAt(w.host(0), w.host(2))
				case "both":
					w.cut(0, 2)
				}
				time.Sleep(100 * time.Millisecond)
				for _, m := range w.meshes {
					w.adopt(m, membership.View{Epoch: w.view.Epoch + 1, Nodes: all.Nodes})
				}
				time.Sleep(300 * time.Millisecond)
				for k, rank := range []int{0, 2} {
					if l := w.linkOf(rank, 2-2*k); l == nil || l.IsPending() || l.IsOver() || l.Connections() < 2 || rank == 0 && l != before {
						t.Errorf("the link of rank %d to rank %d was not dialed again", rank, 2-2*k)
					}
				}
				w.wantNoFailures()
			})
		})
	}
}

// TestNewcomerIsReportedGone: a newcomer joins again, and another node reports that it has left while its link is broken. It has left no world.
func TestNewcomerIsReportedGone(t *testing.T) {
	inBubble(t, 2, func(w *world) {
		w.form()
		all := w.newcomers(1)
		w.network.Partition(w.host(2))
		w.network.CutAt(w.host(0), w.host(2))
		time.Sleep(10 * time.Millisecond)
		w.meshes[0].peerGone(w.linkOf(0, 1), wire.Gone{Node: all.Nodes[2].ID})
		time.Sleep(10 * time.Millisecond)
		w.network.Heal()
		for _, m := range w.meshes {
			w.adopt(m, membership.View{Epoch: w.view.Epoch + 1, Nodes: all.Nodes})
		}
		time.Sleep(300 * time.Millisecond)
		if l := w.linkOf(0, 2); l == nil || l.IsPending() || l.IsOver() {
			t.Error("the link to the newcomer was not dialed again")
		}
		w.wantNoFailures()
	})
}

// TestNewcomerClosesAConnection: a newcomer closes the connection of a link that it keeps, just before it is in a view. No node counts as failed.
func TestNewcomerClosesAConnection(t *testing.T) {
	for moment := range 30 {
		inBubble(t, 2, func(w *world) {
			w.form()
			all := w.newcomers(1)
			before := w.linkOf(0, 2)
			w.linkOf(2, 0).Conn().Close()
			time.Sleep(time.Duration(moment) * time.Millisecond)
			for _, m := range w.meshes {
				w.adopt(m, membership.View{Epoch: w.view.Epoch + 1, Nodes: all.Nodes})
			}
			time.Sleep(timeout)
			if l := w.linkOf(0, 2); l != before || l.IsPending() || l.IsOver() {
				t.Errorf("after %d ms the member has replaced the link", moment)
			}
			w.wantNoFailures()
		})
	}
}

// TestNewcomerJoinsAgain: a newcomer closes its links, and joins again without a link to a member. The view replaces the link that it has closed.
func TestNewcomerJoinsAgain(t *testing.T) {
	inBubble(t, 2, func(w *world) {
		w.form()
		all := w.newcomers(1)
		before := w.linkOf(0, 2)
		w.meshes[2].Abort()
		time.Sleep(10 * time.Millisecond)
		w.adopt(w.meshes[0], membership.View{Epoch: w.view.Epoch + 1, Nodes: all.Nodes})
		if l := w.linkOf(0, 2); l == nil || l == before {
			t.Error("the member keeps the link of the first attempt")
		}
	})
}

// TestOneSideLosesTheLinkOfANewcomer is TestOneSideLosesItsConnection for the first link of a node that has joined a formed world.
func TestOneSideLosesTheLinkOfANewcomer(t *testing.T) {
	for at := range 2 {
		t.Run(fmt.Sprint("newcomer ", at), func(t *testing.T) {
			inBubble(t, 2, func(w *world) {
				w.form()
				all := w.newcomers(1)
				next := membership.View{Epoch: w.view.Epoch + 1, Nodes: all.Nodes}
				for _, m := range w.meshes {
					w.adopt(m, next)
				}
				time.Sleep(300 * time.Millisecond)
				ends := []int{0, 2}
				w.network.CutAt(w.host(ends[1-at]), w.host(ends[at]))
				time.Sleep(100 * time.Millisecond)
				for k, rank := range ends {
					if l := w.linkOf(rank, ends[1-k]); l == nil || l.IsPending() || l.IsOver() {
						t.Errorf("the link of rank %d to rank %d was not dialed again", rank, ends[1-k])
					}
				}
				w.wantNoFailures()
			})
		})
	}
}
