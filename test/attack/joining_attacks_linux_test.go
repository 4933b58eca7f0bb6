package attack

import (
	"context"
	crand "crypto/rand"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/tcp"
)

// joiningAttacks are attacks on the TCP port of a seed, by clients that never join.
func joiningAttacks() []attack {
	return []attack{
		{"joining over TCP", "a flood of half-open, slow and malformed connections at the TCP port of the seed keeps no node from joining, and the seed ends each of them", 30 * time.Second, true, attackJoining},
	}
}

// connsPerKind is the number of connections of each kind that the flood holds at a time.
const connsPerKind = 16

// attackJoining floods the TCP port of the seed while a rank dies and others join over TCP.
func attackJoining(t *testing.T, rng *rand.Rand) {
	w := newIdentityWorld(t, rng, 3, arguments{Elastic: true}, "NEXAR_TRANSPORTS=tcp")
	dialer, err := tcp.Listen(tcp.Config{DialOnly: true, Anonymous: true, MaxPipes: 2}, pki.Joining{})
	if err != nil {
		t.Fatal(err)
	}
	defer dialer.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	clients := []func(context.Context) bool{
		func(ctx context.Context) bool { return w.stall(ctx, nil) },
		func(ctx context.Context) bool { return w.stall(ctx, []byte("tnexar1")) },                       // a part of the magic
		func(ctx context.Context) bool { return w.stall(ctx, []byte("tnexar1c")) },                      // no TLS after it
		func(ctx context.Context) bool { return w.stall(ctx, append([]byte("tnexar1c"), 22, 3, 1, 2)) }, // a part of a ClientHello
		func(ctx context.Context) bool { return w.stall(ctx, randomBytes(300)) },
		func(ctx context.Context) bool { return w.stall(ctx, append([]byte("tnexar1c"), randomBytes(300)...)) },
		func(ctx context.Context) bool { return w.sendHello(ctx, dialer, helloByteByByte) },
		func(ctx context.Context) bool { return w.sendHello(ctx, dialer, helloForgedLength) },
		func(ctx context.Context) bool { return w.sendHello(ctx, dialer, helloWrongToken) },
	}
	ends := make([]atomic.Int64, len(clients)) // connections that the seed has ended
	for range connsPerKind {
		for kind, client := range clients {
			all.Go(func() {
				for ctx.Err() == nil {
					if client(ctx) {
						ends[kind].Add(1)
					} else {
						pause(ctx)
					}
				}
			})
		}
	}
	w.waitForSteps(5)
	w.survivors()[rng.IntN(3)].signal(os.Kill)
	w.waitForSize(2)
	for _, size := range []int{3, 4} {
		w.startRank(nil, arguments{}, "NEXAR_LISTEN=127.0.0.1:0")
		w.waitForSize(size)
	}
	for kind := range ends {
		for end := time.Now().Add(bound); ends[kind].Load() == 0; pause(ctx) {
			if time.Now().After(end) {
				t.Fatalf("the seed has ended no connection of client kind %d within %v", kind, bound)
			}
		}
	}
	cancel()
	all.Wait()
	w.waitForSteps(5)
	w.finish()
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	crand.Read(b)
	return b
}

// stall connects to the seed, sends the beginning of a connection, and reports whether the
// seed ends it. It comes from a random address of loopback, so that the seed limits the flood
// and not the nodes.
func (w *identityWorld) stall(ctx context.Context, beginning []byte) bool {
	from := &net.TCPAddr{IP: append(net.IP{127, 0}, randomBytes(2)...)}
	c, err := (&net.Dialer{LocalAddr: from}).DialContext(ctx, "tcp", w.seedAddr)
	if err != nil {
		return false
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	c.Write(beginning)
	io.Copy(io.Discard, c)
	return ctx.Err() == nil
}

// A helloKind is the form of a bad JoinHello.
type helloKind int

const (
	helloByteByByte   helloKind = iota // never complete: only the time limit ends it
	helloForgedLength                  // announces 4 GiB
	helloWrongToken
)

// sendHello connects to the seed as a node does, sends a bad JoinHello, and reports whether
// the seed ends the connection.
func (w *identityWorld) sendHello(ctx context.Context, dialer *tcp.Transport, kind helloKind) bool {
	c, err := dialer.Dial(ctx, w.seedAddr, "")
	if err != nil {
		return false
	}
	defer c.Close()
	out, err := c.OpenPipe(ctx)
	if err != nil {
		return false
	}
	token, err := pki.ParseToken(nexar.NewToken())
	if err != nil {
		w.t.Error(err)
		return false
	}
	hello := wire.JoinHello{Version: wire.Version}
	if hello.Proof, err = token.Proof(pki.NodeRole, transport.CapabilitiesOf(c).TLSConn.ConnectionState()); err != nil {
		w.t.Error(err)
		return false
	}
	b, err := wire.AppendJoin(nil, hello)
	if err != nil {
		w.t.Error(err)
		return false
	}
	switch kind {
	case helloByteByByte:
		for i := 0; i < len(b)-1 && c.Err() == nil; i++ {
			out.Write(b[i : i+1])
			pause(ctx)
		}
	case helloForgedLength:
		out.Write([]byte{b[0], 0xff, 0xff, 0xff, 0xff})
	case helloWrongToken:
		out.Write(b)
	}
	select {
	case <-c.Done():
		return true
	case <-ctx.Done():
		return false
	}
}

// pause keeps a refused client from spinning.
func pause(ctx context.Context) {
	select {
	case <-time.After(200 * time.Millisecond):
	case <-ctx.Done():
	}
}
