package nexar_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
	"github.com/nexar-go/nexar/transport/sim"
)

// TestCauseBeforeError: rank 3 leaves, which fails an operation of rank 0 and nothing else. The program of rank 0 ends at its error. Rank 1, which
// waits for a message of rank 0, names rank 3.
func TestCauseBeforeError(t *testing.T) {
	for name, operate := range map[string]func(w *worldtest.SimCluster, c, pair *nexar.Comm) error{
		"Recv": func(w *worldtest.SimCluster, c, _ *nexar.Comm) error {
			_, err := nexar.Recv(w.Ctx, c, make([]int, 1), 3, 1)
			return err
		},
		"Call": func(w *worldtest.SimCluster, c, _ *nexar.Comm) error {
			_, err := c.Call(w.Ctx, 3, "wait", nil)
			return err
		},
		"Barrier of two ranks": func(w *worldtest.SimCluster, _, pair *nexar.Comm) error { return pair.Barrier(w.Ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := worldtest.NewSimCluster(t, 1, 4)
				defer w.Close()
				nodes := w.JoinHosts(t, 4)
				nodes[3].World().Register("wait", func(ctx context.Context, _ int, _ []byte) ([]byte, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				})
				began := time.Now()
				var ranks sync.WaitGroup
				for rank, n := range nodes {
					ranks.Go(func() {
						c := n.World()
						pair, err := c.Split(w.Ctx, rank%3, 0)
						if err != nil {
							t.Error(err)
							return
						}
						switch rank {
						case 0:
							if err := operate(w, c, pair); err == nil {
								t.Error("rank 0: the operation has not failed")
							}
							w.Network.Crash("host0")
						case 1:
							if _, err := nexar.Recv(w.Ctx, c, make([]int, 1), 0, 1); named(err) != 3 {
								t.Errorf("rank 1: %v, want an error that names rank 3", err)
							}
						case 3:
							time.Sleep(5*time.Second - time.Since(began))
							n.Close()
						}
					})
				}
				ranks.Wait()
				for _, n := range nodes {
					n.Close()
				}
			})
		})
	}
}

// named returns the rank that an error names as its cause, or -1.
func named(err error) int {
	if p, ok := errors.AsType[*nexar.PeerError](err); ok && p.Suspects == nil {
		return p.Rank
	}
	if r, ok := errors.AsType[*nexar.RevokedError](err); ok {
		return r.Rank
	}
	return -1
}

// TestTranslationIsPure: rank 1 fails while rank 2 is silent. Translation of the error does not wait until the cause is known: it names the lost
// rank. The error that the program gets has the suspects.
func TestTranslationIsPure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := worldtest.NewSimCluster(t, 1, 3)
		defer w.Close()
		nodes := w.JoinHosts(t, 3)
		c := nodes[0].World()
		w.Network.Crash("host1")
		<-c.Done()
		w.Network.SetOneWay("host2", "host0", sim.Link{Delay: time.Minute}) // The pongs are late.
		began := time.Now()
		p, ok := errors.AsType[*nexar.PeerError](nexar.Translated(c))
		if took := time.Since(began); took > 0 || !ok || p.Rank != 1 || p.Suspects != nil {
			t.Errorf("after %v: %+v, want the failure of rank 1 at once", took, p)
		}
		if p, ok = errors.AsType[*nexar.PeerError](c.Err()); !ok || len(p.Suspects) != 2 {
			t.Errorf("%+v, want ranks 1 and 2 as suspects", p)
		}
		for _, n := range nodes {
			n.Close()
		}
	})
}
