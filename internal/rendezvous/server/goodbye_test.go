package server

import (
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wire"
)

// isNext reports whether the next view comes within a time, without the named nodes, which have left according to the seed.
func (w *viewWorld) isNext(within time.Duration, without ...membership.NodeID) bool {
	w.t.Helper()
	began, epoch := time.Now(), w.sessions[0].Newest().Epoch
	for time.Since(began) < within && w.sessions[0].Newest().Epoch == epoch {
		time.Sleep(10 * time.Millisecond)
	}
	v := w.sessions[0].Newest()
	for _, id := range without {
		if _, in := v.Rank(id); in {
			return false
		}
		left := false
		w.call(func() { _, left = w.state.cluster.lastMessage(id).(wire.JoinLeave) })
		if !left {
			w.t.Errorf("node %v counts as failed, want left", id)
		}
	}
	return v.Epoch > epoch
}

// TestGoodbyeReachesTheSeed: a node has left while it did not reach the seed, whose connection to it lasts. The nodes that have read its goodbye
// tell the seed.
func TestGoodbyeReachesTheSeed(t *testing.T) {
	inViewWorld(t, 5, func(w *viewWorld) {
		id := w.sessions[4].ID
		w.call(func() { // Nothing arrives over this connection.
			silent := *w.state.leader.nodes[id]
			silent.out = handshake.NewOutbox()
			w.state.leader.nodes[id] = &silent
		})
		time.Sleep(handshake.Tick)
		w.sessions[0].LinksOf(0).Left(id)
		w.sessions[1].LinksOf(0).Left(id)
		if !w.isNext(2*handshake.Tick, id) {
			t.Error("the next view has the node, or there is none")
		}
	})
}

// TestGoodbyeBeforeLeave: a node that has said goodbye to others and answers the seed stays in the view until it tells the seed that it leaves, or
// ceases to answer.
func TestGoodbyeBeforeLeave(t *testing.T) {
	for name, end := range map[string]func(w *viewWorld, id membership.NodeID){
		"it leaves":           func(w *viewWorld, _ membership.NodeID) { w.sessions[4].Close() },
		"its connection ends": func(w *viewWorld, id membership.NodeID) { w.conn(id).Close() },
		"it ends": func(w *viewWorld, id membership.NodeID) {
			w.call(func() {
				c := w.state.leader.nodes[id]
				c.out = handshake.NewOutbox() // No ping reaches it.
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inViewWorld(t, 5, func(w *viewWorld) {
				id := w.sessions[4].ID
				w.sessions[0].LinksOf(0).Left(id)
				if w.isNext(20 * handshake.Tick) {
					t.Fatal("the node is removed although it answers")
				}
				end(w, id)
				if !w.isNext(3*handshake.Tick, id) {
					t.Error("the next view has the node, or there is none")
				}
			})
		})
	}
}

// TestGoodbyeWithoutConnection: a node without a connection to the seed has left if another one has read its goodbye.
func TestGoodbyeWithoutConnection(t *testing.T) {
	inViewWorld(t, 5, func(w *viewWorld) {
		id := w.sessions[4].ID
		w.call(func() {
			delete(w.state.leader.nodes, id)
			w.awaitNode(w.state.leader, id, "its connection has ended")
		})
		w.sessions[0].LinksOf(0).Left(id)
		if !w.isNext(handshake.Tick, id) {
			t.Error("the next view has the node, or there is none")
		}
	})
}
