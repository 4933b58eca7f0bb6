package tcp

import (
	"net"
	"sync"

	"github.com/nexar-go/nexar/internal/admission"
)

// A gate holds the accepted sockets that are not authenticated yet. Their number is
// bounded by an admission.Gate: that of the port, if a quic.Endpoint shares
// it, or else one of the Transport's own.
type pendingSockets struct {
	limiter *admission.Gate

	mu      sync.Mutex
	closed  bool
	tickets map[net.Conn]*admission.Ticket
	proved  map[net.Conn]struct{} // authenticated, and not evicted any more
}

// A ticketed socket has been admitted before Accept returned it.
type ticketed interface{ Ticket() *admission.Ticket }

func (g *pendingSockets) init(l admission.Limits) {
	g.limiter = admission.NewGate(l)
	g.tickets, g.proved = make(map[net.Conn]*admission.Ticket), make(map[net.Conn]struct{})
}

// enter admits a socket. While there is no room for a source that is not limited it
// blocks: other sockets wait in the kernel then, and a crowd of peers that dial at once
// loses none.
func (g *pendingSockets) admit(sock net.Conn, over <-chan struct{}) error {
	ticket, err := g.newTicket(sock, over)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		ticket.Leave()
		return errTransportClosed
	}
	g.tickets[sock] = ticket
	return nil
}

func (g *pendingSockets) newTicket(sock net.Conn, over <-chan struct{}) (*admission.Ticket, error) {
	if t, ok := sock.(ticketed); ok {
		return t.Ticket(), nil
	}
	return g.limiter.Enter(over, admission.SourceOf(addrPort(sock.RemoteAddr()).Addr()), func() { reset(sock) })
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
func (g *pendingSockets) authenticate(sock net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	ticket, inside := g.tickets[sock]
	if !inside {
		return false
	}
	delete(g.tickets, sock)
	if !ticket.Prove() {
		return false
	}
	g.proved[sock] = struct{}{}
	return true
}

// leave removes an authenticated socket. It reports false if it was evicted before, or the gate was closed.
func (g *pendingSockets) release(sock net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, known := g.proved[sock]; known {
		delete(g.proved, sock)
		return !g.closed
	}
	ticket, inside := g.tickets[sock]
	delete(g.tickets, sock)
	return inside && ticket.Prove()
}

// drop removes a socket that is given up.
func (g *pendingSockets) discard(sock net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ticket, inside := g.tickets[sock]; inside {
		ticket.Leave()
	}
	delete(g.tickets, sock)
	delete(g.proved, sock)
}

// close closes the sockets that are inside, and lets no more in.
func (g *pendingSockets) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for sock := range g.tickets {
		sock.Close()
	}
	for sock := range g.proved {
		sock.Close()
	}
}
