package mesh

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport"
)

// cut breaks the link of two ranks, which both live.
func (w *world) cut(a, b int) { w.network.Cut(w.host(a), w.host(b)) }

// TestQuietLinksAreDialedAgain: links without frames in flight break, also those of watches. They are dialed
// again, no node counts as failed, and communicators go on.
func TestQuietLinksAreDialedAgain(t *testing.T) {
	onDemand(t, func(w *world) {
		if err := w.exchange(0, 4); err != nil {
			t.Fatal(err)
		}
		w.wantWhole()
		for round := range 3 {
			time.Sleep(300 * time.Millisecond) // between two heartbeats
			for rank := range demandNodes {
				for _, other := range w.linked(rank) {
					w.cut(rank, other)
				}
			}
			time.Sleep(300 * time.Millisecond)
			w.wantWhole()
			for _, p := range w.meshes[0].Paths(w.view) {
				if p.Rank == 4 && (p.Pending || p.Purpose != "message") {
					t.Errorf("round %d: the path to rank 4 is pending: %v; its purpose is %q", round, p.Pending, p.Purpose)
				}
			}
		}
		if err := w.exchange(4, 0); err != nil {
			t.Error(err)
		}
	})
}

// TestOneSideLosesItsConnection: the link of two nodes breaks, and one of them does not learn of it. It finds out when the other one dials
// again, no node counts as failed, and communicators go on.
func TestOneSideLosesItsConnection(t *testing.T) {
	for at := range 2 {
		t.Run(fmt.Sprint("rank ", at), func(t *testing.T) {
			onDemand(t, func(w *world) {
				for range 3 {
					time.Sleep(300 * time.Millisecond) // between two heartbeats
					w.network.CutAt(w.host(at), w.host(1-at))
					time.Sleep(100 * time.Millisecond)
					for _, rank := range []int{0, 1} {
						if w.linkOf(rank, 1-rank).IsPending() {
							t.Fatalf("the link of rank %d to rank %d was not dialed again", rank, 1-rank)
						}
					}
					w.wantWhole()
				}
			})
		})
	}
}

// TestHeartbeatsDoNotBreakLinks: a link that breaks with a heartbeat in flight has lost nothing.
func TestHeartbeatsDoNotBreakLinks(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.form()
		time.Sleep(10 * interval)
		for i := range 64 { // Heartbeats are sent at multiples of the interval, and answers one delay later.
			time.Sleep(untilMultiple(interval) + time.Duration(i%16)*delay/8)
			w.cut(0, 1)
		}
		time.Sleep(interval)
		w.wantWhole()
	})
}

// TestRevocationDuringRedial: both links of a rank break shortly before its neighbors repeat a revocation. It learns of the revocation when
// they have been dialed again.
func TestRevocationDuringRedial(t *testing.T) {
	onDemand(t, func(w *world) {
		w.comms[2].Cancel(context.Canceled)
		time.Sleep(2*delay - delay/5) // Rank 4 learns of it after two delays.
		w.cut(4, 5)
		w.cut(5, 6)
		time.Sleep(interval / 2)
		for _, rank := range []int{4, 6} {
			if l := w.linkOf(rank, 5); l.IsPending() {
				t.Fatalf("the link of rank %d to rank 5 was not dialed again", rank)
			}
		}
		for rank, c := range w.comms {
			if c.Err() == nil {
				t.Errorf("rank %d has not learned of the revocation", rank)
			}
		}
		w.wantNoFailures()
	})
}

// TestDeadNodeIsNotDialedForLong: the loss of a crashed node is reported after one refused dial.
func TestDeadNodeIsNotDialedForLong(t *testing.T) {
	inBubble(t, 5, func(w *world) {
		w.form()
		start := time.Now()
		w.network.Crash(w.host(3))
		for w.comms[0].Err() == nil {
			time.Sleep(delay / 5)
		}
		if took, most := time.Since(start), 4*delay; took > most {
			t.Errorf("it took %v, at most %v was needed", took, most)
		}
		wantPeerError(t, w.comms[0].Err(), 3, false)
	})
}

