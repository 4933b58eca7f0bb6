package mesh

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/sim"
)

func TestForm(t *testing.T) {
	for _, n := range []int{1, 2, 3, 9} {
		inBubble(t, n, func(w *world) {
			w.form()
			for rank, m := range w.meshes {
				for peer := range m.peers {
					if l := w.linkOf(rank, peer); l == nil || l.Peer != peer {
						t.Errorf("%d ranks: rank %d has the wrong link to rank %d", n, rank, peer)
					}
				}
			}
			w.wantWhole()
		})
	}
}

// TestFormRealTime forms over links with jitter and loss, in real time.
func TestFormRealTime(t *testing.T) {
	w := newWorld(t, 8, sim.Config{Seed: 2, Delay: 200 * time.Microsecond, Jitter: time.Millisecond, Loss: 0.05})
	for rank := range w.transports {
		w.listen(rank)
	}
	w.form()
	w.wantWhole()
}

func TestFormWaitsForLateHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5
		w := newWorld(t, n, sim.Config{Seed: 1, Delay: delay})
		var all sync.WaitGroup
		for rank := range n {
			all.Go(func() {
				// Nodes that are dialed start last.
				time.Sleep(time.Duration(n-rank) * 2 * time.Second)
				w.listen(rank)
				m, err := Form(w.Context(), w.config(rank))
				if err != nil {
					t.Errorf("rank %d: %v", rank, err)
					return
				}
				w.meshes[rank] = m
			})
		}
		began := time.Now()
		all.Wait()
		if took := time.Since(began); took > n*2*time.Second+redialMax+time.Second {
			t.Errorf("it took %v", took)
		}
		if t.Failed() {
			w.FailNow()
		}
		for rank := range n {
			w.open(rank)
		}
		w.wantWhole()
	})
}

// TestFormNamesMissingRank: all ranks name the unreachable rank before the deadline.
func TestFormNamesMissingRank(t *testing.T) {
	const n, limit = 5, 20 * time.Second
	for missing := range n {
		inBubble(t, n, func(w *world) {
			w.network.PowerOff(w.host(missing))
			ctx, cancel := context.WithTimeout(w.Context(), limit)
			defer cancel()
			var all sync.WaitGroup
			for rank := range n {
				if rank == missing {
					continue
				}
				all.Go(func() {
					began := time.Now()
					m, err := Form(ctx, w.config(rank))
					if err == nil {
						m.Close(ctx)
					}
					e, ok := errors.AsType[*UnreachableError](err)
					if !ok || e.Rank != missing || e.Node != idOf(missing) || !slices.Equal(e.Addrs, []string{w.host(missing)}) {
						t.Errorf("rank %d: got %v, want an UnreachableError of rank %d", rank, err, missing)
					}
					if took := time.Since(began); took < limit/4 || took >= limit {
						t.Errorf("rank %d failed after %v of %v", rank, took, limit)
					}
				})
			}
			all.Wait()
		})
	}
}

// TestFormingNamesMissingRanks: while Form waits, its caller gets the ranks without a link.
func TestFormingNamesMissingRanks(t *testing.T) {
	const n, late = 4, 2
	inBubble(t, n, func(w *world) {
		var all sync.WaitGroup
		stopped := make([]bool, n)
		for rank := range n {
			all.Go(func() {
				if rank == late {
					time.Sleep(10 * time.Second)
				}
				cfg := w.config(rank)
				cfg.Forming = func(missing func() []int) func() {
					timer := time.AfterFunc(5*time.Second, func() {
						if got := missing(); !slices.Equal(got, []int{late}) {
							t.Errorf("rank %d misses ranks %v after 5 s, want rank %d", rank, got, late)
						}
					})
					return func() {
						if still := timer.Stop(); still != (rank == late) {
							t.Errorf("rank %d: Form ended before 5 s: %v", rank, still)
						}
						if got := missing(); len(got) > 0 {
							t.Errorf("rank %d misses ranks %v at the end, want none", rank, got)
						}
						stopped[rank] = true
					}
				}
				m, err := Form(w.Context(), cfg)
				if err != nil {
					t.Errorf("rank %d: %v", rank, err)
					return
				}
				w.meshes[rank] = m
			})
		}
		all.Wait()
		if !slices.Equal(stopped, []bool{true, true, true, true}) {
			t.Errorf("stopped: %v, want all", stopped)
		}
		if t.Failed() {
			w.FailNow()
		}
		for rank := range n {
			w.open(rank)
		}
		w.wantWhole()
	})
}

// TestFormEndsWithItsContext: a cancelled Form releases everything except for the transport, which
// can be used again.
func TestFormEndsWithItsContext(t *testing.T) {
	inBubble(t, 4, func(w *world) {
		// The last rank does not form at first.
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		var all sync.WaitGroup
		for rank := range 3 {
			all.Go(func() {
				if _, err := Form(ctx, w.config(rank)); err == nil {
					t.Errorf("rank %d has formed without rank 3", rank)
				}
			})
		}
		time.Sleep(time.Second)
		began := time.Now()
		cancel()
		all.Wait()
		if took := time.Since(began); took > time.Second {
			t.Errorf("Form failed after %v", took)
		}
		w.form()
		w.wantWhole()
	})
}

