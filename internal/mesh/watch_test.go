package mesh

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/transport"
)

// TestIdleWorldStaysUp: no link fails during an hour without operations.
func TestIdleWorldStaysUp(t *testing.T) {
	passed := time.Hour
	if testing.Short() {
		passed = 5 * time.Minute
	}
	inBubble(t, 9, func(w *world) {
		w.form()
		time.Sleep(passed)
		for rank, m := range w.meshes {
			for _, peer := range membership.Watched(w.view, rank, membership.WatchersDefault) {
				if heard := m.peers[peer].link.Heard(); heard < uint64(passed/interval/3) {
					t.Errorf("rank %d has heard %d frames of rank %d", rank, heard, peer)
				}
			}
		}
		w.wantWhole()
	})
}

// TestWatchTraffic: the traffic of a node in an idle world does not grow with the world. The node
// hears a beat of each peer that it watches once in two intervals, and nothing else.
func TestWatchTraffic(t *testing.T) {
	require.NoRace(t, "hours of fake time are millions of timers, after which the detector has crashed")
	for _, n := range []int{2, 7, 8, 16, 24} {
		inBubble(t, n, func(w *world) {
			w.form()
			time.Sleep(time.Minute)
			before := w.heard()
			const passed = 10 * time.Minute
			time.Sleep(passed)
			k := min(n-1, membership.WatchersDefault)
			for rank, now := range w.heard() {
				frames, peers := uint64(0), 0
				for peer := range now {
					got := now[peer] - before[rank][peer]
					frames += got
					if got > 0 {
						peers++
					}
				}
				beats := uint64(passed / interval / beatIntervals)
				if least, most := uint64(k)*(beats-1), uint64(k)*(beats+1); frames < least || frames > most || peers != k {
					t.Errorf("%d nodes: rank %d has heard %d frames of %d peers, want %d to %d of %d", n, rank, frames, peers, least, most, k)
				}
			}
		})
	}
}

// TestWatchTicks: all nodes wake up at the same times, the multiples of the interval: between these no
// frame arrives.
func TestWatchTicks(t *testing.T) {
	inBubble(t, 9, func(w *world) {
		w.form()
		time.Sleep(time.Minute)
		time.Sleep(time.Until(time.Now().Truncate(interval).Add(interval + interval/4)))
		for range 20 {
			before := w.heard()
			time.Sleep(interval / 2)
			if now := w.heard(); !reflect.DeepEqual(now, before) {
				t.Fatalf("frames have arrived between two ticks: %v, %v before", now, before)
			}
			time.Sleep(interval / 2)
		}
	})
}

// TestShortTimeout: a timeout that is hardly longer than the interval fails no link of a living peer.
func TestShortTimeout(t *testing.T) {
	for _, of := range []float64{1.3, 2, 2.5, 3.1, 4} {
		inBubble(t, 4, func(w *world) {
			w.form()
			m := w.meshes[0]
			v := newMonitor(m, time.Now())
			v.timeout = time.Duration(of * float64(interval))
			v.breaks = func(*link.Link) bool { return false }
			for range 100 {
				time.Sleep(interval)
				v.check(v.duties(true).watched, time.Now())
			}
			w.wantWhole()
		})
	}
}

// TestUnknownWatcher: a watcher pings a peer that sends no beats to it, because the views of both differ.
func TestUnknownWatcher(t *testing.T) {
	inBubble(t, 2, func(w *world) {
		w.form()
		m := w.meshes[1]
		m.mu.Lock()
		m.monitor.slots = &watchSlots{watched: m.monitor.slotsLocked().watched} // Rank 1 takes rank 0 for a node that does not watch it.
		m.mu.Unlock()
		before := w.heard()[0][1]
		const passed = 10 * time.Minute
		time.Sleep(passed)
		if got := w.heard()[0][1] - before; got < uint64(passed/interval/(pingIntervals+1)) {
			t.Errorf("rank 0 has heard %d frames of rank 1 in %v", got, passed)
		}
		w.wantWhole()
	})
}

// heard returns the number of frames that each rank has received from each other rank.
func (w *world) heard() (frames [][]uint64) {
	for rank := range w.meshes {
		of := make([]uint64, len(w.meshes))
		for peer := range of {
			if peer != rank {
				of[peer] = w.linkOf(rank, peer).Heard()
			}
		}
		frames = append(frames, of)
	}
	return frames
}

// TestShortSilence: silence of the network for an interval less than the timeout is no failure.
func TestShortSilence(t *testing.T) {
	inBubble(t, 9, func(w *world) {
		w.form()
		for range 10 {
			time.Sleep(20 * time.Second)
			w.network.Partition(w.host(4))
			time.Sleep(timeout - interval)
			w.network.Heal()
		}
		w.wantWhole()
	})
}

