package clustertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"
)

// An epoch is a communicator that a worker has had.
type epoch struct {
	At     time.Time // when it had it
	Number uint64
	Rank   int
	Size   int
	Rounds int // that have ended well
}

// survive does the same again and again, on the communicator of each epoch, until
// the world has as many ranks as the order says and all have done it so many
// times there.
func survive(ctx context.Context, d *desk, o order, r *report) error {
	op := operations()[o.What]
	for comm, err := range d.node.Epochs(ctx) {
		if err != nil {
			return err
		}
		e := epoch{At: time.Now(), Number: comm.Epoch(), Rank: comm.Rank(), Size: comm.Size()}
		for err == nil && (comm.Size() > o.Peer || e.Rounds < o.Sets) {
			if err = op(ctx, comm, o.N, e.Rounds); err == nil {
				e.Rounds++
			}
		}
		r.Epochs = append(r.Epochs, e)
		if err == nil {
			return comm.Barrier(ctx)
		}
		if ctx.Err() != nil {
			return err
		}
	}
	return fmt.Errorf("the epochs are over")
}

// TestSurvive: ranks are killed one after the other, or several at once, and the
// others go on each time, with the right results, in the order of their ranks.
func TestSurvive(t *testing.T) {
	for i, test := range []struct {
		way   string
		what  string
		n     int
		kills []int // ranks that are killed at once
	}{
		{"shm", "all_reduce", 1, []int{1, 1, 1}},
		{"tcp", "all_reduce", 100_000, []int{2, 1}},
		{"quic", "barrier", 0, []int{1, 2}},
		{"shm", "ring", 100_000, []int{3}},
		{"", "all_reduce", 1 << 20, []int{1, 1}},
	} {
		t.Run(fmt.Sprintf("%d/%s/%s", i, test.way, test.what), func(t *testing.T) {
			const ranks = 6
			left := watchLeftovers(t)
			c := newCrew(t)
			vars := left.vars()
			if test.way != "" {
				vars = append(vars, "NEXAR_TRANSPORTS="+test.way)
			}
			team := c.team(ranks, vars...)
			goal := ranks
			for _, k := range test.kills {
				goal -= k
			}
			running := make([]<-chan report, ranks)
			for rank, w := range team {
				running[rank] = w.start(order{Do: "survive", What: test.what, N: test.n, Peer: goal, Sets: 20})
			}
			alive := slices.Clone(team)
			var killed []time.Time
			for _, k := range test.kills {
				time.Sleep(300*time.Millisecond + rand.N(200*time.Millisecond))
				for range k {
					i := rand.IntN(len(alive))
					alive[i].kill(os.Kill)
					alive = slices.Delete(alive, i, i+1)
				}
				killed = append(killed, time.Now())
			}
			for i, w := range alive {
				r := w.await(running[w.rank])
				if r.Failure != nil {
					t.Errorf("rank %d: %v\n%+v", w.rank, r.Failure, r.Epochs)
					continue
				}
				checkEpochs(t, r.Epochs, i, goal, ranks)
				t.Logf("rank %d: %s", w.rank, recoveries(r.Epochs, killed))
			}
		})
	}
}

// checkEpochs checks those of a survivor, which is of some rank in the end.
func checkEpochs(t *testing.T, epochs []epoch, rank, size, before int) {
	t.Helper()
	last := epoch{Size: before + 1}
	for _, e := range epochs {
		if e.Number <= last.Number || e.Size >= last.Size {
			t.Errorf("epoch %d of %d ranks follows epoch %d of %d", e.Number, e.Size, last.Number, last.Size)
		}
		last = e
	}
	if last.Rank != rank || last.Size != size || last.Rounds < 20 {
		t.Errorf("in the end it is rank %d of %d with %d rounds, want rank %d of %d with 20", last.Rank, last.Size, last.Rounds, rank, size)
	}
}

// recoveries is how long after each kill there was the next communicator.
func recoveries(epochs []epoch, killed []time.Time) string {
	text := ""
	for _, at := range killed {
		for _, e := range epochs {
			if e.At.After(at) {
				text += fmt.Sprintf(" %d ranks after %v", e.Size, e.At.Sub(at).Round(100*time.Microsecond))
				break
			}
		}
	}
	return text
}
