package mesh

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport/sim"
)

// viewInbox keeps the messages about views that a rank gets.
type viewInbox struct {
	mu   sync.Mutex
	got  []string
	from []membership.NodeID
	err  error // for the sender
}

func (b *viewInbox) handle(from membership.NodeID, message []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got, b.from = append(b.got, string(message)), append(b.from, from)
	return b.err
}

// TestSendView: messages about views arrive whole and in order, with the identity of their sender, and
// also over a link that has to connect first.
func TestSendView(t *testing.T) {
	onDemand(t, func(w *world) {
		var in viewInbox
		w.meshes[4].cfg.HandleView = in.handle
		long := strings.Repeat("x", wire.ViewMessageMax)
		for _, message := range []string{"a", long, "b"} {
			if !w.meshes[0].SendView(idOf(4), []byte(message)) {
				t.Error("a message is not sent")
			}
		}
		time.Sleep(time.Second)
		in.mu.Lock()
		defer in.mu.Unlock()
		if len(in.got) != 3 || in.got[0] != "a" || in.got[1] != long || in.got[2] != "b" || in.from[0] != idOf(0) {
			t.Errorf("got %d messages, from %v", len(in.got), in.from)
		}
		if w.meshes[0].SendView(idOf(99), []byte("a")) || w.meshes[0].SendView(idOf(0), []byte("a")) {
			t.Error("a message to an unknown node, or to itself, is sent")
		}
	})
}

// TestSendViewToLostNode: there is no message to a node that this one has lost, and a peer that does not
// read does not make this node keep messages without bound.
func TestSendViewToLostNode(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.interval = 0
		w.form()
		w.network.SetLink(w.host(0), w.host(1), sim.Link{Delay: time.Hour})
		message := make([]byte, wire.ViewMessageMax)
		sent := 0
		for w.meshes[0].SendView(idOf(1), message) {
			if sent++; sent > 1000 {
				t.Fatal("messages to a peer that does not read are kept without bound")
			}
		}
		w.network.Crash(w.host(2))
		w.linkOf(0, 2).Fail(errors.New("lost"))
		synctest.Wait()
		if w.meshes[0].SendView(idOf(2), []byte("a")) {
			t.Error("a message to a lost node is sent")
		}
	})
}

// TestForgedViewEndsLink: a message that the session refuses ends the link to its sender, with a reason that
// names it. Other links stay.
func TestForgedViewEndsLink(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		var mu sync.Mutex
		reasons := make(map[membership.NodeID]error)
		w.lost = func(id membership.NodeID, err error) {
			mu.Lock()
			defer mu.Unlock()
			reasons[id] = err
		}
		w.form()
		w.lost = nil
		in := viewInbox{err: membership.ErrForged}
		w.meshes[1].cfg.HandleView = in.handle
		w.meshes[2].SendView(idOf(1), []byte("a"))
		time.Sleep(time.Second)
		if l := w.linkOf(1, 2); l.Err() == nil || !errors.Is(l.Err(), membership.ErrForged) || !strings.Contains(l.Err().Error(), "rank 2 (node "+idOf(2).String()+")") {
			t.Errorf("the link to the sender has ended with %v", l.Err())
		}
		if l := w.linkOf(1, 0); l.Err() != nil {
			t.Errorf("the link to another node has ended with %v", l.Err())
		}
		mu.Lock()
		defer mu.Unlock()
		if err := reasons[idOf(2)]; err == nil || !strings.Contains(err.Error(), "forged") {
			t.Errorf("the seed gets the reason %v", err)
		}
	})
}
