package transporttest

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// testAddresses: a transport has a name and an address, and both sides of a conn know the
// identity of the other.
func testAddresses(x *check) {
	for i, t := range x.cluster.Transports {
		if t.Name() == "" || t.Addr() == "" {
			x.fatal("transport %d has name %q and address %q, want neither empty", i, t.Name(), t.Addr())
		}
	}
	dialed, accepted := x.pair()
	for _, c := range []struct {
		conn transport.Conn
		peer string
	}{{dialed, x.cluster.identity(1)}, {accepted, x.cluster.identity(0)}} {
		if got := c.conn.Peer(); got != c.peer {
			x.fatal("Peer() = %q, want %q", got, c.peer)
		}
		if c.conn.RemoteAddr() == "" {
			x.fatal("RemoteAddr() is empty on the conn to %q", c.peer)
		}
		if err := c.conn.Err(); err != nil {
			x.fatal("Err() = %v on a conn that has not ended", err)
		}
	}
}

// testIdentity: a dial with the wrong identity fails, and Accept does not return its conn.
func testIdentity(x *check) {
	from, to := x.cluster.Transports[0], x.cluster.Transports[1]
	for _, wrong := range []string{"another", x.cluster.identity(0), x.cluster.identity(1) + "x"} {
		c, err := from.Dial(x.tb.Context(), to.Addr(), wrong)
		if err == nil {
			x.fatal("dialed %q and got a conn to %q", wrong, c.Peer())
		}
		x.wantError(err, transport.ErrIdentity, "dial of identity %q", wrong)
	}
	s, r := x.newPipe()
	x.send(s, x.data.stream(0), 0, 100)
	x.receive(r, x.data.stream(0), 0, 100)

	// The empty identity accepts any peer.
	c, err := from.Dial(x.tb.Context(), to.Addr(), "")
	x.must(err, "dial of any identity")
	if got, want := c.Peer(), x.cluster.identity(1); got != want {
		x.fatal("Peer() = %q, want %q", got, want)
	}
}

// testDialClosed: the error of a dial to a closed transport names the address.
func testDialClosed(x *check) {
	addr := x.cluster.Transports[1].Addr()
	x.must(x.cluster.Transports[1].Close(), "close transport 1")
	ctx, cancel := x.within(2 * time.Second)
	defer cancel()
	if _, err := x.cluster.Transports[0].Dial(ctx, addr, ""); err == nil {
		x.fatal("the dial of %s, where no transport listens, succeeds", addr)
	} else if !strings.Contains(err.Error(), addr) {
		x.fatal("the error does not name the address %s: %v", addr, err)
	}
}

// testCancelDial: a dial that is cancelled at any moment returns promptly and leaves no conn
// behind.
func testCancelDial(x *check) {
	const dials = 20
	var mu sync.Mutex
	var accepted []transport.Conn
	accepting, stop := context.WithCancel(x.tb.Context())
	acceptor := x.background(func() {
		for {
			c, err := x.cluster.Transports[1].Accept(accepting)
			if err != nil {
				x.wantError(err, context.Canceled, "accept")
				return
			}
			mu.Lock()
			accepted = append(accepted, c)
			mu.Unlock()
		}
	})
	alive := func() int {
		mu.Lock()
		defer mu.Unlock()
		n := 0
		for _, c := range accepted {
			if c.Err() == nil {
				n++
			}
		}
		return n
	}
	dialed := 0
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range dials {
		ctx, cancel := context.WithCancel(x.tb.Context())
		if i == 0 {
			cancel()
		}
		timer := time.AfterFunc(time.Duration(rng.IntN(3000))*time.Microsecond, cancel)
		_, err := x.cluster.Transports[0].Dial(ctx, x.cluster.Transports[1].Addr(), x.cluster.identity(1))
		timer.Stop()
		cancel()
		if err == nil {
			dialed++
			continue
		}
		x.wantError(err, context.Canceled, "cancelled dial")
	}
	if dialed == dials {
		x.fatal("a dial with a cancelled context succeeds")
	}
	last := x.dial(0, 1)
	for start := time.Now(); alive() != dialed+1; time.Sleep(time.Millisecond) {
		if time.Since(start) > promptly {
			x.fatal("%d dials succeeded, but %d accepted conns are alive", dialed+1, alive())
		}
	}
	if err := last.Err(); err != nil {
		x.fatal("a cancelled dial has ended a later conn: %v", err)
	}
	stop()
	x.await(acceptor, "return of a cancelled Accept")
}

