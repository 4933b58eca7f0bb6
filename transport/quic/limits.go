package quic

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	quicgo "github.com/quic-go/quic-go"

	"github.com/nexar-go/nexar/internal/admission"
)

// handshakes admits incoming connections before their TLS handshake. Unauthenticated
// clients cost a bounded amount of memory and time, and those of one address do not keep
// out those of others.
type handshakes struct {
	admission *admission.Gate
	source    func(net.Addr) netip.Addr // of a client, for the admission
	refusals  *refusals

	// max limits coming. It exceeds the limit of the admission: quic-go cannot end a
	// handshake before it has read the whole ClientHello, so a connection that is evicted
	// before lasts until its timeout.
	max    int64
	coming atomic.Int64 // connections that may still reach an acceptor
	tasks  sync.WaitGroup

	// startAcceptors is called when coming has grown.
	startAcceptors atomic.Pointer[func()]
}

var errTooManyHandshakes = errors.New("quic: too many handshakes are in progress")

// needsRetry makes clients validate their address first, by a Retry packet (RFC 9000,
// section 8.1.2), while many connections are unauthenticated. A flood from forged
// addresses never passes it, and a Retry costs no state.
func (g *handshakes) needsRetry(net.Addr) bool { return g.admission.Pressed() }

type unprovedKey struct{}

// An unauthenticated is the state of an incoming connection until its peer is
// authenticated.
type unauthenticated struct {
	handshakes *handshakes
	ticket     *admission.Ticket
	came       atomic.Bool // it does not count as coming any more
	stop       func() bool // cancels the call of end at the end of the connection

	mu      sync.Mutex
	evicted bool
	ended   bool
	conn    *quicgo.Conn // nil until the ClientHello was read
}

// enter admits a connection. It runs on the goroutine of quic-go that reads all Initial
// packets. After an error, quic-go answers CONNECTION_REFUSED and keeps no state.
func (g *handshakes) enter(ctx context.Context, info *quicgo.ClientInfo) (context.Context, error) {
	if g.coming.Add(1) > g.max {
		g.coming.Add(-1)
		return nil, errTooManyHandshakes
	}
	p := &unauthenticated{handshakes: g}
	var err error
	p.ticket, err = g.admission.TryEnter(admission.SourceOf(g.source(info.RemoteAddr)), info.AddrVerified, p.evict)
	if err != nil {
		g.coming.Add(-1)
		g.refusals.note(err)
		return nil, err
	}
	(*g.startAcceptors.Load())()
	g.tasks.Add(1)
	p.stop = context.AfterFunc(ctx, p.end)
	return context.WithValue(ctx, unprovedKey{}, p), nil
}

// unauthenticatedOf returns the state of an incoming connection.
func unauthenticatedOf(qc *quicgo.Conn) *unauthenticated {
	return qc.Context().Value(unprovedKey{}).(*unauthenticated)
}

// evict closes the connection to make room for another one. It does not block.
func (p *unauthenticated) evict() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.evicted = true
	if p.conn != nil && !p.ended {
		p.closeBusy()
	}
}

// attach sets the connection, so that it can be closed.
func (p *unauthenticated) attach(qc *quicgo.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn = qc
	if p.evicted && !p.ended {
		p.closeBusy()
	}
}

// closeBusy is called with the lock held and before end, so tasks is not zero.
func (p *unauthenticated) closeBusy() {
	p.handshakes.tasks.Go(func() {
		p.conn.CloseWithError(codeBusy, "too many unauthenticated connections")
	})
}

// arrived counts the connection as one that has reached an acceptor, or never will.
func (p *unauthenticated) arrived() {
	if p.came.CompareAndSwap(false, true) {
		p.handshakes.coming.Add(-1)
	}
}

// authenticated marks the peer as authenticated. It reports false if the connection was
// evicted before.
func (p *unauthenticated) authenticated() bool {
	ok := p.ticket.Prove()
	if p.stop() {
		p.end()
	}
	return ok
}

// end runs once, when the peer is authenticated or the connection has ended.
func (p *unauthenticated) end() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.arrived()
	p.ticket.Leave()
	p.handshakes.tasks.Done()
}

func (g *handshakes) wait() { g.tasks.Wait() }

// Limits for a client without identity: its unread bytes, and how long they are
// limited. The windows of a connection are open from the start, but an unauthenticated
// client must not fill them. After that time it has authenticated itself by other means,
// or was closed.
const (
	unprovenTime     = 30 * time.Second
	unprovenBytesMax = 1 << 20
)

// limitUnread ends the connection when a client without identity sends too much.
func (c *Conn) limitUnread() {
	for until := time.Now().Add(unprovenTime); time.Now().Before(until); {
		if !c.sleep(100 * time.Millisecond) {
			return
		}
		if int64(c.qc.ConnectionStats().BytesReceived)-c.read.Load() > unprovenBytesMax {
			c.finish(codeRefused, "it has sent too much without an identity")
		}
	}
}
