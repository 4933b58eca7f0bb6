package server

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/quic"
)

// TestOverQUIC has nodes join over QUIC, and then connect to each other, each by the socket
// with which it has joined.
func TestOverQUIC(t *testing.T) {
	const world = 4
	ca := newAuthority(t)
	joining, err := ca.Joining()
	if err != nil {
		t.Fatal(err)
	}
	tr, err := listenQUIC(t).Transport(joining)
	if err != nil {
		t.Fatal(err)
	}
	s := serveOver(t, tr, ca, nil, world, nil)
	var wg sync.WaitGroup
	for i := range world {
		wg.Go(func() {
			if err := nodeOverQUIC(t, s, i); err != nil {
				t.Errorf("node %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if err := s.Wait(t.Context()); err != nil {
		t.Error(err)
	}

	conn, err := listenQUIC(t).Dial(t.Context(), s.addr, pki.Joining{}.Client(""))
	if err != nil {
		t.Fatal(err)
	}
	req := s.request(9)
	req.Token = pki.NewToken()
	_, err = client.Join(t.Context(), conn, req)
	says(t, err, handshake.ErrToken, "wrong cluster token")
}

// TestUnusedConnection: a connection that its node closes before it asks to join, since another transport
// was faster, is no warning.
func TestUnusedConnection(t *testing.T) {
	ca := newAuthority(t)
	joining, err := ca.Joining()
	if err != nil {
		t.Fatal(err)
	}
	tr, err := listenQUIC(t).Transport(joining)
	if err != nil {
		t.Fatal(err)
	}
	s := serveOver(t, tr, ca, nil, 1, nil)
	endpoint := listenQUIC(t)
	conn, err := endpoint.Dial(t.Context(), s.addr, pki.Joining{}.Client(""))
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	s.log.wait(t, "level=DEBUG", "client did not ask to join", endpoint.Addr())
}

// TestCrowdOverQUIC has 256 nodes of one address join at once: at most a tenth of their
// attempts is refused, and all join.
func TestCrowdOverQUIC(t *testing.T) {
	world := 256
	if require.Race {
		world = 64 // It takes ten times as long.
	}
	ca := newAuthority(t)
	joining, err := ca.Joining()
	if err != nil {
		t.Fatal(err)
	}
	// The time of handshakes depends on the machine.
	cfg := quic.Config{Addr: "127.0.0.1:0", HandshakeTimeout: patience, Heartbeat: -1}
	tr, err := openQUIC(t, cfg).Transport(joining)
	if err != nil {
		t.Fatal(err)
	}
	s := serveOver(t, tr, ca, nil, world, func(c *Config) { c.Limits.Hello, c.Limits.Step = patience, patience })
	e := openQUIC(t, cfg)
	var refused atomic.Int64
	d := client.Seeds{Addrs: []string{s.addr}, Timeout: 2 * patience, Attempt: 2 * patience, Dial: func(ctx context.Context, addr string) (transport.Conn, error) {
		c, err := e.Dial(ctx, addr, pki.Joining{}.Client(""))
		if errors.Is(err, transport.ErrBusy) {
			refused.Add(1)
		}
		return c, err
	}}
	var wg sync.WaitGroup
	for i := range world {
		wg.Go(func() {
			req := s.request(i)
			req.Alternates = nil
			session, err := d.Join(t.Context(), req)
			if err != nil {
				t.Errorf("node %d: %v", i, err)
				return
			}
			t.Cleanup(func() { session.Close() })
		})
	}
	wg.Wait()
	if n := refused.Load(); n > int64(world/10) {
		t.Errorf("%d attempts of %d nodes were refused", n, world)
	}
}

func listenQUIC(t testing.TB) *quic.Endpoint {
	t.Helper()
	return openQUIC(t, quic.Config{Addr: "127.0.0.1:0"})
}

func openQUIC(t testing.TB, cfg quic.Config) *quic.Endpoint {
	t.Helper()
	e, err := quic.Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// nodeOverQUIC joins, connects to all others and waits until the world has formed.
func nodeOverQUIC(t *testing.T, s *testSeed, i int) error {
	e := listenQUIC(t)
	d := client.Seeds{Addrs: []string{s.addr}, Dial: func(ctx context.Context, addr string) (transport.Conn, error) {
		return e.Dial(ctx, addr, pki.Joining{}.Client(""))
	}}
	session, err := d.Join(t.Context(), s.request(i))
	if err != nil {
		return err
	}
	t.Cleanup(func() { session.Close() })
	if session.Observed != e.Addr() {
		t.Errorf("observed at %s, listens at %s", session.Observed, e.Addr())
	}
	node, err := e.Transport(session.Identity)
	if err != nil {
		return err
	}
	v, err := session.View(t.Context())
	if err != nil {
		return err
	}
	for _, n := range v.Nodes {
		if n.ID == session.ID {
			continue
		}
		conn, err := node.Dial(t.Context(), n.Addrs[0], n.ID.String())
		if err != nil {
			return unreachable(t, session, n.ID, err)
		}
		if conn.Peer() != n.ID.String() {
			t.Errorf("peer %s, want %v", conn.Peer(), n.ID)
		}
	}
	return session.Ready(t.Context())
}

// BenchmarkMesh connects 64 nodes of one process to each other: 2,016
// handshakes with certificates on both sides.
func BenchmarkMesh(b *testing.B) {
	const world = 64
	ca := newAuthority(b)
	for b.Loop() {
		b.StopTimer()
		nodes := make([]*quic.Transport, world)
		ids := make([]string, world)
		var ends []*quic.Endpoint
		for i := range nodes {
			e, err := quic.Listen(quic.Config{Addr: "127.0.0.1:0"})
			if err != nil {
				b.Fatal(err)
			}
			ends = append(ends, e)
			id := newIdentity(b, ca)
			ids[i] = id.ID().String()
			if nodes[i], err = e.Transport(id); err != nil {
				b.Fatal(err)
			}
		}
		b.StartTimer()
		var wg sync.WaitGroup
		for i, n := range nodes {
			wg.Go(func() {
				for j := range i {
					if _, err := n.Dial(b.Context(), ends[j].Addr(), ids[j]); err != nil {
						b.Error(err)
					}
				}
			})
			wg.Go(func() {
				for range world - 1 - i {
					if _, err := n.Accept(b.Context()); err != nil {
						b.Error(err)
					}
				}
			})
		}
		wg.Wait()
		b.StopTimer()
		for _, e := range ends {
			e.Close()
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/mesh")
}

func newIdentity(t testing.TB, ca *pki.Authority) *pki.Identity {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	csr, err := key.Request()
	if err != nil {
		t.Fatal(err)
	}
	cert, _, err := ca.Sign(csr, 0)
	if err != nil {
		t.Fatal(err)
	}
	id, err := pki.NewIdentity(key, cert, ca.Certificate())
	if err != nil {
		t.Fatal(err)
	}
	return id
}
