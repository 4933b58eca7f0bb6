package relay

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/relay/forward"
	"github.com/nexar-go/nexar/internal/relay/relaytest"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/transport"
)

// line is a chain of nodes.
func line(nodes int) relaytest.Graph {
	g := make(relaytest.Graph, nodes)
	for i := range nodes - 1 {
		g[i], g[i+1] = append(g[i], i+1), append(g[i+1], i)
	}
	return g
}

// millisecond is the latency of a link.
func millisecond(int, int) time.Duration { return time.Millisecond }

// A peer pauses for 5 s: all packets from it and to it arrive later. Its conns go on, while data flows and while none does.
func TestPausedPeer(t *testing.T) {
	const pause = 5 * time.Second
	for name, graph := range map[string]relaytest.Graph{"over relays": square(), "neighbor": {{2}, {}, {0}}} {
		for state, flows := range map[string]bool{"data flows": true, "idle": false} {
			t.Run(name+", "+state, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var mu sync.Mutex
					var until time.Time
					n := newNetworkOver(t, graph, medium{latency: func(from, to int) time.Duration {
						mu.Lock()
						defer mu.Unlock()
						if from == 2 || to == 2 {
							return max(time.Millisecond, time.Until(until))
						}
						return time.Millisecond
					}}, nil)
					a, b := n.connect(0, 2)
					pauses := func() {
						mu.Lock()
						until = time.Now().Add(pause)
						mu.Unlock()
					}
					began := time.Now()
					if !flows {
						pauses()
						time.Sleep(2 * pause)
						pauses = func() {}
					}
					data := payload(200_000)
					if got := n.transfer(a, b, data, pauses); !bytes.Equal(got, data) {
						t.Errorf("got %d bytes, want %d equal ones", len(got), len(data))
					}
					if took := time.Since(began); took < pause {
						t.Errorf("the transfer takes %v, less than the pause", took)
					}
					time.Sleep(3 * pause)
					for _, c := range []transport.Conn{a, b} {
						if err := c.Err(); err != nil {
							t.Errorf("a conn has ended: %v", err)
						}
					}
				})
			})
		}
	}
}

// Both ends of a conn, and nodes without one, answer questions as long as a path exists. The next dial takes the path of the answer.
func TestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var isHole sync.Map // by node
		n := newNetworkOver(t, square(), medium{latency: millisecond, pass: func(from, _ int, f forward.Frame) []forward.Frame {
			if _, is := isHole.Load(from); is {
				return nil
			}
			return []forward.Frame{f}
		}}, nil)
		asks := func(from, to int, want bool) {
			t.Helper()
			began := time.Now()
			got := n.endpoints[from].packets.Answers(t.Context(), &address{node: relaytest.ID(to)})
			if took := time.Since(began); got != want || took > answerTime {
				t.Errorf("node %d gets an answer of node %d: %v after %v, want %v", from, to, got, took, want)
			}
		}
		a, _ := n.connect(0, 2)
		asks(0, 2, true)
		asks(2, 0, true)
		asks(1, 3, true)
		asks(0, 1, true)
		isHole.Store(1, true)
		asks(0, 2, true)
		asks(2, 0, true)
		for _, ends := range [][2]int{{0, 2}, {2, 0}} {
			began := time.Now()
			n.connect(ends[0], ends[1])
			if took := time.Since(began); took > 100*time.Millisecond {
				t.Errorf("the dial takes %v after the answer", took)
			}
		}
		isHole.Store(3, true)
		asks(0, 2, false)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		began := time.Now()
		if n.endpoints[0].packets.Answers(ctx, &address{node: relaytest.ID(2)}) || time.Since(began) > 200*time.Millisecond {
			t.Error("a question does not end with its context")
		}
		isHole.Clear()
		a.Close()
		time.Sleep(2 * answerTime) // Conns that the holes have silenced ask, too.
		for i, e := range n.endpoints {
			e.packets.mu.Lock()
			if open := len(e.packets.questions); open > 0 {
				t.Errorf("node %d remembers %d questions", i, open)
			}
			e.packets.mu.Unlock()
		}
	})
}

// NodeGone ends the conns and the dials to a node at once, and no others.
func TestNodeGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetworkOver(t, relaytest.Ring(5), medium{latency: millisecond}, nil)
		a, _ := n.connect(0, 2)
		_, b := n.connect(2, 0)
		other, _ := n.connect(0, 3)
		n.mem.Kill(n.links[2].Addr())
		time.Sleep(100 * time.Millisecond)
		dialed := make(chan error, 1)
		go func() {
			_, err := n.endpoints[0].Dial(context.Background(), relaytest.ID(2).String(), "")
			dialed <- err
		}()
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		n.kill(2)
		for _, c := range []transport.Conn{a, b} {
			if <-c.Done(); !errors.Is(c.Err(), transport.ErrPeerGone) {
				t.Errorf("the conn ends with %v", c.Err())
			}
		}
		if err := <-dialed; !errors.Is(err, transport.ErrPeerGone) {
			t.Errorf("the dial ends with %v", err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("that takes %v", took)
		}
		time.Sleep(time.Minute)
		if err := other.Err(); err != nil {
			t.Errorf("the conn with another node ends with %v", err)
		}
	})
}

