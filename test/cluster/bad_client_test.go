package cluster

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/quic"
)

// A badClient is a client without the token. It attacks the seed at addr, over its own QUIC socket,
// until ctx ends or the seed disconnects it.
type badClient func(ctx context.Context, end *quic.Endpoint, addr string) error

// badClients returns the kinds of bad clients by name.
func badClients() map[string]badClient {
	return map[string]badClient{
		"packets of garbage":     garbagePackets,
		"half a handshake":       halfHandshake,
		"another protocol":       otherProtocol,
		"silence":                sendParts(),
		"a pipe, and silence":    sendParts(nil),
		"half a message":         sendParts([]byte{1, 0, 0}),
		"garbage":                sendParts([]byte("GET / HTTP/1.1\r\nHost: seed\r\n\r\n")),
		"an endless message":     sendParts([]byte{1, 0xff, 0xff, 0xff, 0xff}),
		"a byte at a time":       sendBytewise(hello(wire.JoinHello{Version: wire.Version, Proof: make([]byte, 32)})),
		"a false proof":          sendParts(hello(wire.JoinHello{Version: wire.Version, Proof: make([]byte, 32)})),
		"no proof":               sendParts(hello(wire.JoinHello{Version: wire.Version})),
		"another version":        sendParts(hello(wire.JoinHello{Version: wire.Version + 1})),
		"a later message first":  sendParts(hello(wire.JoinReady{Epoch: 1})),
		"TCP to the same port":   tcpSilence,
		"TCP garbage":            tcpGarbage,
		"a pipe for each letter": manyPipes,
	}
}

func hello(m wire.JoinMessage) []byte {
	b, err := wire.AppendJoin(nil, m)
	if err != nil {
		panic(err)
	}
	return b
}

func garbagePackets(ctx context.Context, _ *quic.Endpoint, addr string) error {
	c, err := net.Dial("udp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	b := make([]byte, 1200)
	for ctx.Err() == nil {
		rand.Read(b)
		b[0] |= 0xc0 // a long header, as of the first packet of a connection
		c.Write(b)
		pause(ctx, 10*time.Millisecond)
	}
	return nil
}

// halfHandshake sends the first flight of a handshake and reads no answer.
func halfHandshake(ctx context.Context, _ *quic.Endpoint, addr string) error {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	end, err := quic.Listen(quic.Config{PacketConn: &sendOnlyConn{PacketConn: c}, Heartbeat: -1})
	if err != nil {
		return err
	}
	defer end.Close()
	_, err = end.Dial(ctx, addr, pki.Joining{}.Client(""))
	return err
}

// A sendOnlyConn drops all received packets.
type sendOnlyConn struct{ net.PacketConn }

func (d *sendOnlyConn) ReadFrom(p []byte) (int, net.Addr, error) {
	for {
		if n, from, err := d.PacketConn.ReadFrom(p); err != nil {
			return n, from, err
		}
	}
}

func otherProtocol(ctx context.Context, end *quic.Endpoint, addr string) error {
	_, err := end.Dial(ctx, addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h3"}, MinVersion: tls.VersionTLS13})
	return err
}

// sendParts makes a connection and sends each of the parts on its own pipe.
func sendParts(parts ...[]byte) badClient {
	return func(ctx context.Context, end *quic.Endpoint, addr string) error {
		c, err := end.Dial(ctx, addr, pki.Joining{}.Client(""))
		if err != nil {
			return err
		}
		defer c.Close()
		for _, part := range parts {
			p, err := c.OpenPipe(ctx)
			if err != nil {
				return err
			}
			if _, err := p.Write(part); err != nil {
				return err
			}
		}
		return untilEnded(ctx, c)
	}
}

func sendBytewise(message []byte) badClient {
	return func(ctx context.Context, end *quic.Endpoint, addr string) error {
		c, err := end.Dial(ctx, addr, pki.Joining{}.Client(""))
		if err != nil {
			return err
		}
		defer c.Close()
		p, err := c.OpenPipe(ctx)
		if err != nil {
			return err
		}
		for i := range message {
			if _, err := p.Write(message[i : i+1]); err != nil {
				return err
			}
			pause(ctx, 300*time.Millisecond)
		}
		return untilEnded(ctx, c)
	}
}

func manyPipes(ctx context.Context, end *quic.Endpoint, addr string) error {
	c, err := end.Dial(ctx, addr, pki.Joining{}.Client(""))
	if err != nil {
		return err
	}
	defer c.Close()
	for {
		p, err := c.OpenPipe(ctx)
		if err != nil {
			return err
		}
		if _, err := p.Write([]byte{0}); err != nil {
			return err
		}
	}
}

func tcpSilence(ctx context.Context, _ *quic.Endpoint, addr string) error {
	return sendTCP(ctx, addr, nil)
}

func tcpGarbage(ctx context.Context, _ *quic.Endpoint, addr string) error {
	return sendTCP(ctx, addr, make([]byte, 10_000))
}

func sendTCP(ctx context.Context, addr string, say []byte) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	c.Write(say)
	<-ctx.Done()
	return nil
}

// untilEnded waits until the connection or ctx has ended.
func untilEnded(ctx context.Context, c transport.Conn) error {
	select {
	case <-c.Done():
		return c.Err()
	case <-ctx.Done():
		return nil
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// runBadClients runs count bad clients of a kind against the seed, each again and again, until the test
// ends.
func runBadClients(t *testing.T, addr string, s badClient, count int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		all.Wait()
	})
	for range count {
		end, err := quic.Listen(quic.Config{Addr: "127.0.0.1:0", Heartbeat: -1, NoWatch: true})
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			defer end.Close()
			for ctx.Err() == nil {
				s(ctx, end, addr) // any outcome is fine
				pause(ctx, 200*time.Millisecond)
			}
		})
	}
}

