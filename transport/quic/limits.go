package quic

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	quicgo "github.com/quic-go/quic-go"

	"github.com/nexar-go/nexar/internal/admission"
)

// handshakes admits incoming connections before their TLS handshake, so that
// unauthenticated clients cost a bounded amount of memory and time, and those of
// one address do not keep out those of others.
type handshakes struct {
	admission *admission.Gate
	refusals  *refusals

	// max bounds the handshakes under way. They are more than the admission lets in:
	// quic-go cannot end a handshake before it has read the whole ClientHello, so one
	// that is evicted before that lasts until its timeout.
	max     int64
	pending atomic.Int64
	tasks   sync.WaitGroup

	// startAcceptors is told how many handshakes are under way.
	startAcceptors atomic.Pointer[func(int64)]
}

var errTooManyHandshakes = errors.New("quic: too many handshakes are under way")

// needsRetry makes clients prove their address first, with a Retry packet (RFC 9000,
// section 8.1.2), while many connections are unauthenticated: those of a flood from
// forged addresses never get past it, and a Retry costs no state.
func (g *handshakes) needsRetry(net.Addr) bool { return g.admission.Pressed() }

type unprovedKey struct{}

// An unproved is an incoming connection until its peer has authenticated itself.
type unproved struct {
	gate   *handshakes
	ticket *admission.Ticket
	once   sync.Once   // ends the handshake
	stop   func() bool // keeps the end of the connection from calling end

	mu      sync.Mutex
	evicted bool
	ended   bool
	conn    *quicgo.Conn // nil until the ClientHello has been read
}

// enter admits a connection, on the goroutine of quic-go that reads all Initial
// packets. With an error, quic-go answers CONNECTION_REFUSED and keeps no state.
func (g *handshakes) enter(ctx context.Context, info *quicgo.ClientInfo) (context.Context, error) {
	pending := g.pending.Add(1)
	if pending > g.max {
		g.pending.Add(-1)
		return nil, errTooManyHandshakes
	}
	p := &unproved{gate: g}
	var err error
	p.ticket, err = g.admission.TryEnter(admission.SourceOf(addrPort(info.RemoteAddr).Addr()), info.AddrVerified, p.evict)
	if err != nil {
		g.pending.Add(-1)
		g.refusals.note(err)
		return nil, err
	}
	(*g.startAcceptors.Load())(pending)
	g.tasks.Add(1)
	p.stop = context.AfterFunc(ctx, p.end)
	return context.WithValue(ctx, unprovedKey{}, p), nil
}

// unprovedOf is that of an incoming connection.
func unprovedOf(qc *quicgo.Conn) *unproved {
	return qc.Context().Value(unprovedKey{}).(*unproved)
}

// evict closes the connection for the sake of another one. It does not block.
func (p *unproved) evict() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.evicted = true
	if p.conn != nil && !p.ended {
		p.closeBusy()
	}
}

// attach takes the connection, which can be closed from now on.
func (p *unproved) attach(qc *quicgo.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn = qc
	if p.evicted && !p.ended {
		p.closeBusy()
	}
}

// closeBusy is called with the lock held and before end, so tasks is not zero.
func (p *unproved) closeBusy() {
	p.gate.tasks.Go(func() {
		p.conn.CloseWithError(codeBusy, "too many unauthenticated connections")
	})
}

// handshakeOver ends the count of a handshake.
func (p *unproved) handshakeOver() { p.once.Do(func() { p.gate.pending.Add(-1) }) }

// proved notes that the peer has authenticated itself. It reports false if the connection was evicted before.
func (p *unproved) proved() bool {
	ok := p.ticket.Prove()
	if p.stop() {
		p.end()
	}
	return ok
}

// end runs once, when the peer has authenticated itself or the connection has ended.
func (p *unproved) end() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.handshakeOver()
	p.ticket.Leave()
	p.gate.tasks.Done()
}

func (g *handshakes) wait() { g.tasks.Wait() }

// For so long, a client without identity may send no more than so much that
// nobody reads. The windows of a connection are open from the start, but a
// stranger must not fill them. By then it has proved itself by other means, or
// has been closed.
const (
	unprovenTime     = 30 * time.Second
	unprovenBytesMax = 1 << 20
)

// limitUnread ends the connection when a client without identity sends too much.
func (c *Conn) limitUnread() {
	for until := time.Now().Add(unprovenTime); time.Now().Before(until); {
		if !c.pause(100 * time.Millisecond) {
			return
		}
		if int64(c.qc.ConnectionStats().BytesReceived)-c.read.Load() > unprovenBytesMax {
			c.finish(codeRefused, "it has sent too much without an identity")
		}
	}
}