// Close tells the peers, also over relays, so that no conn has to become silent.
func TestCloseTellsPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetworkOver(t, relaytest.Ring(6), medium{latency: millisecond, bandwidth: func(from, to int) int {
			if from == 0 {
				return 100_000
			}
			return 0
		}}, nil)
		var ends []transport.Conn
		for i := 1; i < 6; i++ {
			_, b := n.connect(0, i)
			ends = append(ends, b)
		}
		began := time.Now()
		if err := n.endpoints[0].Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("Close takes %v", took)
		}
		for _, c := range ends {
			if <-c.Done(); !errors.Is(c.Err(), transport.ErrPeerClosed) {
				t.Errorf("a conn ends with %v, want %v", c.Err(), transport.ErrPeerClosed)
			}
		}
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("the last peer learns it after %v", took)
		}
		if _, err := n.endpoints[0].Dial(t.Context(), relaytest.ID(2).String(), ""); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("a dial after Close ends with %v", err)
		}
		n.endpoints[0].Close()
	})
}

// Flush waits until the packets of the node are written, the neighbor is gone, or its context ends.
func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate = 1000 // bytes a second
		n := newNetworkOver(t, line(3), medium{bandwidth: func(from, to int) int {
			if from == 0 {
				return rate
			}
			return 0
		}}, nil)
		e := n.endpoints[0]
		send := func(size int) {
			e.send(forward.Frame{Kind: forward.Packets, Source: relaytest.ID(0), Destination: relaytest.ID(2), Payload: forward.AppendPacket(nil, make([]byte, size))})
		}
		flush := func(limit time.Duration) time.Duration {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			began := time.Now()
			e.Flush(ctx)
			return time.Since(began)
		}
		if took := flush(time.Minute); took > 0 {
			t.Errorf("without packets Flush takes %v", took)
		}
		send(200)
		synctest.Wait()
		send(200) // It waits in the queue.
		if took := flush(time.Minute); took < 450*time.Millisecond || took > 550*time.Millisecond {
			t.Errorf("Flush takes %v for two packets", took)
		}
		time.Sleep(10 * time.Millisecond)
		if got := n.endpoints[2].Stats().Delivered; got != 2 {
			t.Errorf("%d packets have arrived after Flush, want 2", got)
		}
		send(10_000)
		if took := flush(time.Second); took != time.Second {
			t.Errorf("Flush takes %v, its context a second", took)
		}
		time.AfterFunc(time.Second, func() { n.kill(1) })
		if took := flush(time.Minute); took > 10*time.Second {
			t.Errorf("Flush takes %v without a neighbor", took)
		}
	})
}

// 5 % of the frames are lost on each link of a chain. The data arrives, over a few conns at most.
func TestLossOnEachHop(t *testing.T) {
	require.NoRace(t, "it adds no kind of goroutine")
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		rng, lost := rand.New(rand.NewPCG(3, 3)), 0
		n := newNetworkOver(t, line(5), medium{latency: millisecond, pass: func(_, _ int, f forward.Frame) []forward.Frame {
			mu.Lock()
			defer mu.Unlock()
			if rng.Float64() < 0.05 {
				lost++
				return nil
			}
			return []forward.Frame{f}
		}}, nil)
		f := newFlows(n).add(0, 4, 4<<20)
		if err := f.run(t.Context()); err != nil {
			t.Error(err)
		}
		t.Logf("4 MiB take %v over %d conns, %d frames are lost", f.took, f.dials, lost)
		if f.took > time.Minute || f.dials > 10 {
			t.Errorf("4 MiB take %v over %d conns, want at most a minute and 10", f.took, f.dials)
		}
	})
}

// A slow neighbor does not slow the others down: neither those of the sender, nor those of a relay, nor those that share a slow relay.
func TestSlowNeighbor(t *testing.T) {
	require.NoRace(t, "it adds no kind of goroutine")
	const slow, fast = 50_000, 5_000_000 // bytes a second
	for name, test := range map[string]struct {
		graph relaytest.Graph
		from  int
		link  [2]int // the slow one
		to    [2]int // over the slow link, and not
	}{
		"of the sender":             {relaytest.Graph{{1, 2}, {0}, {0}}, 0, [2]int{0, 1}, [2]int{1, 2}},
		"of a relay":                {relaytest.Graph{{1}, {0, 2, 3}, {1}, {1}}, 0, [2]int{1, 2}, [2]int{2, 3}},
		"of the sender, for relays": {relaytest.Graph{{1, 2}, {0, 3}, {0, 4}, {1}, {2}}, 0, [2]int{0, 1}, [2]int{3, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			took := func(beside bool) (took time.Duration) {
				synctest.Test(t, func(t *testing.T) {
					n := newNetworkOver(t, test.graph, medium{latency: millisecond, bandwidth: func(from, to int) int {
						if [2]int{from, to} == test.link {
							return slow
						}
						return fast
					}}, nil)
					a, b := n.connect(test.from, test.to[1])
					var others sync.WaitGroup
					if beside {
						c, d := n.connect(test.from, test.to[0])
						others.Go(func() { n.transfer(c, d, payload(1_000_000), func() {}) })
						time.Sleep(5 * time.Second)
					}
					began := time.Now()
					data := payload(2_000_000)
					if got := n.transfer(a, b, data, func() {}); !bytes.Equal(got, data) {
						t.Errorf("got %d bytes, want %d equal ones", len(got), len(data))
					}
					took = time.Since(began)
					others.Wait()
				})
				return took
			}
			alone, beside := took(false), took(true)
			t.Logf("alone %v, beside a transfer to a slow node %v", alone, beside)
			if beside > alone*3/2 {
				t.Errorf("a transfer takes %v, and %v beside one to a slow node", alone, beside)
			}
		})
	}
}
