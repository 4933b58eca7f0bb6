package mesh

import (
	"errors"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/wire"
)

// TestGoneAfterTheEndOfTheLink: a node that is out of the next view has lost its link to a peer over relays. Then another node says that the peer has
// left. No goodbye can come, so the node waits for none.
func TestGoneAfterTheEndOfTheLink(t *testing.T) {
	relayed(t, "k-regular:2", 6, func(w *world) {
		w.form()
		if err := w.exchange(0, 3); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		m := w.meshes[0]
		m.LeaveWorld()
		m.peer(3).link.Fail(errors.New("silent"))
		time.Sleep(time.Second)
		m.peerGone(w.linkOf(0, w.neighbors(6, 0)[0]), wire.Gone{Node: idOf(3)})
		time.Sleep(time.Second) // Never, if the loop decides on the report again and again.
		if p := m.peer(3); p.Departure != membership.Stopped {
			t.Errorf("departure %v of a node that has left, want %v", p.Departure, membership.Stopped)
		}
	})
}

// TestReturningPeerLeaves: a node leaves the world, or says goodbye before it has entered it, and joins again with the same identity. Without a connection
// to it since then, the report that it has left ends the wait for it.
func TestReturningPeerLeaves(t *testing.T) {
	for _, isMember := range []bool{false, true} {
		inBubble(t, 3, func(w *world) {
			w.form()
			m, returns := w.meshes[0], 2
			if isMember {
				w.adopt(m, membership.View{Epoch: 2, Nodes: w.view.Nodes[:2]})
			} else {
				returns = 3
				w.newcomers(1)
				if err := w.meshes[returns].Close(w.Context()); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
			m.Expect([]membership.Node{*m.peer(returns).node})
			all := membership.View{Epoch: 3, Nodes: w.view.Nodes[:returns:returns]}
			all.Nodes = append(all.Nodes, *m.peer(returns).node)
			w.adopt(m, all)
			m.peerGone(w.linkOf(0, 1), wire.Gone{Node: idOf(returns)})
			time.Sleep(10 * time.Second)
			if state := w.stateOf(0, returns); state != membership.PeerLeft {
				t.Errorf("was a member: %v; state %v, want %v", isMember, state, membership.PeerLeft)
			}
		})
	}
}

// TestReportBeforeRevocation: a peer reports the loss of a third node, and revokes a communicator because of that. The error names the third node.
func TestReportBeforeRevocation(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.form()
		wait := w.pending(func(int) int { return 2 }, 0)
		time.Sleep(time.Second)
		w.linkOf(1, 0).Failed(wire.Failed{Node: idOf(2), By: idOf(1), Epoch: w.view.Epoch}, "boom")
		w.comms[1].Cancel(errors.New("the program gives up"))
		wantPeerError(t, wait()[0], 2, false)
	})
}
