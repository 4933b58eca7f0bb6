package tcp

import (
	"net"
	"testing"
	"time"
)

// A guestSock is a socket of which only the end is of interest.
type guestSock struct {
	net.Conn
	closed bool
}

func (s *guestSock) Close() error { s.closed = true; return nil }

func TestGate(t *testing.T) {
	var g gate
	g.init(3)
	now := time.Now()
	enter := func(s *guestSock, at time.Duration, want bool) (wait time.Duration) {
		t.Helper()
		// Those that are inside have come as time went by.
		wait, ok := g.tryEnter(s, now.Add(at))
		if ok != want {
			t.Errorf("at %v: let in = %v, want %v", at, ok, want)
		}
		return wait
	}
	socks := make([]*guestSock, 7)
	for i := range socks {
		socks[i] = new(guestSock)
	}
	ms := time.Millisecond
	enter(socks[0], 0, true)
	enter(socks[1], 1*ms, true)
	enter(socks[2], 2*ms, true)
	g.talks(socks[0])

	// Who says nothing makes way, the oldest first.
	enter(socks[3], 3*ms, true)
	if !socks[1].closed || socks[0].closed || socks[2].closed {
		t.Error("not the oldest of those that are silent was closed")
	}
	// When all talk, new ones wait until the oldest has taken too long.
	g.talks(socks[2])
	g.talks(socks[3])
	if wait := enter(socks[4], 100*ms, false); wait != patience-100*ms {
		t.Errorf("it is to wait %v, want %v", wait, patience-100*ms)
	}
	enter(socks[4], patience, true)
	if !socks[0].closed {
		t.Error("the oldest was not closed")
	}
	// Who leaves makes room.
	if !g.leave(socks[2]) || g.leave(socks[0]) {
		t.Error("leave does not tell who was inside")
	}
	enter(socks[5], patience, true)
	g.close()
	if !socks[3].closed || !socks[4].closed || !socks[5].closed || socks[2].closed {
		t.Error("close closes all that are inside, and only those")
	}
	enter(socks[6], 2*patience, false)
}