// A failingTransport is a transport with dials that fail as long as err is not nil, or one dial if once is set.
type failingTransport struct {
	transport.Transport
	err  *atomic.Pointer[net.OpError]
	once bool
}

func (t failingTransport) Dial(ctx context.Context, addr, peer string) (transport.Conn, error) {
	if err := t.err.Load(); err != nil {
		if t.once {
			t.err.CompareAndSwap(err, nil)
		}
		return nil, err
	}
	return t.Transport.Dial(ctx, addr, peer)
}

// TestNetworkErrorIsNoRefusal: a link breaks while the network has no route, or this host no files, for less than the time of dialing
// again, or the first dial breaks as well. No node counts as failed, and communicators go on.
func TestNetworkErrorIsNoRefusal(t *testing.T) {
	for _, number := range []syscall.Errno{syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EMFILE, syscall.ECONNRESET, syscall.ECONNABORTED} {
		t.Run(number.Error(), func(t *testing.T) {
			inBubble(t, demandNodes, func(w *world) {
				var failing atomic.Pointer[net.OpError]
				w.watches = 1
				w.paths = func(rank int) []Path {
					return []Path{{Transport: failingTransport{w.transports[rank], &failing, number == syscall.ECONNRESET}}}
				}
				w.form()
				time.Sleep(300 * time.Millisecond) // between two heartbeats
				failing.Store(&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", number)})
				w.cut(0, 1)
				time.Sleep(300 * time.Millisecond)
				failing.Store(nil)
				time.Sleep(interval)
				w.wantWhole()
			})
		})
	}
}

// TestRefusedIdentityIsNamed: a link breaks, and the peer's certificate is refused. The loss is reported with both reasons.
func TestRefusedIdentityIsNamed(t *testing.T) {
	var mu sync.Mutex
	var losses []string
	inBubble(t, demandNodes, func(w *world) {
		var failing atomic.Pointer[net.OpError]
		w.watches = 1
		w.paths = func(rank int) []Path {
			return []Path{{Transport: failingTransport{w.transports[rank], &failing, false}}}
		}
		w.lost = func(_ membership.NodeID, err error) {
			mu.Lock()
			defer mu.Unlock()
			losses = append(losses, err.Error())
		}
		w.form()
		time.Sleep(300 * time.Millisecond) // between two heartbeats
		failing.Store(&net.OpError{Op: "remote error", Net: "tcp", Err: fmt.Errorf("%w: the certificate expired", transport.ErrIdentity)})
		w.cut(0, 1)
		time.Sleep(interval)
		mu.Lock()
		defer mu.Unlock()
		for _, text := range losses {
			if !strings.Contains(text, "dialing it again failed") || !strings.Contains(text, "the certificate expired") {
				t.Errorf("the loss is reported as %q, want that the certificate expired", text)
			}
		}
		if len(losses) == 0 {
			t.Error("no loss is reported")
		}
	})
}

// TestUnreachableNodeIsLost: a link breaks, and its nodes cannot reach each other any more. Both report the
// loss after HeartbeatTimeout.
func TestUnreachableNodeIsLost(t *testing.T) {
	var mu sync.Mutex
	lost := make(map[string]error)
	inBubble(t, 3, func(w *world) {
		w.lost = func(id membership.NodeID, err error) {
			mu.Lock()
			defer mu.Unlock()
			lost[id.String()] = err
		}
		w.form()
		w.network.Partition(w.host(2))
		w.cut(0, 2)
		w.cut(1, 2)
		time.Sleep(timeout + 4*delay)
		mu.Lock()
		defer mu.Unlock()
		for rank := range 3 {
			if err := lost[w.host(rank)]; rank != 1 && (err == nil || !strings.Contains(err.Error(), "dialing it again failed")) {
				t.Errorf("the loss of rank %d is reported as %v", rank, err)
			}
		}
	})
}

// TestRandomCuts: connections break at random instants while ranks exchange numbered messages. Each rank receives all
// messages in order, no node counts as failed, and the communicator works.
func TestRandomCuts(t *testing.T) {
	const nodes, messages, trials = 4, 40, 40
	for seed := range uint64(trials) {
		inBubble(t, nodes, func(w *world) {
			w.watches = 1
			w.lost = func(id membership.NodeID, err error) { t.Errorf("seed %d: %s was reported lost: %v", seed, id, err) }
			w.form()
			rng := rand.New(rand.NewPCG(seed, 1))
			pause := time.Duration(1+rng.IntN(60)) * time.Millisecond
			var all sync.WaitGroup
			errs := make(chan error, 2*nodes*nodes)
			for from := range nodes {
				to := (from + 1 + rng.IntN(nodes-1)) % nodes
				all.Go(func() {
					for i := range byte(messages) {
						if err := sendOn(w.Context(), w.comms[from], []byte{i}, 1, to, int64(from)); err != nil {
							errs <- err
							return
						}
						time.Sleep(pause)
					}
				})
				all.Go(func() {
					for i := range byte(messages) {
						var buf [1]byte
						if _, err := recvOn(w.Context(), w.comms[to], buf[:], 1, from, int64(from)); err != nil {
							errs <- err
							return
						}
						if buf[0] != i {
							errs <- fmt.Errorf("rank %d received message %d of rank %d, want message %d", to, buf[0], from, i)
							return
						}
					}
				})
			}
			for range 1 + rng.IntN(4) {
				time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
				a := rng.IntN(nodes)
				w.cut(a, (a+1+rng.IntN(nodes-1))%nodes)
			}
			all.Wait()
			close(errs)
			for err := range errs {
				t.Errorf("seed %d: %v", seed, err)
			}
			w.wantWhole()
		})
	}
}

// TestIdleLinksAreClosed: unwatched links without traffic become pending again, and messages make them again.
func TestIdleLinksAreClosed(t *testing.T) {
	inBubble(t, demandNodes, func(w *world) {
		w.watches, w.idle = 1, time.Minute
		w.form()
		for range 3 {
			if err := w.exchange(0, 4); err != nil {
				t.Fatal(err)
			}
			if got := len(w.linked(0)); got != 3 {
				t.Fatalf("rank 0 has %d links, want 3", got)
			}
			time.Sleep(2 * time.Minute)
			if got := len(w.linked(0)); got != 2 {
				t.Fatalf("after two idle minutes rank 0 has %d links, want 2", got)
			}
		}
		w.wantWhole()
	})
}

// TestIdleWatchesStay: the links of watches stay connected, also if heartbeats are less frequent than the limit of idle links.
func TestIdleWatchesStay(t *testing.T) {
	inBubble(t, demandNodes, func(w *world) {
		w.watches, w.idle = 1, interval/5
		w.form()
		for range 60 {
			time.Sleep(interval / 20)
			if got, want := w.linked(0), []int{1, demandNodes - 1}; !slices.Equal(got, want) {
				t.Fatalf("rank 0 is linked to %v, want %v", got, want)
			}
		}
	})
}

// TestIdleLinkOfAWaitingRank: a link stays as long as a rank waits for its peer.
func TestIdleLinkOfAWaitingRank(t *testing.T) {
	inBubble(t, demandNodes, func(w *world) {
		w.watches, w.idle = 1, time.Minute
		w.form()
		if err := w.exchange(0, 4); err != nil {
			t.Fatal(err)
		}
		var waiting sync.WaitGroup
		waiting.Go(func() {
			buf := make([]byte, 8)
			if _, err := recvOn(w.Context(), w.comms[4], buf, 1, 0, 77); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(10 * time.Minute)
		if err := sendOn(w.Context(), w.comms[0], []byte("late"), 1, 4, 77); err != nil {
			t.Error(err)
		}
		waiting.Wait()
		w.wantWhole()
	})
}

// TestIdleRaces: ranks send at about the time at which both nodes close their idle link. No message is lost,
// repeated or out of order.
func TestIdleRaces(t *testing.T) {
	const messages = 60
	worlds := uint64(20)
	if testing.Short() {
		worlds = 5
	}
	for seed := range worlds {
		inBubble(t, demandNodes, func(w *world) {
			w.watches, w.idle = 1, 200*time.Millisecond
			w.form()
			var all sync.WaitGroup
			for k, pair := range [][2]int{{0, 4}, {4, 0}, {2, 6}, {6, 2}} {
				all.Go(func() {
					rng := rand.New(rand.NewPCG(seed, uint64(k)))
					for i := range byte(messages) {
						time.Sleep(200*time.Millisecond + time.Duration(rng.IntN(60))*time.Millisecond)
						if err := sendOn(w.Context(), w.comms[pair[0]], []byte{i}, 1, pair[1], 5); err != nil {
							t.Errorf("seed %d: message %d from rank %d: %v", seed, i, pair[0], err)
							return
						}
					}
				})
				all.Go(func() {
					// A rank that waited would keep the link.
					for i := range byte(messages) {
						for {
							if _, ok, err := w.comms[pair[1]].Messages().Peek(pair[0], 5); ok || err != nil {
								break
							}
							time.Sleep(3 * time.Millisecond)
						}
						var buf [1]byte
						if _, err := recvOn(w.Context(), w.comms[pair[1]], buf[:], 1, pair[0], 5); err != nil || buf[0] != i {
							t.Errorf("seed %d: rank %d received %d, %v; want message %d", seed, pair[1], buf[0], err, i)
							return
						}
					}
				})
			}
			all.Wait()
			w.wantWhole()
		})
	}
}

// TestNewcomerLinksItselfToFew: a newcomer on demand links itself to the nodes that may watch it or that it may
// watch, and is in the next view. It makes other links when they are needed.
func TestNewcomerLinksItselfToFew(t *testing.T) {
	const nodes, watches = 40, 2
	inBubble(t, nodes, func(w *world) {
		w.watches = watches
		w.form()
		all := w.newcomers(1)
		time.Sleep(interval)
		want := membership.NewcomerLinks(nodes, watches)
		if got := w.linked(nodes); !slices.Equal(got, want) || len(got) > nodes/2 {
			t.Errorf("the newcomer is linked to %v, want %v", got, want)
		}
		next := membership.View{Epoch: 2, Nodes: all.Nodes}
		slots := make([]int, nodes+1)
		for slot := range slots {
			slots[slot] = slot
		}
		for rank, err := range w.reduceIn(2, next, slots...) {
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
		time.Sleep(3 * interval)
		for _, rank := range append(membership.Watched(next, nodes, watches), membership.Watchers(next, nodes, watches)...) {
			if !slices.Contains(w.linked(nodes), rank) {
				t.Errorf("the newcomer is not linked to rank %d, which watches it or which it watches", rank)
			}
		}
		w.wantNoFailures()
	})
}

// TestLateEndOfProposal: a connection of a link has broken, and the link uses another one, when the goroutine of the first connection notes that
// it was made. The route is that of the connection in use.
func TestLateEndOfProposal(t *testing.T) {
	inBubble(t, 2, func(w *world) {
		w.form()
		m, l := w.meshes[0], w.linkOf(0, 1)
		broken, err := w.transports[0].Dial(w.Context(), w.host(1), w.host(1))
		if err != nil {
			t.Fatal(err)
		}
		before := m.peer(1).route
		m.proposals.end(&route{conn: broken}, 1, l, true)
		if m.peer(1).route != before {
			t.Error("the route is that of a connection that the link does not use")
		}
		broken.Close()
	})
}
