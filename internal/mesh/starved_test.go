package mesh

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// A starvedTransport is a transport of a host without enough processors: a handshake takes some time.
type starvedTransport struct {
	transport.Transport
	handshake *atomic.Int64
}

func (t starvedTransport) Dial(ctx context.Context, addr, peer string) (transport.Conn, error) {
	select {
	case <-time.After(time.Duration(t.handshake.Load())):
		return t.Transport.Dial(ctx, addr, peer)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// TestSlowHandshakeOfBrokenLink: a link breaks on a host that is so busy that a handshake takes a large part of HeartbeatTimeout. No node counts
// as failed.
func TestSlowHandshakeOfBrokenLink(t *testing.T) {
	inBubble(t, demandNodes, func(w *world) {
		var handshake atomic.Int64
		w.watches = 1
		w.paths = func(rank int) []Path {
			return []Path{{Transport: starvedTransport{w.transports[rank], &handshake}}}
		}
		w.form()
		time.Sleep(300 * time.Millisecond) // between two heartbeats
		handshake.Store(int64(timeout / 3))
		w.cut(0, 1)
		time.Sleep(10 * time.Millisecond) // Both ranks notice it before one sends a frame, which would be lost.
		if err := w.exchange(0, 1); err != nil {
			t.Error(err)
		}
		w.wantWhole()
	})
}

// A deafTransport loses the packets of its dials for some time: those that begin then get no answer.
type deafTransport struct {
	transport.Transport
	until *atomic.Int64 // in nanoseconds
}

func (t deafTransport) Dial(ctx context.Context, addr, peer string) (transport.Conn, error) {
	if time.Now().UnixNano() < t.until.Load() {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return t.Transport.Dial(ctx, addr, peer)
}

// TestHandshakeWithoutAnAnswer: a link breaks, and the network loses the packets of handshakes for half of HeartbeatTimeout. The nodes dial again
// beside handshakes without an answer, and none counts as failed.
func TestHandshakeWithoutAnAnswer(t *testing.T) {
	inBubble(t, demandNodes, func(w *world) {
		var until atomic.Int64
		w.watches = 1
		w.paths = func(rank int) []Path { return []Path{{Transport: deafTransport{w.transports[rank], &until}}} }
		w.form()
		time.Sleep(300 * time.Millisecond) // between two heartbeats
		until.Store(time.Now().Add(timeout / 2).UnixNano())
		w.cut(0, 1)
		if err := w.exchange(0, 1); err != nil {
			t.Error(err)
		}
		w.wantWhole()
	})
}

// TestSlowHandshakeWithSeveralAddresses: a node with several addresses is reached on a host that is so busy that a handshake takes longer than
// the first attempt.
func TestSlowHandshakeWithSeveralAddresses(t *testing.T) {
	inBubble(t, demandNodes, func(w *world) {
		var handshake atomic.Int64
		w.watches = 1
		w.view.Nodes[4].Addrs = append(w.view.Nodes[4].Addrs, "elsewhere")
		w.paths = func(rank int) []Path { return []Path{{Transport: starvedTransport{w.transports[rank], &handshake}}} }
		w.form()
		handshake.Store(int64(3 * addrTimeout / 2))
		if err := w.meshes[0].dial(w.Context(), 4, nil, dialTimeout); err != nil {
			t.Error(err)
		}
	})
}
