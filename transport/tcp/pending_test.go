package tcp

import (
	"errors"
	"net"
	"testing"

	"github.com/nexar-go/nexar/internal/admission"
)

// A closableSock is a socket that records its end.
type closableSock struct {
	net.Conn
	closed bool
}

func (s *closableSock) Close() error         { s.closed = true; return nil }
func (s *closableSock) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)} }

// A ticketedSock was admitted by its listener.
type ticketedSock struct {
	closableSock
	ticket *admission.Ticket
}

func (s *ticketedSock) Ticket() *admission.Ticket { return s.ticket }

// TestPendingSockets checks that a socket counts until it is authenticated, discarded or
// evicted.
func TestPendingSockets(t *testing.T) {
	var g pendingSockets
	g.init(admission.Limits{Max: 3})
	enter := func(sock net.Conn) {
		t.Helper()
		if err := g.admit(sock, nil); err != nil {
			t.Fatal(err)
		}
	}
	want := func(places int) {
		t.Helper()
		if n := g.limiter.Len(); n != places {
			t.Errorf("%d places are taken, want %d", n, places)
		}
	}
	socks := make([]*closableSock, 6)
	for i := range socks {
		socks[i] = new(closableSock)
	}
	enter(socks[0])
	enter(socks[1])
	enter(socks[2])
	want(3)
	if !g.release(socks[0]) || g.release(socks[0]) {
		t.Error("discard does not distinguish pending sockets")
	}
	if g.discard(socks[1]); g.release(socks[1]) {
		t.Error("a discarded socket is pending")
	}
	if !g.authenticate(socks[2]) || g.authenticate(socks[2]) || !g.release(socks[2]) {
		t.Error("an authenticated socket is not released exactly once")
	}
	want(0)

	enter(socks[3])
	g.tickets[socks[3]].Leave() // as if evicted
	if g.authenticate(socks[3]) || g.release(socks[3]) {
		t.Error("an evicted socket is pending")
	}

	shared := admission.NewGate(admission.Limits{})
	ticket, err := shared.Enter(nil, admission.Source{}, func() {})
	if err != nil {
		t.Fatal(err)
	}
	sock := &ticketedSock{ticket: ticket}
	enter(sock)
	want(0)
	if !g.release(sock) || shared.Len() != 0 {
		t.Error("a ticket of another gate is not returned")
	}

	enter(socks[4])
	if g.close(); !socks[4].closed || socks[2].closed {
		t.Error("close does not close exactly the pending sockets")
	}
	if err := g.admit(socks[5], nil); !errors.Is(err, errTransportClosed) {
		t.Errorf("admit after close: %v", err)
	}
	g.discard(socks[4])
	want(0)
}
