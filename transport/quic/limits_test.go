package quic

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/testpeer"
	"github.com/nexar-go/nexar/transport"
)

// TestFlood checks that invalid packets disturb no connection.
func TestFlood(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{})
	dialed, accepted := connect(t, nodes[0], nodes[1])
	s, r := pipeBetween(t, dialed, accepted)

	flood := make(chan error)
	go func() { flood <- sendGarbage(nodes[1].Addr(), 20_000) }()

	rounds := 0
	for flooding := true; flooding || rounds < 10; rounds++ {
		select {
		case err := <-flood:
			if err != nil {
				t.Fatal(err)
			}
			flooding = false
		default:
		}
		start := time.Now()
		if _, err := s.Write([]byte{byte(rounds)}); err != nil {
			t.Fatal(err)
		}
		var b [1]byte
		if _, err := io.ReadFull(r, b[:]); err != nil || b[0] != byte(rounds) {
			t.Fatalf("round %d: read %d, %v", rounds, b[0], err)
		}
		if d := time.Since(start); d > soon {
			t.Fatalf("a byte took %v", d)
		}
	}
	t.Logf("%d bytes came through the flood", rounds)
	connect(t, nodes[0], nodes[1])
}

// sendGarbage sends random packets, some with the first bytes of a QUIC Initial.
func sendGarbage(addr string, packets int) error {
	sock, err := net.Dial("udp", addr)
	if err != nil {
		return err
	}
	defer sock.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	p := make([]byte, 1300)
	for i := range packets {
		for j := range 64 {
			p[j] = byte(rng.Uint32())
		}
		n := rng.IntN(len(p))
		if i%2 == 0 {
			copy(p, []byte{0xc3, 0, 0, 0, 1, 8})
			n = 1250
		}
		sock.Write(p[:n])
	}
	return nil
}

// TestHandshakeLimit checks that clients that stall in their handshakes are counted, must
// validate their address, and are evicted once they are a second old. Before that, others of the same
// address get the error that the server is busy. The time is fake: on a busy machine, the clients would be too old before
// the first of the others dials.
func TestHandshakeLimit(t *testing.T) {
	const limit = 8
	inBubble(t, []string{"server", "client"}, []Config{{MaxHandshakes: limit}, {}}, func(t *testing.T, nodes []*testNode) {
		server, client := nodes[0], nodes[1]
		h := &server.end.handshakes
		if h.needsRetry(nil) {
			t.Error("clients must validate their address at an idle server")
		}
		began := time.Now()
		stop := stall(t, client, server, limit)
		if !h.needsRetry(nil) {
			t.Error("clients need not validate their address at a busy server")
		}
		_, err := client.Dial(t.Context(), server.Addr(), "server")
		if !errors.Is(err, transport.ErrBusy) || !strings.Contains(err.Error(), "refused the connection") {
			t.Errorf("dial beyond the limit, %v after the stalled ones: %v", time.Since(began), err)
		}
		eventually(t, "an old one to be evicted", func() bool {
			_, err := client.Dial(t.Context(), server.Addr(), "server")
			if err != nil && !errors.Is(err, transport.ErrBusy) {
				t.Fatal(err)
			}
			return err == nil
		})
		if took := time.Since(began); took < time.Second {
			t.Errorf("a stalled client was evicted within %v, want at least a second", took)
		}
		if _, err := server.Accept(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := h.admission.Len(); n != limit-1 {
			t.Errorf("%d of %d stalled clients are left, want one less", n, limit)
		}
		stop()
		eventually(t, "the end of the handshakes", func() bool { return h.admission.Len() == 0 && h.coming.Load() == 0 })
	})
}

// TestUnauthenticated checks that a client without identity is counted until it is
// authenticated, and never evicted after that.
func TestUnauthenticated(t *testing.T) {
	ca := testpeer.NewCA(t)
	seed := newTestNode(t, Config{MaxHandshakes: 2}, ca.Node(t, "seed"))
	end := newTestNode(t, Config{}, ca.Node(t, "client")).end
	conf := &tls.Config{RootCAs: ca.Pool, ServerName: "seed", NextProtos: []string{testpeer.JoinALPN}}
	join := func() (dialed, accepted *Conn) {
		t.Helper()
		eventually(t, "a place", func() bool {
			var err error
			dialed, err = end.Dial(t.Context(), seed.Addr(), conf)
			if err != nil && !errors.Is(err, transport.ErrBusy) {
				t.Fatal(err)
			}
			return err == nil
		})
		c, err := seed.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return dialed, c.(*Conn)
	}
	dialed, proved := join()
	if !proved.MarkAuthenticated() || seed.end.handshakes.admission.Len() != 0 {
		t.Error("an authenticated client still counts")
	}
	silent, evicted := join()
	join()
	join()
	awaitDone(t, silent)
	if err := silent.Err(); !errors.Is(err, transport.ErrBusy) || !errors.Is(err, transport.ErrPeerClosed) {
		t.Errorf("a client that was evicted gets %v", err)
	}
	if evicted.MarkAuthenticated() {
		t.Error("an evicted client was authenticated")
	}
	if err := errors.Join(dialed.Err(), proved.Err()); err != nil {
		t.Errorf("an authenticated client has lost its connection: %v", err)
	}
}

// stall makes n clients stall in their handshakes with a server until stop is called.
// stop returns when they have ended.
func stall(t *testing.T, from, to *testNode, n int) (stop func()) {
	t.Helper()
	addr := to.Addr()
	if ap, err := netip.ParseAddrPort(addr); err == nil && ap.Addr().IsUnspecified() {
		addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), ap.Port()).String()
	}
	ctx, cancel := context.WithCancel(t.Context())
	var stalled sync.WaitGroup
	for range n {
		stalled.Go(func() {
			if dialStalled(ctx, from, addr) == nil {
				t.Error("a stalled handshake has succeeded")
			}
		})
	}
	stop = func() {
		cancel()
		stalled.Wait()
	}
	t.Cleanup(stop)
	eventually(t, "the stalled handshakes", func() bool { return to.end.handshakes.admission.Len() == n })
	return stop
}

