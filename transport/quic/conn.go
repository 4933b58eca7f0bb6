package quic

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	quicgo "github.com/quic-go/quic-go"

	"github.com/nexar-go/nexar/transport"
)

// A Conn is a connection to one peer. It has the capabilities TLSConn and Authenticator,
// its pipes TryWriter and Prioritizer.
type Conn struct {
	end    *Endpoint
	owner  *Transport // nil after Endpoint.Dial
	qc     *quicgo.Conn
	peer   string
	remote string
	dialed bool       // by this side
	keys   *watchKeys // nil without a TCP port

	// accepting admits one AcceptPipe at a time: quic-go wakes only one of several
	// waiters, however many streams have arrived.
	accepting chan struct{}

	unauthenticated *unauthenticated // non-nil for an accepted peer without identity

	watching  atomic.Bool
	suspected atomic.Bool // examine runs

	hasAnswered atomic.Bool // the peer has answered a question of this side over TCP
	stall       stallClock
	read        atomic.Int64 // bytes read from pipes

	mu      sync.Mutex
	ended   bool       // cleanUp has run
	sockets []net.Conn // watches of this connection
}

var (
	_ transport.Conn    = (*Conn)(nil)
	_ transport.Capable = (*Conn)(nil)
)

// Capabilities implements [transport.Capable].
func (c *Conn) Capabilities() transport.Capabilities {
	return transport.Capabilities{Class: transport.ClassQUIC, TLSConn: c, Authenticator: c}
}

// Peer returns the identity that the peer has proved, or its address after Endpoint.Dial.
func (c *Conn) Peer() string { return c.peer }

// RemoteAddr returns the address of the peer's socket. Since a node has only one, it is
// also the address at which the peer listens, as seen from here.
func (c *Conn) RemoteAddr() string { return c.remote }

// ConnectionState returns the state of the TLS session.
func (c *Conn) ConnectionState() tls.ConnectionState { return c.qc.ConnectionState().TLS }

// MarkAuthenticated implements [transport.Authenticator].
func (c *Conn) MarkAuthenticated() bool {
	return c.unauthenticated == nil || c.unauthenticated.authenticated()
}

// Quality returns the smoothed round trip of packets, and the number of packets of this side that were lost.
func (c *Conn) Quality() (roundTrip time.Duration, lost uint64) {
	s := c.qc.ConnectionStats()
	return s.SmoothedRTT, s.PacketsLost
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.qc.Context().Done() }

// Err returns nil until Done is closed, and then the reason for the end.
func (c *Conn) Err() error {
	select {
	case <-c.Done():
		return endError(context.Cause(c.qc.Context()))
	default:
		return nil
	}
}

// Close ends the connection and notifies the peer.
func (c *Conn) Close() error {
	c.finish(codeClosed, "closed")
	return nil
}

// OpenPipe opens a pipe. It blocks while MaxPipes of the peer are open.
func (c *Conn) OpenPipe(ctx context.Context) (transport.Sender, error) {
	st, err := c.qc.OpenUniStreamSync(ctx)
	if err != nil {
		return nil, c.callError(ctx, err)
	}
	return &sender{st: st}, nil
}

// AcceptPipe returns the next pipe that the peer has opened.
func (c *Conn) AcceptPipe(ctx context.Context) (transport.Receiver, error) {
	select {
	case c.accepting <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	st, err := c.qc.AcceptUniStream(ctx)
	<-c.accepting
	if err != nil {
		return nil, c.callError(ctx, err)
	}
	return &receiver{st: st, conn: c}, nil
}

// callError maps the error of a call that waited with ctx.
func (c *Conn) callError(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return context.Cause(ctx)
	}
	return endError(err)
}

// finish ends the connection. The code and the reason reach the peer and, through
// endError, this side.
func (c *Conn) finish(code quicgo.ApplicationErrorCode, reason string) {
	c.qc.CloseWithError(code, reason)
}

// group returns the WaitGroup of the owner of the connection.
func (c *Conn) group() *sync.WaitGroup {
	if c.owner != nil {
		return &c.owner.tasks
	}
	return &c.end.explicit
}

// spawn runs f on a goroutine, unless the connection has ended.
func (c *Conn) spawn(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.group().Go(f)
	}
}

// cleanUp runs once, when the connection has ended.
func (c *Conn) cleanUp() {
	defer c.group().Done()
	if c.end.watch != nil {
		// From now on peers that ask get the answer that the connection is unknown.
		c.end.watch.remove(c)
	}
	c.mu.Lock()
	c.ended = true
	sockets := c.sockets
	c.sockets = nil
	c.mu.Unlock()
	for _, sock := range sockets {
		c.closeWatch(sock)
	}

	c.end.mu.Lock()
	delete(c.end.conns, c)
	c.end.mu.Unlock()
}
