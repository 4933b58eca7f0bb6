package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
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
	"github.com/nexar-go/nexar/internal/testlog"
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

// transfer sends data over a new pipe, calls during halfway, and returns the bytes that arrive.
func (n *network) transfer(a, b transport.Conn, data []byte, during func()) []byte {
	n.tb.Helper()
	s, r := n.pipe(a, b)
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
		for i, e := range n.endpoints {
			synctest.Wait()
			if held := e.Stats().Held; held != 0 && i != 1 {
				t.Errorf("node %d holds %d bytes at the end", i, held)
			}
		}
	})
}

// promptMax is less than the timeout of a frame without a change of the routes, 200 ms or more.
const promptMax = 100 * time.Millisecond

// A frame that is lost in a relay is sent again when the relay has died and the routes have changed, before its timeout.
func TestRoutesChangedSendsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var drops atomic.Bool
		var dropped atomic.Int32
		n := newNetwork(t, relaytest.Ring(6), func(i int, cfg *Config) {
			if i == 1 {
				cfg.Tamper = func(_ membership.NodeID, f forward.Frame) []forward.Frame {
					if drops.Load() {
						dropped.Add(1)
						return nil
					}
					return []forward.Frame{f}
				}
			}
		})
		a, b := n.connect(0, 2)
		s, r := n.pipe(a, b)
		want := []byte("message")
		send := func() {
			if _, err := s.Write(want); err != nil {
				t.Fatal(err)
			}
		}
		receive := func() {
			got := make([]byte, len(want))
			if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("got %q, %v, want %q", got, err, want)
			}
		}
		send()
		receive()
		time.Sleep(time.Second)
		drops.Store(true)
		start := time.Now()
		send()
		synctest.Wait()
		if dropped.Load() == 0 {
			t.Fatal("the relay has dropped no frame")
		}
		n.kill(1)
		receive()
		if took := time.Since(start); took > promptMax {
			t.Errorf("the message has arrived after %v, want at most %v", took, promptMax)
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

// refuse is a hostile relay with a link to node 0 of a network: it answers every handshake with a forged refusal.
func (n *network) refuse(i int, refused *atomic.Int32) {
	n.tb.Helper()
	ctx := context.Background()
	a, err := n.links[i].Dial(ctx, n.links[0].Addr(), "")
	if err != nil {
		n.tb.Fatal(err)
	}
	b, err := n.links[0].Accept(ctx)
	if err != nil {
		n.tb.Fatal(err)
	}
	s, reads := n.pipe(a, b)
	writes, r := n.pipe(b, a)
	if err := n.endpoints[0].Attach(relaytest.ID(i), writes, reads, func(error) {}); err != nil {
		n.tb.Fatal(err)
	}
	go func() {
		s.Write(forward.Credit{Class: 1, Bytes: forward.DefaultBuffer}.Append(nil))
		for {
			b := make([]byte, 1, forward.HeaderSize)
			if _, err := io.ReadFull(r, b); err != nil {
				return
			}
			size, _ := forward.Size(b[0])
			b = b[:size]
			if _, err := io.ReadFull(r, b[1:]); err != nil {
				return
			}
			f, payload, err := forward.ParseHeader(b)
			if err != nil { // It is credit.
				continue
			}
			io.CopyN(io.Discard, r, int64(payload))
			f.Kind, f.Source, f.Destination = forward.Abort, f.Destination, f.Source
			s.Write(f.AppendHeader(nil))
			refused.Add(1)
		}
	}()
}

// A dial takes another path after a refused handshake.
func TestDialAfterForgedRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		graph := relaytest.Graph{{1, 3}, {0, 2}, {1, 3}, {0, 2}}
		n := newNetwork(t, relaytest.Graph{{3}, {2}, {1, 3}, {0, 2}}, nil)
		n.mu.Lock()
		n.graph = graph // Node 0 takes node 1, the hostile one, for a neighbor of node 2.
		n.mu.Unlock()
		var refused atomic.Int32
		n.refuse(1, &refused)
		n.connect(0, 2)
		if refused.Load() == 0 {
			t.Error("the handshake has not met the hostile relay")
		}
	})
}

// Altered frames are logged with source and path, and the data arrives.
func TestAlteredFramesAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(testlog.Buffer)
		n := newNetwork(t, relaytest.Graph{{1}, {0, 2}, {1}}, func(i int, cfg *Config) {
			if i == 2 {
				cfg.Log = slog.New(slog.NewTextHandler(log, nil))
			}
		})
		a, b := n.connect(0, 2)
		relay := n.endpoints[1]
		data := payload(1 << 20)
		got := n.transfer(a, b, data, func() {
			// The relay forges a frame of node 0, with a free number.
			c := a.(*conn)
			c.mu.Lock()
			seq := c.session.Stats().Sent + 5
			c.mu.Unlock()
			relay.send(time.Now(), []forward.Frame{{
				Kind: forward.Data, Source: relaytest.ID(0), Destination: relaytest.ID(2), Session: c.key.session,
				Seq: seq, Payload: make([]byte, 100),
			}})
		})
		if !bytes.Equal(got, data) {
			t.Errorf("got %d bytes, want %d equal ones", len(got), len(data))
		}
		synctest.Wait()
		want := fmt.Sprintf("source=%v destination=%v from=%v seq=", relaytest.ID(0), relaytest.ID(2), relaytest.ID(1))
		if text := log.String(); strings.Count(text, want) != 1 || n.endpoints[2].Stats().Altered != 1 {
			t.Errorf("got the log %q and %+v, want one altered frame, with %q", text, n.endpoints[2].Stats(), want)
		}
	})
}

// A neighbor that violates the protocol loses its link.
func TestNeighborViolatesProtocol(t *testing.T) {
	frame := forward.Frame{Hops: 1, Kind: forward.Data, Source: relaytest.ID(0), Destination: relaytest.ID(0)}
	for name, b := range map[string][]byte{
		"unknown type": {77},
		"many hops": func() []byte {
			f := frame
			f.Hops = 60
			return f.AppendHeader(nil)
		}(),
		"credit beyond the buffer": forward.Credit{Class: 1, Bytes: 1 << 30}.Append(nil),
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

// Many handshakes that a neighbor begins and does not finish occupy a bounded number of conns.
func TestUnfinishedHandshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, relaytest.Graph{{1}, {0, 2}, {1}}, nil)
		for i := range 1000 {
			n.endpoints[1].send(time.Now(), []forward.Frame{{
				Kind: forward.Handshake, Source: relaytest.ID(0), Destination: relaytest.ID(2), Session: uint64(i), Payload: []byte{0, 1},
			}})
		}
		synctest.Wait()
		e := n.endpoints[2]
		e.mu.Lock()
		conns := len(e.conns)
		e.mu.Unlock()
		if conns == 0 || conns > handshakesMax {
			t.Errorf("%d conns, want 1 to %d", conns, handshakesMax)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		e.mu.Lock()
		conns, handshakes := len(e.conns), len(e.handshakes)
		e.mu.Unlock()
		if conns != 0 || handshakes != 0 {
			t.Errorf("%d conns and %d handshakes are left after a minute", conns, handshakes)
		}
		n.connect(0, 2)
	})
}
