package mesh

import (
	"slices"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
)

// TestIdleWorldStaysUp: an hour in which nobody says anything.
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

// TestWatchTraffic: what a node says in an idle world does not grow with it: it
// exchanges signs of life with those that it watches and those that watch it, and
// with each about once in two intervals.
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
				// Who asks a peer hears an answer, and the peer has heard the question.
				if most := uint64(2*k) * uint64(passed/interval/2+1); frames > most || peers > 2*k {
					t.Errorf("%d nodes: rank %d has heard %d frames of %d peers, want at most %d of %d", n, rank, frames, peers, most, 2*k)
				}
			}
		})
	}
}

// heard is how many frames each rank has heard of each.
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

// TestShortSilence: a network that falls silent for less than the timeout is
// no failure.
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

// TestNoHeartbeats: with an interval of 0 nobody asks, and nobody is accused.
func TestNoHeartbeats(t *testing.T) {
	inBubble(t, 3, func(w *world) {
		w.interval = 0
		w.form()
		w.network.PowerOff(w.host(1))
		time.Sleep(time.Hour)
		if got := w.notes[0].all(); len(got) > 0 {
			t.Errorf("these have failed: %v", got)
		}
	})
}

// TestStoppedNodeAccusesNobody: after a long time in which it did not look, a
// node gives its peers as much time as at the beginning.
func TestStoppedNodeAccusesNobody(t *testing.T) {
	inBubble(t, 4, func(w *world) {
		w.form()
		m := w.meshes[0]
		// From here on rank 0 hears nothing. Its own watch gets no time to
		// find that out: the test looks in its place, with times of its own.
		w.network.Partition(w.host(0))
		now := time.Now()
		v := m.newWatcher(now)
		look := func(after time.Duration) {
			now = now.Add(after)
			v.check(m.watchedLinks(), now)
			time.Sleep(time.Millisecond) // for the end of a link to be told
		}
		for range 3 {
			look(time.Hour)
			for range int(timeout/interval) - 1 {
				look(interval)
			}
			if got := w.notes[0].all(); len(got) > 0 {
				w.Fatalf("a node that was stopped for an hour says that %v have failed", got)
			}
		}
		look(interval)
		if got := w.notes[0].all(); !slices.Equal(got, []int{1, 2, 3}) {
			t.Errorf("these have failed: %v, want all others", got)
		}
	})
}

// TestLateTicks: a watch whose ticks come later than its interval, as on a busy
// machine, still notices who is silent.
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
			t.Errorf("these have failed: %v, want the silent one", got)
		}
	})
}

// TestWatchersAnew: when all who watched a node are gone, others of the next view
// do.
func TestWatchersAnew(t *testing.T) {
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
				t.Errorf("for rank %d these have failed: %v, without %d", rank, got, victim)
			}
		}
	})
}
