package mesh

import (
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/mesh/blame"
	"github.com/nexar-go/nexar/transport/sim"
)

// A node reports the cause of an error before the error ends its program: others name the cause.
func TestExplainedEnd(t *testing.T) {
	for name, test := range map[string]struct {
		after time.Duration // from the error to the end
		cause int
	}{
		"at once":           {0, 2},
		"of another reason": {blame.ReasonMax, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 4, func(w *world) {
				w.form()
				wait := w.pending(func(int) int { return 1 }, 0, 3)
				began := time.Now()
				w.meshes[1].Explain(idOf(2), false, "rank 2 has left")
				if took := time.Since(began); took < 2*delay || took >= confirmMax {
					t.Errorf("Explain took %v: it must wait for the answers of the others, and no longer", took)
				}
				time.Sleep(test.after)
				w.network.Crash(w.host(1))
				for rank, err := range wait() {
					if rank == 1 || rank == 2 {
						continue
					}
					wantPeerError(t, err, test.cause, false)
					if got := strings.Contains(err.Error(), `rank 1 has ended after its error "rank 2 has left"`); got != (test.cause == 2) {
						t.Errorf("rank %d: the error is %v", rank, err)
					}
					// The program learns that the node itself is gone.
					if got := w.notes[rank].all(); len(got) != 1 || got[0] != 1 {
						t.Errorf("rank %d: failed nodes %v, want 1", rank, got)
					}
				}
			})
		})
	}
}

// A peer that is silent delays the error by confirmMax, once.
func TestExplainToSilentPeer(t *testing.T) {
	inBubble(t, 4, func(w *world) {
		w.form()
		w.network.SetOneWay(w.host(3), w.host(0), sim.Link{Delay: time.Minute})
		began := time.Now()
		w.meshes[0].Explain(idOf(2), false, "rank 2 has left")
		w.meshes[0].Explain(idOf(2), false, "rank 2 has left")
		if took := time.Since(began); took != confirmMax {
			t.Errorf("Explain took %v, want %v", took, confirmMax)
		}
	})
}

// A node that is cut off loses its peers one after the other, and may explain its error by a peer that
// lives. Others name the node, and the peer only if they have lost it as well.
func TestExplainedByLostPeer(t *testing.T) {
	for name, test := range map[string]struct {
		crash []int
		cause int
	}{
		"the cause lives":   {[]int{1}, 1},
		"the cause is lost": {[]int{2, 1}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 4, func(w *world) {
				w.form()
				wait := w.pending(func(int) int { return 1 }, 0, 3)
				w.meshes[1].Explain(idOf(2), true, "rank 2 failed")
				for _, rank := range test.crash {
					w.network.Crash(w.host(rank))
				}
				for rank, err := range wait() {
					if rank != 0 && rank != 3 {
						continue
					}
					if cause, suspects := w.causeOf(err); cause != test.cause || suspects != nil {
						t.Errorf("rank %d: cause %d, suspects %v, want %d; the error: %v", rank, cause, suspects, test.cause, err)
					}
				}
			})
		})
	}
}