// testCancelAccept: a cancelled Accept returns the error of its context, and loses no
// conn.
func testCancelAccept(x *check) {
	x.cancels("Accept", func(ctx context.Context) error { _, err := x.cluster.Transports[1].Accept(ctx); return err })
	x.pair()
}

// testCancelAcceptPipe is testCancelAccept for pipes.
func testCancelAcceptPipe(x *check) {
	a, b := x.pair()
	x.cancels("AcceptPipe", func(ctx context.Context) error { _, err := b.AcceptPipe(ctx); return err })
	x.pipe(a, b)
}

// cancels checks that a call that waits returns the error of its context.
func (x *check) cancels(name string, call func(ctx context.Context) error) {
	ctx, cancel := context.WithCancel(x.tb.Context())
	waiting := x.background(func() { x.wantError(call(ctx), context.Canceled, "cancelled %s", name) })
	time.Sleep(aWhile)
	cancel()
	x.await(waiting, "return of a cancelled "+name)

	ctx, cancel = x.within(aWhile)
	defer cancel()
	x.wantError(call(ctx), context.DeadlineExceeded, "%s past its deadline", name)
}

// testDialAll: concurrent conns between all transports do not mix.
func testDialAll(x *check) {
	size := len(x.cluster.Transports)
	for i := range size {
		x.spawn(func() {
			for range size - 1 {
				c := x.accept(i)
				x.spawn(func() {
					r := x.acceptPipe(c)
					from := x.streamNumber(r)
					if got, want := c.Peer(), x.cluster.identity(from); got != want {
						x.fatal("Peer() = %q, want %q, the writer of this conn", got, want)
					}
					x.receive(r, x.data.stream(from), 0, 10_007)
					x.wantEOF(r)
				})
			}
		})
		for j := range size {
			if i == j {
				continue
			}
			x.spawn(func() {
				s := x.open(x.dial(i, j))
				x.write(s, number(i))
				x.send(s, x.data.stream(i), 0, 10_007)
				x.must(s.Close(), "close a pipe")
			})
		}
	}
}

// testTLSConn: both sides export the same keying material of a TLS 1.3 session, and
// two sessions export different material.
func testTLSConn(x *check) {
	material := func(c transport.Conn) string {
		s := transport.CapabilitiesOf(c).TLSConn
		x.need("tlsconn", s != nil, "its conns lack the capability TLSConn")
		state := s.ConnectionState()
		if !state.HandshakeComplete || state.Version != tls.VersionTLS13 {
			x.fatal("a conn has TLS version %#x, handshake complete: %v", state.Version, state.HandshakeComplete)
		}
		key, err := state.ExportKeyingMaterial("EXPORTER-Channel-Binding", nil, 32)
		x.must(err, "export keying material")
		return string(key)
	}
	a, b := x.pair()
	first := material(a)
	if first != material(b) {
		x.fatal("the two sides of a conn export different keying material")
	}
	c, d := x.pair()
	if first == material(c) || first == material(d) {
		x.fatal("two conns export the same keying material")
	}
}

// isEnd reports whether err can follow from the end of a conn or pipe.
func isEnd(err error) bool {
	return errors.Is(err, transport.ErrClosed) || errors.Is(err, transport.ErrPeerClosed) ||
		errors.Is(err, transport.ErrPeerGone)
}