// TestFormFailsBeforeItsLinksEnd: the caller of Form learns of the failure first, and tells the seed. Then the others notice the ends of links.
func TestFormFailsBeforeItsLinksEnd(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.network.PowerOff(w.host(2)) // The others wait for it.
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		var told, lost time.Time
		w.lostBy = func(_ int, id membership.NodeID) {
			if id == idOf(1) {
				lost = time.Now()
			}
		}
		var all sync.WaitGroup
		all.Go(func() {
			cfg := w.config(1)
			limited, stop := context.WithTimeout(w.Context(), 2*time.Second)
			defer stop()
			cfg.Failing = func(err error) {
				if _, ok := errors.AsType[*UnreachableError](err); !ok {
					t.Errorf("Form fails with %v, want an UnreachableError", err)
				}
				time.Sleep(time.Minute)
				told = time.Now()
			}
			if _, err := Form(limited, cfg); err == nil {
				t.Error("rank 1 has formed without rank 2")
			}
		})
		all.Go(func() { Form(ctx, w.config(0)) })
		time.Sleep(2 * time.Minute)
		cancel()
		all.Wait()
		if told.IsZero() || lost.Before(told) {
			t.Errorf("rank 1 has told why at %v, and rank 0 has lost it at %v, want that before", told, lost)
		}
	})
}

func TestFormWithoutSelf(t *testing.T) {
	inBubble(t, 2, func(w *world) {
		cfg := w.config(0)
		cfg.Self = idOf(7)
		if _, err := Form(w.Context(), cfg); err == nil {
			t.Error("Form of a node that is not in the view has succeeded")
		}
		cfg = w.config(0)
		broken := errors.New("no loop")
		cfg.Loop = func(context.Context) (out, in transport.Conn, err error) { return nil, nil, broken }
		if _, err := Form(w.Context(), cfg); !errors.Is(err, broken) {
			t.Errorf("got %v, want %v", err, broken)
		}
	})
}

// TestLinkLostBeforeFormed: a link that breaks before Formed gets another connection, whichever side has
// lost the first one.
func TestLinkLostBeforeFormed(t *testing.T) {
	for _, ends := range [][2]int{{0, 2}, {2, 0}, {1, 2}} {
		inBubble(t, 3, func(w *world) {
			w.link()
			old := w.linkOf(ends[0], ends[1])
			old.Conn().Close()
			time.Sleep(time.Second)
			for i := range ends {
				if l := w.linkOf(ends[i], ends[1-i]); l == nil || l.IsPending() || l.Connections() != 2 {
					t.Errorf("rank %d has no new connection to rank %d", ends[i], ends[1-i])
				}
			}
			for rank := range w.meshes {
				w.open(rank)
			}
			w.wantWhole()
		})
	}
}

// TestFormedWithoutALink: Formed names a node that has died before.
func TestFormedWithoutALink(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.link()
		w.network.Crash(w.host(1))
		time.Sleep(time.Second)
		for _, rank := range []int{0, 2} {
			err := w.meshes[rank].Formed()
			if e, ok := errors.AsType[*UnreachableError](err); !ok || e.Rank != 1 {
				t.Errorf("rank %d: got %v, want an UnreachableError of rank 1", rank, err)
			}
		}
	})
}

// TestLeftBeforeFormed: a node that knows that the world has formed leaves before the others know. They form it, and their first operation names
// the node.
func TestLeftBeforeFormed(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.link()
		w.open(1)
		if err := w.meshes[1].Close(w.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * delay)
		w.open(0)
		w.open(2)
		errs := w.reduce(0, 2)
		for _, rank := range []int{0, 2} {
			wantPeerError(t, errs[rank], 1, true)
		}
		w.wantNoFailures()
	})
}

// TestFormedWhileALinkIsDialed: a connection has broken since Form, and the link is dialed again. No node is missing.
func TestFormedWhileALinkIsDialed(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.link()
		w.network.Cut(w.host(0), w.host(1))
		synctest.Wait()
		if l := w.linkOf(0, 1); !l.IsPending() {
			t.Fatal("the connection has not broken")
		}
		for rank := range w.meshes {
			w.open(rank)
		}
		w.wantWhole()
	})
}

// TestSecondConnection: a second connection of a rank is refused, before and after Formed. The link
// stays.
func TestSecondConnection(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.link()
		again := func() transport.Conn {
			c, err := w.transports[2].Dial(w.Context(), w.host(0), w.host(0))
			if err != nil {
				w.Fatal(err)
			}
			if s, err := c.OpenPipe(w.Context()); err == nil {
				s.Write(wire.Preamble{Lane: wire.Control}.Append(nil))
			}
			time.Sleep(time.Second)
			return c
		}
		old := w.linkOf(0, 2)
		first := again()
		select {
		case <-first.Done():
		default:
			t.Error("a second connection is kept")
		}
		if l := w.linkOf(0, 2); l != old || l.IsPending() {
			t.Error("the first connection is not in use")
		}
		for rank := range w.meshes {
			w.open(rank)
		}
		w.wantWhole()
		second := again()
		select {
		case <-second.Done():
		default:
			t.Error("a second connection is kept")
		}
		w.wantWhole()
	})
}

