package session

import (
	"errors"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/relay/forward"
	"github.com/nexar-go/nexar/internal/relay/relaytest"
	"github.com/nexar-go/nexar/transport"
)

// The relay on the shortest path drops everything. One side sends its frames again over another path. So does the other side with its
// acknowledgements, although it sends no data, and it learns of the end of the session.
func TestAcknowledgementsLeavePath(t *testing.T) {
	w := newWorld(t, 1, relaytest.Ring(6), 6)
	a := w.dial(0, 2)
	w.Run(time.Second)
	w.Nodes[1].Tamper = func(forward.Frame, int) []forward.Frame { return nil }
	pipe := a.Open(w.Now)
	for range 2 * timeoutFrames {
		a.Write(w.Now, pipe, []byte("hello"))
	}
	a.Session.Close(w.Now)
	a.flush()
	w.Run(closeLimit)
	if err := a.other().Err(); !errors.Is(err, transport.ErrPeerClosed) {
		t.Errorf("the other side has error %v, want ErrPeerClosed", err)
	}
	if a.Closing() {
		t.Error("the side that closes has no acknowledgement")
	}
}

// No path works while one side ends an idle session. The other side notices it later, also if the session was never used.
func TestLostEnd(t *testing.T) {
	for name, use := range map[string]func(a *side){"used": func(a *side) { a.send([]byte("hello")) }, "unused": func(*side) {}} {
		t.Run(name, func(t *testing.T) { testLostEnd(t, use) })
	}
}

func testLostEnd(t *testing.T, use func(a *side)) {
	w := newWorld(t, 1, relaytest.Ring(4), 4)
	a := w.dial(0, 2)
	w.Run(time.Second)
	use(a)
	w.Run(time.Second)
	for _, n := range w.Nodes {
		n.Tamper = func(forward.Frame, int) []forward.Frame { return nil }
	}
	a.Session.Close(w.Now)
	a.flush()
	w.Run(closeLimit + time.Second)
	if b := a.other(); !a.Finished(w.Now) || b.Err() != nil {
		t.Fatalf("finished: %v, the other side has error %v", a.Finished(w.Now), b.Err())
	}
	for _, n := range w.Nodes {
		n.Tamper = nil
	}
	delete(w.hosts[0], sessionKey{relaytest.ID(2), a.cfg.ID})
	w.Run(2 * DefaultSilence)
	w.hosts[0][sessionKey{relaytest.ID(2), a.cfg.ID}] = a
	if err := a.other().Err(); !errors.Is(err, ErrSilent) {
		t.Errorf("the other side has error %v, want ErrSilent", err)
	}
}

// An idle session is probed once on each side, and stays.
func TestIdleSession(t *testing.T) {
	w := newWorld(t, 1, relaytest.Ring(4), 4)
	a := w.dial(0, 2)
	a.send([]byte("hello"))
	w.Run(time.Second)
	before := a.Stats().Sent + a.other().Stats().Sent
	w.Run(time.Hour)
	if sent := a.Stats().Sent + a.other().Stats().Sent - before; sent != 2 || a.Err() != nil || a.other().Err() != nil {
		t.Errorf("%d frames were sent, want 2; errors: %v, %v", sent, a.Err(), a.other().Err())
	}
}
