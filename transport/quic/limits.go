package quic

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	quicgo "github.com/quic-go/quic-go"
)

// A gate counts the incoming handshakes under way, so that clients who have
// proved nothing yet cost a bounded amount of memory.
type gate struct {
	max     int64
	pending atomic.Int64
	tasks   sync.WaitGroup

	// staff is told how many handshakes are under way.
	staff atomic.Pointer[func(int64)]
}

var errGateFull = errors.New("quic: too many handshakes are under way")

// suspicious makes clients prove their address first, with a Retry packet
// (RFC 9000, section 8.1.2), while many handshakes are under way: those of a
// flood from forged addresses never get past it.
func (g *gate) suspicious(net.Addr) bool { return g.pending.Load() >= g.max/8 }

type halfOpenKey struct{}

// A halfOpen is a handshake that counts.
type halfOpen struct {
	once sync.Once
	stop func() bool
}

// enter counts a handshake until leave, or until its connection has failed.
func (g *gate) enter(ctx context.Context, _ *quicgo.ClientInfo) (context.Context, error) {
	pending := g.pending.Add(1)
	if pending > g.max {
		g.pending.Add(-1)
		return nil, errGateFull
	}
	(*g.staff.Load())(pending)
	h := new(halfOpen)
	g.tasks.Add(1)
	h.stop = context.AfterFunc(ctx, func() { g.release(h) })
	return context.WithValue(ctx, halfOpenKey{}, h), nil
}

// leave ends the count of a handshake that has succeeded.
func (g *gate) leave(ctx context.Context) {
	if h, ok := ctx.Value(halfOpenKey{}).(*halfOpen); ok {
		h.stop()
		g.release(h)
	}
}

func (g *gate) release(h *halfOpen) {
	h.once.Do(func() {
		g.pending.Add(-1)
		g.tasks.Done()
	})
}

func (g *gate) wait() { g.tasks.Wait() }

// For so long, a client without identity may send no more than so much that
// nobody reads. The windows of a connection are open from the start, but a
// stranger must not fill them. By then it has proved itself by other means, or
// has been closed.
const (
	unprovenTime     = 30 * time.Second
	unprovenBytesMax = 1 << 20
)

// restrain ends the connection when a client without identity sends too much.
func (c *Conn) restrain() {
	for until := time.Now().Add(unprovenTime); time.Now().Before(until); {
		if !c.pause(100 * time.Millisecond) {
			return
		}
		if int64(c.qc.ConnectionStats().BytesReceived)-c.read.Load() > unprovenBytesMax {
			c.finish(codeRefused, "it has sent too much without an identity")
		}
	}
}