// The world forms beside a bad client of each kind, and the seed logs the reason of the refusal.
func TestBadClient(t *testing.T) {
	t.Parallel()
	for name, s := range badClients() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			token := nexar.NewToken()
			log, lines := logTo(t, "seed")
			seed := startLocalSeed(t, 2, nexar.SeedConfig{Token: token, Log: log})
			runBadClients(t, seed.Addr(), s, 1)
			time.Sleep(50 * time.Millisecond)
			nodes, errs := joinAll(t, []nexar.Config{nodeConfig(seed, token), nodeConfig(seed, token)})
			mustBeNil(t, errs)
			mustBeNil(t, onEachNode(nodes, func(c *nexar.Comm) error { return c.Barrier(t.Context()) }))
			for what, text := range map[string]string{
				"garbage": "not a message of nexar", "an endless message": "not a message of nexar", "a false proof": "wrong cluster token",
				"no proof": "no cluster token", "a later message first": "the first message was",
				"another version": fmt.Sprintf("version %d of the nexar protocol", wire.Version+1),
			} {
				if what == name {
					waitFor(t, func() bool { return strings.Contains(lines.String(), text) })
				}
			}
		})
	}
}

// A hundred bad clients that stay connected, and others that reconnect, do not delay the formation of a
// world.
func TestManyBadClients(t *testing.T) {
	// The seed gives a client 5 seconds to prove the token. If it waited for such a client, every
	// world would take longer than that. Otherwise a world takes a fraction of a second, or more on
	// a busy machine; then the test forms another one.
	const limit, worlds = 4 * time.Second, 10
	for n := range worlds {
		if took := formAmongBadClients(t); took <= limit {
			return
		} else if n == worlds-1 {
			t.Errorf("each of %d worlds took more than %v", worlds, limit)
		}
	}
}

// formAmongBadClients forms a world of 4 at a seed with a hundred silent clients and returns the
// duration.
func formAmongBadClients(t *testing.T) time.Duration {
	t.Helper()
	token := nexar.NewToken()
	s := startLocalSeed(t, 4, nexar.SeedConfig{Token: token})
	stay := 0
	for name, kind := range badClients() {
		count := 3
		switch name {
		case "half a handshake", "silence", "a pipe, and silence", "half a message", "a byte at a time", "TCP to the same port":
			count = 20
			stay += count
		}
		runBadClients(t, s.Addr(), kind, count)
	}
	if stay < 100 {
		t.Fatalf("only %d bad clients stay connected, want at least 100", stay)
	}
	time.Sleep(500 * time.Millisecond)
	began := time.Now()
	cfg := nodeConfig(s, token)
	nodes, errs := joinAll(t, []nexar.Config{cfg, cfg, cfg, cfg})
	took := time.Since(began)
	mustBeNil(t, errs)
	t.Logf("beside %d bad clients the world of 4 took %v", stay, took)
	mustBeNil(t, onEachNode(nodes, func(c *nexar.Comm) error { return checkWorld(t.Context(), c, 3) }))
	return took
}

// A client with another protocol version gets a refusal that every version can read.
func TestOtherVersion(t *testing.T) {
	t.Parallel()
	s := startLocalSeed(t, 1, nexar.SeedConfig{Token: nexar.NewToken()})
	end, err := quic.Listen(quic.Config{Addr: "127.0.0.1:0", Heartbeat: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	c, err := end.Dial(t.Context(), s.Addr(), pki.Joining{}.Client(""))
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.OpenPipe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.Write(hello(wire.JoinHello{Version: 999}))
	in, err := c.AcceptPipe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m, err := wire.ReadJoin(in, wire.JoinBytesMax)
	r, ok := m.(wire.JoinRefusal)
	if err != nil || !ok || r.Code != wire.RefusedVersion || !strings.Contains(r.Text, "999") {
		t.Errorf("answer %v, %v, want a refusal because of version 999", m, err)
	}
	if _, err := end.Dial(t.Context(), s.Addr(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"nexar-join/999"}}); err == nil {
		t.Error("a client with another ALPN protocol was accepted")
	} else if errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("a client with another ALPN protocol got no answer: %v", err)
	}
}
