package mesh

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/transport/sim"
)

// causeOf returns the rank that an error names as the cause of a failure, and the suspects.
func (w *world) causeOf(err error) (rank int, suspects []int) {
	w.Helper()
	e, ok := errors.AsType[*engine.PeerError](err)
	if !ok || e.Left {
		w.Fatalf("got error %v, want the failure of a peer", err)
	}
	loss, ok := errors.AsType[*LossError](err)
	if !ok {
		rank, _ = w.comms[0].RankOf(e.Rank)
		return rank, nil
	}
	<-loss.Known()
	cause := loss.Cause()
	rank, _ = w.view.Rank(cause.Node)
	for _, s := range cause.Suspects {
		suspect, _ := w.view.Rank(s.Node.ID)
		suspects = append(suspects, suspect)
	}
	return rank, suspects
}

// TestCause: rank 0 waits for a message of a rank that never sends, and loses peers.
func TestCause(t *testing.T) {
	lost := func(w *world, from, to int) {
		w.network.SetOneWay(w.host(from), w.host(to), sim.Link{Delay: time.Minute})
	}
	for name, test := range map[string]struct {
		happens  func(w *world)
		cause    int           // if there are no suspects
		suspects []int         // nil: the cause is known
		within   time.Duration // from the loss to the cause
	}{
		"one rank is killed": {func(w *world) {
			w.network.Crash(w.host(1))
		}, 1, nil, 2 * delay},
		"a rank is killed, then another one": {func(w *world) {
			w.network.Crash(w.host(1))
			time.AfterFunc(5*delay, func() { w.network.Crash(w.host(3)) }) // after the refused dial
		}, 1, nil, 2 * delay},
		"two ranks are killed at once": {func(w *world) {
			w.network.Crash(w.host(3))
			w.network.Crash(w.host(1))
		}, 0, []int{1, 3}, 2 * delay},
		"three ranks are killed at once": {func(w *world) {
			for _, rank := range []int{4, 1, 3} {
				w.network.Crash(w.host(rank))
			}
		}, 0, []int{1, 3, 4}, 2 * delay},
		"a rank is killed while another one is silent": {func(w *world) {
			lost(w, 3, 0)
			w.network.Crash(w.host(1))
		}, 0, []int{1, 3}, confirmMax},
		"a rank is killed while another one leaves": {func(w *world) {
			go w.meshes[3].Close(w.Context())
			w.network.Crash(w.host(1))
		}, 1, nil, 2 * delay},
		"a victim has named a killed rank": {func(w *world) {
			w.network.SetOneWay(w.host(2), w.host(0), sim.Link{Delay: 30 * delay})
			w.network.Crash(w.host(2))
			time.AfterFunc(2*delay, func() {
				w.meshes[1].Explain(idOf(2), true, "rank 2 failed")
				w.network.Crash(w.host(1))
			})
		}, 2, nil, 30 * delay},
		"a victim has named one of two killed ranks": {func(w *world) {
			w.network.Crash(w.host(2))
			w.network.Crash(w.host(3))
			time.AfterFunc(delay/2, func() { w.meshes[1].Explain(idOf(2), true, "rank 2 failed") })
		}, 0, []int{2, 3}, 2 * delay},
		"a victim has named a rank that lives": {func(w *world) {
			go w.meshes[1].Explain(idOf(2), true, "rank 2 failed")
			time.AfterFunc(10*delay, func() { w.network.Crash(w.host(1)) })
		}, 1, nil, 2 * delay},
		"a victim has named a rank that is silent": {func(w *world) {
			lost(w, 2, 0)
			w.meshes[1].Explain(idOf(2), true, "rank 2 failed")
			w.network.Crash(w.host(1))
		}, 0, []int{1, 2}, confirmMax},
		"two ranks have named each other": {func(w *world) {
			go w.meshes[1].Explain(idOf(3), true, "rank 3 failed")
			go w.meshes[3].Explain(idOf(1), true, "rank 1 failed")
			time.AfterFunc(2*delay, func() {
				w.network.Crash(w.host(1))
				w.network.Crash(w.host(3))
			})
		}, 0, []int{1, 3}, 2 * delay},
		"the reason of a victim is lost": {func(w *world) {
			lost(w, 2, 0)
			w.network.SetOneWay(w.host(1), w.host(0), sim.Link{Delay: 2 * confirmMax})
			w.network.Crash(w.host(2))
			time.AfterFunc(2*delay, func() {
				w.meshes[1].Explain(idOf(2), true, "rank 2 failed")
				w.network.Crash(w.host(1))
			})
		}, 0, []int{1, 2}, confirmMax},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 5, func(w *world) {
				w.interval = 0 // No loss by silence.
				w.form()
				wait := w.pending(func(int) int { return 1 }, 0)
				time.Sleep(time.Second)
				test.happens(w)
				err := wait()[0]
				began := time.Now()
				cause, suspects := w.causeOf(err)
				switch {
				case !slices.Equal(suspects, test.suspects):
					t.Errorf("rank %d failed, suspects %v, want %v; the error: %v", cause, suspects, test.suspects, err)
				case suspects == nil && cause != test.cause, suspects != nil && !slices.Contains(suspects, cause):
					t.Errorf("the cause is rank %d, want %d or a suspect; the error: %v", cause, test.cause, err)
				}
				if took := time.Since(began); took > test.within {
					t.Errorf("the cause was known after %v, want at most %v", took, test.within)
				}
			})
		})
	}
}

// TestCauseInLargeWorld: in a large world a node that has lost a peer takes the reports of its other peers for the answers to pings.
// A peer that does not report the loss is pinged, and is a suspect if it does not answer.
func TestCauseInLargeWorld(t *testing.T) {
	require.NoRace(t, "it repeats other tests in many topologies and orders")
	const lost, silent = 1, 3 // watched by rank 0
	for name, test := range map[string]struct {
		isSilent bool
		suspects []int
		within   time.Duration
	}{
		"all peers report the loss": {false, nil, reportsMax / 2},
		"a peer is silent":          {true, []int{lost, silent}, confirmMax},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, reportsFrom+1, func(w *world) {
				w.interval, w.watches = 0, 3
				w.form()
				wait := w.pending(func(int) int { return lost }, 0)
				time.Sleep(10 * time.Second) // The links to both are made.
				if test.isSilent {
					if err := w.exchange(0, silent); err != nil {
						t.Fatal(err)
					}
					w.network.SetOneWay(w.host(silent), w.host(0), sim.Link{Delay: time.Minute})
				}
				before := w.heard()
				w.network.Crash(w.host(lost))
				err := wait()[0]
				began := time.Now()
				cause, suspects := w.causeOf(err)
				if !slices.Equal(suspects, test.suspects) || suspects == nil && cause != lost {
					t.Errorf("rank %d failed, suspects %v, want rank %d, suspects %v; the error: %v", cause, suspects, lost, test.suspects, err)
				}
				if took := time.Since(began); took > test.within {
					t.Errorf("the cause was known after %v, want at most %v", took, test.within)
				}
				if test.isSilent {
					return
				}
				// A node hears a report of each linked peer, a ping and a pong at most.
				frames := uint64(0)
				for peer, n := range w.heard()[0] {
					frames += n - before[0][peer]
				}
				if links := len(w.linked(0)); frames > uint64(links)+2 {
					t.Errorf("rank 0 has heard %d frames over %d links", frames, links)
				}
			})
		})
	}
}