// TestNoHeartbeats: with an interval of 0 no peer is watched.
func TestNoHeartbeats(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.interval = 0
		w.form()
		w.network.PowerOff(w.host(1))
		time.Sleep(time.Hour)
		if got := w.notes[0].all(); len(got) > 0 {
			t.Errorf("failed nodes %v", got)
		}
	})
}

// TestStoppedNode: after a long time without a check, a node gives its peers the whole timeout
// again.
func TestStoppedNode(t *testing.T) {
	inBubble(t, 4, func(w *world) {
		w.form()
		m := w.meshes[0]
		// Rank 0 hears nothing from now on. The test checks in place of its watch, with
		// times of its own, so that the watch has no time to notice.
		w.network.Partition(w.host(0))
		now := time.Now()
		v := newMonitor(m, now)
		check := func(after time.Duration) {
			now = now.Add(after)
			v.check(v.duties(true).watched, now)
			time.Sleep(time.Millisecond) // for the handler of the end of a link
		}
		for range 3 {
			check(time.Hour)
			for range int(silence/interval) - 1 {
				check(interval)
			}
			if got := w.notes[0].all(); len(got) > 0 {
				w.Fatalf("failed nodes %v of a node that was stopped for an hour", got)
			}
		}
		check(interval)
		if got := w.notes[0].all(); !slices.Equal(got, []int{1, 2, 3}) {
			t.Errorf("failed nodes %v, want all others", got)
		}
	})
}

// TestSilenceOverViews: a silent peer that is watched in every other view only fails when it was watched for the whole timeout, and a living one, which is
// idle and does not watch this node, never does.
func TestSilenceOverViews(t *testing.T) {
	for _, lives := range []bool{false, true} {
		inBubble(t, 2, func(w *world) {
			w.interval = 0 // No node sends beats.
			w.form()
			m := w.meshes[0]
			if !lives {
				w.network.Partition(w.host(0))
				time.Sleep(10 * delay) // Nothing is in flight.
			}
			v := newMonitor(m, time.Now())
			v.interval, v.timeout = interval, silence
			l := w.linkOf(0, 1)
			passed := time.Duration(0)
			for watched := true; passed < 10*silence && len(w.notes[0].all()) == 0; watched = !watched {
				if watched {
					v.check([]*link.Link{l}, time.Now())
				} else {
					v.check(nil, time.Now())
				}
				time.Sleep(interval)
				passed += interval
			}
			if want := 2*silence + interval; !lives && passed != want {
				t.Errorf("the link fails after %v, want %v", passed, want)
			}
			if lives {
				w.wantWhole()
			}
		})
	}
}

// TestPatience: with late ticks, a silent peer has up to twice the timeout; when ticks are in time again, it has
// the timeout alone.
func TestPatience(t *testing.T) {
	v := monitor{interval: interval, timeout: timeout}
	inTime := interval + interval/4
	for _, step := range []struct{ gap, want time.Duration }{
		{interval, timeout},
		{inTime, timeout},
		{inTime + interval/2, timeout + 2*interval},
		{inTime, timeout + 3*interval/2},
		{inTime + timeout, 2 * timeout},
	} {
		if got := v.patience(step.gap); got != step.want {
			t.Errorf("%v after a check the patience is %v, want %v", step.gap, got, step.want)
		}
	}
	for range 100 {
		v.patience(interval)
	}
	if got := v.patience(interval); got != timeout {
		t.Errorf("the patience is %v, want %v: no tick has been late for a long time", got, timeout)
	}
}

// TestStarvedPeer: a silent peer of this host is late if its process gets processor time, and has more time than a peer
// with a stopped process, but not for ever.
func TestStarvedPeer(t *testing.T) {
	for name, test := range map[string]struct {
		runs, want time.Duration // the process runs for so long, and the link fails after a silence of want
	}{
		"it has stopped":      {0, silence},
		"it stops at once":    {2 * interval, silence},
		"it runs for a while": {2 * timeout, 2*timeout + 3*interval},
		"it runs on":          {time.Hour, starvedMax * silence},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 2, func(w *world) {
				w.form()
				m := w.meshes[0]
				w.network.Partition(w.host(0))
				time.Sleep(10 * delay) // Nothing is in flight.
				began := time.Now()
				now := began
				v := newMonitor(m, now)
				v.processTime = func(*link.Link) (time.Duration, bool) { return min(now.Sub(began), test.runs), true }
				v.check(v.duties(true).watched, now)
				for len(w.notes[0].all()) == 0 && now.Sub(began) < 2*starvedMax*timeout {
					now = now.Add(interval)
					v.check(v.duties(true).watched, now)
					time.Sleep(time.Millisecond) // for the handler of the end of a link
				}
				if got := now.Sub(began); got != test.want {
					t.Errorf("the link fails after %v, want %v", got, test.want)
				}
			})
		})
	}
}

