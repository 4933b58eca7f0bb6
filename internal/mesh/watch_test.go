package mesh

import (
	"slices"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
)

// TestIdleWorldStaysUp: no link fails during an hour without operations.
func TestIdleWorldStaysUp(t *testing.T) {
	inBubble(t, 9, func(w *world) {
		w.form()
		time.Sleep(time.Hour)
		for rank, m := range w.meshes {
			for _, peer := range membership.Watched(w.view, rank, WatchedMax) {
				// Each ping that is answered is a frame.
				if heard := m.peers[peer].link.Heard(); heard < uint64(time.Hour/interval/3) {
					t.Errorf("rank %d has heard %d frames of rank %d", rank, heard, peer)
				}
			}
		}
		w.wantWhole()
	})
}

// TestWatchTraffic: the traffic of a node in an idle world does not grow with the world. The node
// exchanges pings with its watchers and the peers that it watches, with each about once in two
// intervals.
func TestWatchTraffic(t *testing.T) {
	for _, n := range []int{2, 7, 8, 16, 24} {
		inBubble(t, n, func(w *world) {
			w.form()
			time.Sleep(time.Minute)
			before := w.heard()
			const passed = 10 * time.Minute
			time.Sleep(passed)
			k := min(n-1, WatchedMax)
			for rank, now := range w.heard() {
				frames, peers := uint64(0), 0
				for peer := range now {
					got := now[peer] - before[rank][peer]
					frames += got
					if got > 0 {
						peers++
					}
				}
				// A ping and its answer are a frame for each side.
				if most := uint64(2*k) * uint64(passed/interval/2+1); frames > most || peers > 2*k {
					t.Errorf("%d nodes: rank %d has heard %d frames of %d peers, want at most %d of %d", n, rank, frames, peers, most, 2*k)
				}
			}
		})
	}
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

// TestShortSilence: silence of the network for less than the timeout is no failure.
func TestShortSilence(t *testing.T) {
	inBubble(t, 9, func(w *world) {
		w.form()
		for range 10 {
			time.Sleep(20 * time.Second)
			w.network.Partition(w.host(4))
			time.Sleep(timeout - 2*interval)
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
		v := m.newWatcher(now)
		check := func(after time.Duration) {
			now = now.Add(after)
			v.check(m.watchedLinks(), now)
			time.Sleep(time.Millisecond) // for the handler of the end of a link
		}
		for range 3 {
			check(time.Hour)
			for range int(timeout/interval) - 1 {
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

// TestLateTicks: a watch with late ticks, as on a busy machine, still notices a silent peer.
func TestLateTicks(t *testing.T) {
	inBubble(t, 2, func(w *world) {
		w.form()
		m := w.meshes[0]
		w.network.Partition(w.host(0))
		now := time.Now()
		v := m.newWatcher(now)
		v.interval = timeout / 1000
		for range 12 {
			now = now.Add(timeout / 10)
			v.check(m.watchedLinks(), now)
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
		watchers := membership.Watchers(w.view, victim, WatchedMax)
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
