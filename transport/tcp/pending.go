package tcp

import (
	"net"
	"sync"

	"github.com/nexar-go/nexar/internal/admission"
)

// pendingSockets holds the accepted sockets that are not authenticated yet. An
// admission.Gate limits their number: that of the port, if a quic.Endpoint shares it, or
// otherwise that of the [Transport].
type pendingSockets struct {
	limiter *admission.Gate

	mu      sync.Mutex
	closed  bool
	tickets map[net.Conn]*admission.Ticket // nil for an authenticated socket, which cannot be evicted
}

// A ticketed socket was admitted before Accept returned it.
type ticketed interface{ Ticket() *admission.Ticket }

func (p *pendingSockets) init(l admission.Limits) {
	p.limiter = admission.NewGate(l)
	p.tickets = make(map[net.Conn]*admission.Ticket)
}

// admit adds a socket. It blocks while there is no room for a source that is within its
// own limit. Meanwhile other sockets wait in the kernel, so that none is lost when many
// peers dial at once.
func (p *pendingSockets) admit(sock net.Conn, over <-chan struct{}) error {
	ticket, err := p.newTicket(sock, over)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		ticket.Leave()
		return errTransportClosed
	}
	p.tickets[sock] = ticket
	return nil
}

func (p *pendingSockets) newTicket(sock net.Conn, over <-chan struct{}) (*admission.Ticket, error) {
	if t, ok := sock.(ticketed); ok {
		return t.Ticket(), nil
	}
	return p.limiter.Enter(over, admission.SourceOfPeer(sock), func() { admission.Reset(sock) })
}

// authenticate marks a socket as authenticated, so that it does not count towards the
// limit. It reports false if the socket has been evicted and closed.
func (p *pendingSockets) authenticate(sock net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	ticket := p.tickets[sock]
	switch {
	case ticket == nil: // unknown, or authenticated already
		return false
	case !ticket.Prove():
		delete(p.tickets, sock)
		return false
	}
	p.tickets[sock] = nil
	return true
}

// release removes an authenticated socket. It reports false if the socket was evicted, or
// p is closed.
func (p *pendingSockets) release(sock net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	ticket, inside := p.tickets[sock]
	delete(p.tickets, sock)
	if ticket == nil {
		return inside && !p.closed
	}
	return ticket.Prove()
}

// discard removes a socket that is being closed.
func (p *pendingSockets) discard(sock net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ticket := p.tickets[sock]; ticket != nil {
		ticket.Leave()
	}
	delete(p.tickets, sock)
}

// close closes all sockets and makes admit fail.
func (p *pendingSockets) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for sock := range p.tickets {
		sock.Close()
	}
}
