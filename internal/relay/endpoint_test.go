package relay

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/relay/forward"
	"github.com/nexar-go/nexar/internal/relay/relaytest"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/transporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// relayed is a cluster of n endpoints that are no neighbors: each has links to two relays only.
func relayed(tb testing.TB, n int) transporttest.Cluster {
	graph := make(relaytest.Graph, n+2)
	for i := range n {
		for _, relay := range []int{n, n + 1} {
			graph[i] = append(graph[i], relay)
			graph[relay] = append(graph[relay], i)
		}
	}
	net := newNetwork(tb, graph, nil)
	c := transporttest.Cluster{Kill: net.kill}
	for _, e := range net.endpoints[:n] {
		c.Transports = append(c.Transports, e)
	}
	return c
}

// Conns through relays keep the contract of transports, in fake time.
func TestConformance(t *testing.T) { transporttest.RunInBubble(t, relayed) }

// The same in real time, where the scheduler orders events.
func TestConformanceInRealTime(t *testing.T) {
	if !testing.Short() { // TestConformance runs the same code.
		transporttest.Run(t, relayed)
	}
}

func BenchmarkRelayed(b *testing.B) { transporttest.Bench(b, relayed) }

// connect returns both ends of a conn.
func (n *network) connect(from, to int) (a, b transport.Conn) {
	n.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	a, err := n.endpoints[from].Dial(ctx, relaytest.ID(to).String(), "")
	if err != nil {
		n.tb.Fatal(err)
	}
	if b, err = n.endpoints[to].Accept(ctx); err != nil {
		n.tb.Fatal(err)
	}
	return a, b
}

// stream returns a pipe of a conn over relays. It arrives with its first byte.
func (n *network) stream(a, b transport.Conn) (transport.Sender, transport.Receiver) {
	n.tb.Helper()
	s, err := a.OpenPipe(context.Background())
	if err != nil {
		n.tb.Fatal(err)
	}
	if _, err := s.Write([]byte{1}); err != nil {
		n.tb.Fatal(err)
	}
	r, err := b.AcceptPipe(context.Background())
	if err != nil {
		n.tb.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); err != nil {
		n.tb.Fatal(err)
	}
	return s, r
}

// transfer sends data over a new pipe, calls during halfway, and returns the bytes that arrive.
func (n *network) transfer(a, b transport.Conn, data []byte, during func()) []byte {
	n.tb.Helper()
	s, err := a.OpenPipe(context.Background())
	if err != nil {
		n.tb.Fatal(err)
	}
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() {
		if _, err := s.Write(data[:len(data)/2]); err != nil {
			n.tb.Error(err)
		}
		during()
		if _, err := s.Write(data[len(data)/2:]); err != nil {
			n.tb.Error(err)
		}
		s.Close()
	})
	r, err := b.AcceptPipe(context.Background()) // A pipe arrives with its first byte.
	if err != nil {
		n.tb.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err != nil {
		n.tb.Error(err)
	}
	return got
}

func payload(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i>>8) ^ byte(i*7)
	}
	return b
}

// A relay dies during a transfer, which continues over another path and loses or repeats nothing.
func TestRelayDies(t *testing.T) {
	require.NoRace(t, "it repeats other tests in many topologies and orders")
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, relaytest.Ring(6), nil)
		a, b := n.connect(0, 2)
		data := payload(4 << 20)
		got := n.transfer(a, b, data, func() { n.kill(1) })
		if !bytes.Equal(got, data) {
			t.Errorf("got %d bytes, want %d equal ones", len(got), len(data))
		}
		if forwarded := n.endpoints[4].Stats().Forwarded; forwarded == 0 {
			t.Error("no frame took the other way round the ring")
		}
	})
}

// Neighbors are dialed like other nodes, and a conn to a dead or unknown node fails with the reason.
func TestDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, relaytest.Ring(5), nil)
		a, b := n.connect(0, 1)
		if got := n.transfer(a, b, payload(100_000), func() {}); len(got) != 100_000 {
			t.Errorf("got %d bytes from a neighbor", len(got))
		}
		n.kill(2)
		for addr, want := range map[string]string{
			relaytest.ID(0).String(): "it is this node",
			relaytest.ID(2).String(): "no route",
			"node 2":                 "must be 32",
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			_, err := n.endpoints[0].Dial(ctx, addr, "")
			cancel()
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), addr) {
				t.Errorf("dial %s: got %v, want %q", addr, err, want)
			}
		}
	})
}

// TestDialAfterClose: dials of an endpoint that closes, or has closed, end at the first handshake.
func TestDialAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var handshakes atomic.Int32
		n := newNetworkOver(t, relaytest.Ring(4), medium{pass: func(int, int, forward.Frame) []forward.Frame { return nil }}, func(i int, cfg *Config) {
			if client := cfg.Client; i == 0 {
				cfg.Client = func(peer string) *tls.Config {
					handshakes.Add(1)
					return client(peer)
				}
			}
		})
		time.AfterFunc(time.Second, func() { n.endpoints[0].Close() })
		for range 2 {
			handshakes.Store(0)
			if _, err := n.endpoints[0].Dial(t.Context(), relaytest.ID(2).String(), ""); !errors.Is(err, transport.ErrClosed) {
				t.Errorf("Dial: %v, want %v", err, transport.ErrClosed)
			}
			if got := handshakes.Load(); got > 1 {
				t.Errorf("%d handshakes, want 1", got)
			}
		}
	})
}

// nowhere are the routes of a node that knows no way.
type nowhere struct{}

func (nowhere) NextHops(_ membership.NodeID, _ int, hops []membership.NodeID) []membership.NodeID {
	return hops
}

// A relay that drops all frames does not prevent a dial.
func TestDialAvoidsBlackHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, relaytest.Ring(4), func(i int, cfg *Config) {
			if i == 1 {
				cfg.Routes = nowhere{} // It drops every frame that it would have to relay.
			}
		})
		for range 3 {
			n.connect(0, 2)
		}
		if s := n.endpoints[1].Stats(); s.Dropped == 0 || s.Forwarded > 0 {
			t.Errorf("node 1 has dropped %d frames and forwarded %d", s.Dropped, s.Forwarded)
		}
	})
}

// A neighbor that violates the protocol loses its link.
func TestNeighborViolatesProtocol(t *testing.T) {
	frame := forward.Frame{Hops: 1, Kind: forward.Packets, Source: relaytest.ID(0), Destination: relaytest.ID(0)}
	for name, b := range map[string][]byte{
		"unknown kind": make([]byte, forward.HeaderSize),
		"many hops": func() []byte {
			f := frame
			f.Hops = 60
			return f.AppendHeader(nil)
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t, make(relaytest.Graph, 2), nil)
				a, err := n.links[1].Dial(t.Context(), n.links[0].Addr(), "")
				if err != nil {
					t.Fatal(err)
				}
				c, err := n.links[0].Accept(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				s, r := n.pipe(a, c)
				back, drain := n.pipe(c, a)
				reasons := make(chan error, 1)
				if err := n.endpoints[0].Attach(relaytest.ID(1), back, r, func(err error) { reasons <- err }); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Write(b); err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, drain); err != nil && !errors.Is(err, transport.ErrPeerClosed) {
					t.Errorf("the link ends with %v", err)
				}
				if err := <-reasons; !errors.Is(err, errViolation) {
					t.Errorf("the reason is %v, want %v", err, errViolation)
				}
			})
		})
	}
}
