package quic

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/admission"
	"github.com/nexar-go/nexar/transport"
)

// sharedBacklogMax is how many TCP connections wait for the Accept of a listener
// before more are closed.
const sharedBacklogMax = 256

// A listener has the TCP connections to an Endpoint that do not begin as a
// watch does.
type listener struct {
	server  *watchServer
	waiting chan net.Conn
	closed  chan struct{}
	shut    sync.Once
}

// Listener shares the TCP port of the Endpoint: what it accepts are the
// connections that peers open there for another purpose than to watch this
// process. Their first byte must not be 'n'. One that sends nothing is closed
// after two seconds, or earlier if it stands in the way of others, and holds
// up nobody until then. A connection carries its place among the
// unauthenticated ones (internal/admission) until it is closed or transport/tcp knows the peer.
//
// An Endpoint has at most one Listener at a time. While it has none such
// connections are closed at once. The Listener is closed with the Endpoint.
// It is an error to ask for one where there is no TCP port.
func (e *Endpoint) Listener() (net.Listener, error) {
	if e.watch == nil {
		return nil, errors.New("quic: there is no TCP port to be shared")
	}
	return e.watch.share()
}

func (s *watchServer) share() (net.Listener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over:
		return nil, transport.ErrClosed
	case s.shared != nil:
		return nil, errors.New("quic: the TCP port is shared already")
	}
	s.shared = &listener{
		server:  s,
		waiting: make(chan net.Conn, sharedBacklogMax),
		closed:  make(chan struct{}),
	}
	return s.shared, nil
}

// handOver gives a connection to the one who listens, if there is one, and
// closes it otherwise.
func (s *watchServer) handOver(sock net.Conn, first byte, ticket *admission.Ticket) {
	tcp, ok := sock.(*net.TCPConn)
	s.mu.Lock()
	defer s.mu.Unlock()
	if ok && s.shared != nil {
		sock.SetDeadline(time.Time{})
		select {
		case s.shared.waiting <- &sharedConn{TCPConn: tcp, first: first, unread: true, ticket: ticket}:
			return
		default:
		}
	}
	ticket.Leave()
	reset(sock)
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case sock := <-l.waiting:
		return sock, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
	}
}

func (l *listener) Addr() net.Addr { return l.server.listener.Addr() }

// Close refuses further connections and closes those that wait.
func (l *listener) Close() error {
	l.shut.Do(func() {
		s := l.server
		s.mu.Lock()
		s.shared = nil
		s.mu.Unlock()
		close(l.closed)
		for {
			select {
			case sock := <-l.waiting:
				sock.Close()
			default:
				return
			}
		}
	})
	return nil
}

// A sharedConn is a TCP connection of the shared port whose first byte has been read. Read returns
// it once more. What else a TCPConn offers for reading skips it.
type sharedConn struct {
	*net.TCPConn
	first  byte
	unread bool
	ticket *admission.Ticket
}

// Ticket is the connection's place among the unauthenticated ones.
func (v *sharedConn) Ticket() *admission.Ticket { return v.ticket }

// Close also gives the place back.
func (v *sharedConn) Close() error {
	v.ticket.Leave()
	return v.TCPConn.Close()
}

func (v *sharedConn) Read(p []byte) (int, error) {
	if !v.unread || len(p) == 0 {
		return v.TCPConn.Read(p)
	}
	v.unread = false
	p[0] = v.first
	return 1, nil
}

// WriteTo keeps io.Copy from going past Read.
func (v *sharedConn) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{v})
}
