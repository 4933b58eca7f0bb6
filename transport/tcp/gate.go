package tcp

import (
	"net"
	"sync"

	"github.com/nexar-go/nexar/internal/admission"
)

// A gate holds the accepted sockets that are not authenticated yet. Their number is
// bounded by an admission.Gate: that of the port, if a quic.Endpoint shares
// it, or else one of the Transport's own.
type gate struct {
	own *admission.Gate

	mu     sync.Mutex
	closed bool
	inside map[net.Conn]*admission.Ticket
	known  map[net.Conn]struct{} // authenticated, and not evicted any more
}

// A ticketed socket has been admitted before Accept returned it.
type ticketed interface{ Ticket() *admission.Ticket }

func (g *gate) init(l admission.Limits) {
	g.own = admission.NewGate(l)
	g.inside, g.known = make(map[net.Conn]*admission.Ticket), make(map[net.Conn]struct{})
}

// enter admits a socket. While there is no room for a source that is not limited it
// blocks: other sockets wait in the kernel then, and a crowd of peers that dial at once
// loses none.
func (g *gate) enter(sock net.Conn, over <-chan struct{}) error {
	ticket, err := g.admit(sock, over)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		ticket.Leave()
		return errTransportClosed
	}
	g.inside[sock] = ticket
	return nil
}

func (g *gate) admit(sock net.Conn, over <-chan struct{}) (*admission.Ticket, error) {
	if t, ok := sock.(ticketed); ok {
		return t.Ticket(), nil
	}
	return g.own.Enter(over, admission.SourceOf(addrPort(sock.RemoteAddr()).Addr()), func() { reset(sock) })
}

// reset closes a socket so that the kernel keeps nothing of it.
func reset(sock net.Conn) {
	if s, ok := sock.(interface{ SetLinger(seconds int) error }); ok {
		s.SetLinger(0)
	}
	sock.Close()
}

// knows notes that a socket is authenticated, so that it takes no place of others.
// It reports false if the socket was evicted before, and is closed.
func (g *gate) knows(sock net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	ticket, inside := g.inside[sock]
	if !inside {
		return false
	}
	delete(g.inside, sock)
	if !ticket.Prove() {
		return false
	}
	g.known[sock] = struct{}{}
	return true
}

// leave removes an authenticated socket. It reports false if it was evicted before, or the gate was closed.
func (g *gate) leave(sock net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, known := g.known[sock]; known {
		delete(g.known, sock)
		return !g.closed
	}
	ticket, inside := g.inside[sock]
	delete(g.inside, sock)
	return inside && ticket.Prove()
}

// drop removes a socket that is given up.
func (g *gate) drop(sock net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ticket, inside := g.inside[sock]; inside {
		ticket.Leave()
	}
	delete(g.inside, sock)
	delete(g.known, sock)
}

// close closes the sockets that are inside, and lets no more in.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for sock := range g.inside {
		sock.Close()
	}
	for sock := range g.known {
		sock.Close()
	}
}