// dialStalled stalls in a handshake until ctx ends.
func dialStalled(ctx context.Context, from *testNode, addr string) error {
	conf := from.creds.Client("")
	conf.VerifyConnection = func(tls.ConnectionState) error {
		<-ctx.Done()
		return ctx.Err()
	}
	_, err := from.end.Dial(context.Background(), addr, conf)
	return err
}

// TestSlowClients checks that stalled clients delay no others.
func TestSlowClients(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{})
	stop := stall(t, nodes[0], nodes[1], 20)
	start := time.Now()
	connect(t, nodes[0], nodes[1])
	t.Logf("connected in %v", time.Since(start))
	stop()
}

// TestBurst checks that every dial succeeds and is accepted when many dial at once. The time is fake: on a busy machine, connections count as
// stalled.
func TestBurst(t *testing.T) {
	const dials = 300 // many more than quic-go lets wait, and enough for Retry
	inBubble(t, []string{"client", "server"}, make([]Config, 2), func(t *testing.T, nodes []*testNode) {
		client, server := nodes[0], nodes[1]
		conns := make(chan transport.Conn, 2*dials)
		var all sync.WaitGroup
		for range dials {
			all.Go(func() {
				c, err := client.Dial(t.Context(), server.Addr(), "server")
				if err != nil {
					t.Errorf("Dial: %v", err)
				}
				conns <- c
			})
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), soon)
				defer cancel()
				c, err := server.Accept(ctx)
				if err != nil {
					t.Errorf("Accept: %v", err)
				}
				conns <- c
			})
		}
		all.Wait()
		for range cap(conns) {
			if c := <-conns; c != nil && c.Err() != nil {
				t.Errorf("a connection has ended: %v", c.Err())
			}
		}
	})
}

// TestBurstBehindSlowAcceptors checks that acceptors that are busy with connections after their handshake do not count as waiting for others.
func TestBurstBehindSlowAcceptors(t *testing.T) {
	const slow, dials = 40, 40 // both more than quic-go lets wait
	ca := testpeer.NewCA(t)
	client := newTestNode(t, Config{}, ca.Node(t, "client"))
	blocked, release := make(chan struct{}, slow+dials), make(chan struct{})
	server := newTestNode(t, Config{Watch: func(string) bool {
		blocked <- struct{}{}
		<-release
		return false
	}}, ca.Node(t, "server"))
	t.Cleanup(sync.OnceFunc(func() { close(release) }))
	dial := func(n int) {
		t.Helper()
		errs := make(chan error, n)
		for range n {
			go func() {
				_, err := client.Dial(t.Context(), server.Addr(), "server")
				errs <- err
			}()
		}
		for range n {
			if err := <-errs; err != nil {
				t.Error(err)
			}
			<-blocked
		}
	}
	dial(slow)
	dial(dials)
}

// TestAcceptorRunsFirst checks that a connection is admitted when its acceptor runs, not before: quic-go refuses it if others wait longer.
func TestAcceptorRunsFirst(t *testing.T) {
	server := newTestNodes(t, 2, Config{})[1]
	server.end.mu.Lock() // The acceptor does not come to Accept.
	admitted := make(chan struct{})
	server.end.handshakes.coming.Add(1)
	go func() {
		server.startAcceptors()
		close(admitted)
	}()
	select {
	case <-admitted:
		t.Error("a connection is admitted without an acceptor")
	case <-time.After(100 * time.Millisecond):
	}
	server.end.mu.Unlock()
	<-admitted
	server.end.handshakes.coming.Add(-1)
}

// TestAcceptorForOther checks that a connection which counted an acceptor that took another one is accepted.
func TestAcceptorForOther(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{})
	client, server := nodes[0], nodes[1]
	server.acceptors.Add(2) // which the connections count
	for range 2 {
		if _, err := client.Dial(t.Context(), server.Addr(), server.name); err != nil {
			t.Fatal(err)
		}
	}
	server.acceptors.Add(-1)
	server.loop.Go(func() { server.accept(make(chan struct{})) })
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	for i := range 2 {
		if _, err := server.Accept(ctx); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
}

// TestAcceptors checks that an acceptor remains after the others have left, and for a
// handshake that takes longer than acceptorIdle.
func TestAcceptors(t *testing.T) {
	ca := testpeer.NewCA(t)
	client := newTestNode(t, Config{}, ca.Node(t, "client"))
	end, err := Listen(Config{Addr: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	const idle = 10 * time.Millisecond
	end.acceptorIdle = idle
	server, err := end.Transport(ca.Node(t, "server"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		conf := client.creds.Client("server")
		conf.VerifyConnection = func(tls.ConnectionState) error {
			time.Sleep(time.Duration(i) * idle / 8)
			return nil
		}
		if _, err := client.end.Dial(t.Context(), end.Addr(), conf); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		if _, err := server.Accept(ctx); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		cancel()
		time.Sleep(time.Duration(20-i) * idle / 8)
	}
	eventually(t, "the end of the acceptors", func() bool { return server.acceptors.Load() == 0 })
}
