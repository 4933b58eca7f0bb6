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

// sharedBacklogMax is the number of TCP connections that wait for the Accept of a
// listener. Further ones are closed.
const sharedBacklogMax = 256

// A listener accepts the TCP connections to an Endpoint that do not begin as watches.
type listener struct {
	server  *watchServer
	waiting chan net.Conn
	closed  chan struct{}
	shut    sync.Once
}

// Listener shares the TCP port of the Endpoint. It accepts connections that are not
// watches: their first byte must not be 'n'. A connection that sends nothing is closed
// after two seconds, or earlier to make room for others. A connection counts as
// unauthenticated (internal/admission) until it is closed or transport/tcp has
// authenticated the peer.
//
// An Endpoint has at most one Listener at a time. Without one it closes such connections
// at once. The Listener is closed with the Endpoint. Listener fails if the Endpoint has
// no TCP port.
func (e *Endpoint) Listener() (net.Listener, error) {
	if e.watch == nil {
		return nil, errors.New("quic: the endpoint has no TCP port to share")
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

// handOver passes a connection to the listener, or closes it if the port has none.
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
	admission.Reset(sock)
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

// A sharedConn is a TCP connection of the shared port after the read of its first byte. Read
// returns that byte again. Other methods of TCPConn that read skip it.
type sharedConn struct {
	*net.TCPConn
	first  byte
	unread bool
	ticket *admission.Ticket
}

// Ticket returns the admission ticket of the connection.
func (v *sharedConn) Ticket() *admission.Ticket { return v.ticket }

// Close also returns the ticket.
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

// WriteTo makes io.Copy use Read.
func (v *sharedConn) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{v})
}