// TestLateTicks: a watch with late ticks, as on a busy machine, still notices a silent peer, though later.
func TestLateTicks(t *testing.T) {
	inBubble(t, 2, func(w *world) {
		w.form()
		m := w.meshes[0]
		w.network.Partition(w.host(0))
		now := time.Now()
		v := newMonitor(m, now)
		v.interval = timeout / 1000
		for range 20 {
			now = now.Add(timeout / 10)
			v.check(v.duties(true).watched, now)
			time.Sleep(time.Millisecond)
		}
		if got := w.notes[0].all(); !slices.Equal(got, []int{1}) {
			t.Errorf("failed nodes %v, want rank 1", got)
		}
	})
}

// TestNewWatchers: if all watchers of a node have failed, other nodes watch it in the next view.
func TestNewWatchers(t *testing.T) {
	const n, victim = 9, 0
	inBubble(t, n, func(w *world) {
		w.form()
		watchers := membership.Watchers(w.view, victim, membership.WatchersDefault)
		left := w.ranks(append(watchers, victim)...)
		next := membership.View{Epoch: 2, Nodes: []membership.Node{w.view.Nodes[victim]}}
		for _, rank := range left {
			next.Nodes = append(next.Nodes, w.view.Nodes[rank])
		}
		for _, rank := range watchers {
			w.network.Crash(w.host(rank))
		}
		time.Sleep(time.Second)
		for _, rank := range append(left, victim) {
			w.adopt(w.meshes[rank], next)
		}
		time.Sleep(time.Minute)
		w.network.PowerOff(w.host(victim))
		time.Sleep(timeout + 3*interval)
		for _, rank := range left {
			if got := w.notes[rank].all(); !slices.Contains(got, victim) {
				t.Errorf("for rank %d failed nodes %v, want them to include %d", rank, got, victim)
			}
		}
	})
}

// TestWatchesFollowTheView: a connection to a node that becomes a neighbor is one to watch from the moment that the seed has told the view.
func TestWatchesFollowTheView(t *testing.T) {
	sparse(t, "k-regular:2", 8, func(w *world) {
		newest := w.view
		w.newest = func() membership.View { return newest }
		w.form()
		check := func(when string, peer int, want bool) {
			t.Helper()
			if got := w.meshes[0].Watches(w.host(peer)); got != want {
				t.Errorf("%s: rank 0 watches node %d: %t, want %t", when, peer, got, want)
			}
		}
		check("at first", 1, true)
		check("at first", 2, false)
		rest := membership.View{Epoch: 2, Nodes: slices.Delete(slices.Clone(w.view.Nodes), 1, 2)}
		newest = rest
		check("in the newest view", 2, true)
		w.adopt(w.meshes[0], rest)
		check("in the adopted view", 2, true)
		check("in the adopted view", 3, false)
	})
}

// A watching transport has conns that count the calls of Watch.
type watching struct {
	transport.Transport
	rank  int
	calls *watchCalls
}

// watchCalls has the numbers of calls by rank and peer.
type watchCalls struct {
	mu sync.Mutex
	of map[[2]string]int
}

type watchingConn struct {
	transport.Conn
	count func()
}

func (c *watchingConn) Watch() { c.count() }

func (w watching) conn(c transport.Conn, err error) (transport.Conn, error) {
	if err != nil {
		return nil, err
	}
	return &watchingConn{c, func() {
		w.calls.mu.Lock()
		defer w.calls.mu.Unlock()
		w.calls.of[[2]string{idOf(w.rank).String(), c.Peer()}]++
	}}, nil
}

func (w watching) Dial(ctx context.Context, addr, peer string) (transport.Conn, error) {
	return w.conn(w.Transport.Dial(ctx, addr, peer))
}

func (w watching) Accept(ctx context.Context) (transport.Conn, error) {
	return w.conn(w.Transport.Accept(ctx))
}

// TestConnectionBecomesWatch: a connection that was made for a message is one of a watch in a later view. The node then watches the
// process of the peer as well.
func TestConnectionBecomesWatch(t *testing.T) {
	inBubble(t, demandNodes, func(w *world) {
		calls := &watchCalls{of: make(map[[2]string]int)}
		w.watches = 1
		w.paths = func(rank int) []Path {
			return []Path{{Transport: watching{w.transports[rank], rank, calls}}}
		}
		w.form()
		if err := w.exchange(0, 2); err != nil {
			t.Fatal(err)
		}
		check := func(when string, want int) {
			t.Helper()
			time.Sleep(10 * interval)
			calls.mu.Lock()
			defer calls.mu.Unlock()
			if got := calls.of[[2]string{w.host(0), w.host(2)}]; got != want {
				t.Errorf("%s: rank 0 has begun to watch the process of node 2 %d times, want %d", when, got, want)
			}
		}
		check("in the first view", 0)
		rest := membership.View{Epoch: 2, Nodes: slices.Delete(slices.Clone(w.view.Nodes), 1, 2)}
		for _, slot := range w.ranks(1) {
			w.adopt(w.meshes[slot], rest)
		}
		check("in the next view", 1)
	})
}
