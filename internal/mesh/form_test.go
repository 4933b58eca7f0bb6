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

// TestFormRealTime forms over links that jitter and lose, in real time.
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
				// Those that are dialed come last.
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

// TestFormNamesWhoIsMissing: whichever rank is unreachable, all others say so
// before the deadline.
func TestFormNamesWhoIsMissing(t *testing.T) {
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
						t.Errorf("rank %d gave up after %v of %v", rank, took, limit)
					}
				})
			}
			all.Wait()
		})
	}
}

// TestFormEndsWithItsContext: what a cancelled Form has made is gone, and the
// transport still serves.
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
			t.Errorf("it took %v to give up", took)
		}
		w.form()
		w.wantWhole()
	})
}

func TestFormWithoutSelf(t *testing.T) {
	inBubble(t, 2, func(w *world) {
		cfg := w.config(0)
		cfg.Self = idOf(7)
		if _, err := Form(w.Context(), cfg); err == nil {
			t.Error("a node that is not in the view has formed")
		}
		cfg = w.config(0)
		broken := errors.New("no loop")
		cfg.Loop = func(context.Context) (out, in transport.Conn, err error) { return nil, nil, broken }
		if _, err := Form(w.Context(), cfg); !errors.Is(err, broken) {
			t.Errorf("got %v, want %v", err, broken)
		}
	})
}

// TestLinkLostBeforeFormed: until all nodes have their links, one that is lost
// is made again, whichever side has lost it.
func TestLinkLostBeforeFormed(t *testing.T) {
	for _, ends := range [][2]int{{0, 2}, {2, 0}, {1, 2}} {
		inBubble(t, 3, func(w *world) {
			w.link()
			old := w.linkOf(ends[0], ends[1])
			old.Conn().Close()
			time.Sleep(time.Second)
			for i := range ends {
				if l := w.linkOf(ends[i], ends[1-i]); l == nil || l == old {
					t.Errorf("rank %d has no new link to rank %d", ends[i], ends[1-i])
				}
			}
			for rank := range w.meshes {
				w.open(rank)
			}
			w.wantWhole()
		})
	}
}

// TestFormedWithoutALink: a node that is gone before all have formed is named.
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

// TestSecondConnection: a rank that connects again before all have formed has
// given its first connection up. Afterwards it is refused.
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
		if w.linkOf(0, 2) == old {
			t.Error("a connection that was given up is still in use")
		}
		first.Close()
		time.Sleep(time.Second)
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

// TestStrangers: whoever must not connect is refused, and disturbs nobody,
// neither while the world forms nor later.
func TestStrangers(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		var strangers []transport.Transport
		for _, name := range []string{"nobody", idOf(9).String()} {
			s, err := w.network.Host(name).Listen(7000)
			if err != nil {
				w.Fatal(err)
			}
			strangers = append(strangers, named{s})
		}
		strangers = append(strangers, w.transports[1]) // A lower rank does not dial rank 2.
		connect := func() {
			for i, s := range strangers {
				for range 20 {
					c, err := s.Dial(w.Context(), w.host(2), w.host(2))
					if err != nil {
						w.Fatal(err)
					}
					time.AfterFunc(time.Second, func() {
						select {
						case <-c.Done():
						default:
							t.Errorf("stranger %d was not refused", i)
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

// TestLowerRankDoesNotDial: each link is made by the higher rank, so that two
// cannot make one for each other at the same time.
func TestLowerRankDoesNotDial(t *testing.T) {
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

// TestWrongAddresses: that someone else answers at one address of a node does
// not keep others from finding it at the next. Only if others answer at all of
// them there is nothing to wait for.
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
			t.Errorf("it took %v to find that out", took)
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
			t.Errorf("it took %v to find out that a loopback address leads nowhere", took)
		}
	})
}

// A starved transport has had no files for sockets.
type starved struct{ transport.Transport }

func (s starved) Capabilities() transport.Capabilities { return transport.Capabilities{FileUser: s} }

func (starved) OutOfFiles() error { return errors.New("too many open files") }

// TestOutOfFiles: whoever does not reach a node and has had no files for sockets says
// so, whether it is to dial or the other.
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
				t.Errorf("rank %d: got %v, want an UnreachableError that says it", rank, err)
			}
		})
	}
}
