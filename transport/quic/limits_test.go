package quic

import (
	"context"
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/testpeer"
	"github.com/nexar-go/nexar/transport"
)

// TestFlood: packets that are none disturb no connection.
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

// sendGarbage sends noise, some of it with the first bytes of an Initial
// packet of QUIC.
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

// TestHandshakeLimit: clients that stand still in their handshakes are counted,
// must prove their address, and are refused beyond the limit.
func TestHandshakeLimit(t *testing.T) {
	const limit = 8
	ca := testpeer.NewCA(t)
	server := newTestNode(t, Config{MaxHandshakes: limit}, ca.Node(t, "server"))
	client := newTestNode(t, Config{}, ca.Node(t, "client"))
	if server.end.gate.suspicious(nil) {
		t.Error("clients must prove their address to an idle server")
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, limit)
	for range limit {
		go func() { failed <- dialStalled(ctx, client, server.Addr()) }()
	}
	eventually(t, "the stalled handshakes", func() bool { return server.end.gate.pending.Load() == limit })
	if !server.end.gate.suspicious(nil) {
		t.Error("clients need not prove their address to a busy server")
	}
	_, err := client.Dial(t.Context(), server.Addr(), "server")
	if err == nil || !strings.Contains(err.Error(), "takes no connections now") {
		t.Errorf("dial beyond the limit: %v", err)
	}
	cancel()
	for range limit {
		if err := <-failed; err == nil {
			t.Error("a stalled handshake has succeeded")
		}
	}
	eventually(t, "room for a client", func() bool {
		_, err := client.Dial(t.Context(), server.Addr(), "server")
		return err == nil
	})
	if _, err := server.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// dialStalled stops in the middle of a handshake until ctx ends.
func dialStalled(ctx context.Context, from *testNode, addr string) error {
	conf := from.creds.Client("")
	conf.VerifyConnection = func(tls.ConnectionState) error {
		<-ctx.Done()
		return ctx.Err()
	}
	_, err := from.end.Dial(context.Background(), addr, conf)
	return err
}

// TestSlowClients: clients that stand still delay no one.
func TestSlowClients(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 20)
	for range cap(failed) {
		go func() { failed <- dialStalled(ctx, nodes[0], nodes[1].Addr()) }()
	}
	eventually(t, "the stalled handshakes", func() bool {
		return nodes[1].end.gate.pending.Load() == int64(cap(failed))
	})
	start := time.Now()
	connect(t, nodes[0], nodes[1])
	t.Logf("connected in %v", time.Since(start))
	cancel()
	for range cap(failed) {
		<-failed
	}
}

// TestBurst: when many dial at once, every dial that succeeds is accepted.
func TestBurst(t *testing.T) {
	const dials = 150 // far more than quic-go lets wait, and enough for Retry
	nodes := newTestNodes(t, 2, Config{})
	conns := make(chan transport.Conn, dials)
	for range dials {
		go func() {
			c, err := nodes[0].Dial(t.Context(), nodes[1].Addr(), "n1")
			if err != nil {
				t.Errorf("Dial: %v", err)
			}
			conns <- c
		}()
	}
	var wg sync.WaitGroup
	for range dials {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
			defer cancel()
			if _, err := nodes[1].Accept(ctx); err != nil {
				t.Errorf("Accept: %v", err)
			}
		})
	}
	wg.Wait()
	for range dials {
		if c := <-conns; c != nil && c.Err() != nil {
			t.Errorf("a connection has ended: %v", c.Err())
		}
	}
}

// TestAcceptors: there is always somebody to accept a connection, also after
// the others have left, and for a handshake that takes longer than they wait.
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