// TestUnexpectedPeers: connections of unexpected peers are refused, while the world forms and later,
// and do not disturb other nodes.
func TestUnexpectedPeers(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		var peers []transport.Transport
		for _, name := range []string{"nobody", idOf(9).String()} {
			s, err := w.network.Host(name).Listen(7000)
			if err != nil {
				w.Fatal(err)
			}
			peers = append(peers, named{s})
		}
		peers = append(peers, w.transports[1]) // A lower rank does not dial rank 2.
		connect := func() {
			for i, s := range peers {
				for range 20 {
					c, err := s.Dial(w.Context(), w.host(2), w.host(2))
					if err != nil {
						w.Fatal(err)
					}
					time.AfterFunc(time.Second, func() {
						select {
						case <-c.Done():
						default:
							t.Errorf("unexpected peer %d was not refused", i)
						}
					})
				}
			}
		}
		var forming sync.WaitGroup
		forming.Go(w.form)
		connect()
		forming.Wait()
		time.Sleep(2 * time.Second)
		w.wantWhole()
		connect()
		time.Sleep(2 * time.Second)
		w.wantWhole()
	})
}

// TestConnectionOfLowerRank: the higher rank dials, so that no two nodes dial each other. A
// connection of a lower rank is refused.
func TestConnectionOfLowerRank(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.link()
		before := w.linkOf(2, 1)
		c, err := w.transports[1].Dial(w.Context(), w.host(2), w.host(2))
		if err != nil {
			w.Fatal(err)
		}
		time.Sleep(time.Second)
		select {
		case <-c.Done():
		default:
			t.Error("the connection of a lower rank is kept")
		}
		if w.linkOf(2, 1) != before {
			t.Error("the connection of a lower rank has replaced a link")
		}
	})
}

// TestWrongAddresses: if another node answers at one address of a node, the next address is tried.
// If other nodes answer at all addresses, Form fails immediately.
func TestWrongAddresses(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.view.Nodes[0].Addrs = []string{w.host(2), w.host(0)}
		w.transports[0].Close()
		var all sync.WaitGroup
		form := func(rank int) {
			m, err := Form(w.Context(), w.config(rank))
			if err != nil {
				w.Errorf("rank %d: %v", rank, err)
			}
			w.meshes[rank] = m
		}
		all.Go(func() { form(1) })
		all.Go(func() { form(2) })
		time.Sleep(time.Second)
		w.listen(0)
		form(0)
		all.Wait()
	})
	inBubble(t, 3, func(w *world) {
		w.view.Nodes[0].Addrs = []string{w.host(2)}
		began := time.Now()
		_, err := Form(w.Context(), w.config(1))
		if e, ok := errors.AsType[*UnreachableError](err); !ok || e.Rank != 0 || !errors.Is(err, transport.ErrIdentity) {
			t.Errorf("got %v, want an UnreachableError of rank 0 because of its identity", err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("Form took %v", took)
		}
	})
	inBubble(t, 2, func(w *world) {
		w.view.Nodes[0] = membership.Node{ID: idOf(0), Addrs: []string{"127.0.0.1:7000"}, Host: "elsewhere"}
		began := time.Now()
		_, err := Form(w.Context(), w.config(1))
		if e, ok := errors.AsType[*UnreachableError](err); !ok || e.Rank != 0 || len(e.Addrs) != 1 {
			t.Errorf("got %v, want an UnreachableError of rank 0 that names its address", err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("Form took %v with a loopback address of another host", took)
		}
	})
}

// A starved transport has run out of file descriptors.
type starved struct{ transport.Transport }

func (s starved) Capabilities() transport.Capabilities { return transport.Capabilities{FileUser: s} }

func (starved) OutOfFiles() error { return errors.New("too many open files") }

// TestOutOfFiles: the error of a node that misses a link mentions that it has run out of file
// descriptors, whichever side dials.
func TestOutOfFiles(t *testing.T) {
	for rank := range 2 {
		inBubble(t, 2, func(w *world) {
			cfg := w.config(rank)
			for i := range cfg.Paths {
				cfg.Paths[i].Transport = starved{cfg.Paths[i].Transport}
			}
			ctx, cancel := context.WithTimeout(w.Context(), time.Second)
			defer cancel()
			_, err := Form(ctx, cfg)
			if e, ok := errors.AsType[*UnreachableError](err); !ok || !strings.HasSuffix(e.Error(), "(too many open files)") {
				t.Errorf("rank %d: got %v, want an UnreachableError that mentions file descriptors", rank, err)
			}
		})
	}
}
