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
)

// TestRemovedWithoutLosses: the seed removes rank 2 because of a false report. All links work. No operation fails, so the
// ranks learn it from Reconfigure: rank 2 ends with an ErrRemoved, and the others get the next communicator. A rank that ranges over
// the epochs does not stay in a world that the seed has replaced.
func TestRemovedWithoutLosses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := worldtest.NewSimCluster(t, 1, 3)
		defer w.Close()
		nodes := joinHosts(t, w, 3)
		errs, sizes := make([]error, 3), make([][]int, 3)
		ctx, cancel := context.WithTimeout(w.Ctx, time.Minute)
		defer cancel()
		var working sync.WaitGroup
		for rank, n := range nodes {
			working.Go(func() {
				for c, err := range n.Epochs(ctx) {
					if err != nil {
						errs[rank] = err
						return
					}
					if sizes[rank] = append(sizes[rank], c.Size()); c.Size() < 3 {
						errs[rank] = c.Barrier(ctx)
						return
					}
					for changed := false; !changed && err == nil; time.Sleep(10 * time.Millisecond) {
						changed, err = n.Reconfigure(ctx)
					}
					if err != nil {
						errs[rank] = err
						return
					}
				}
			})
		}
		time.Sleep(10 * time.Second)
		nexar.ReportLost(nodes[0], nodes[2], errors.New("closed by the peer"))
		working.Wait()
		for rank := range nodes {
			if rank == 2 {
				if !errors.Is(errs[rank], nexar.ErrRemoved) {
					t.Errorf("rank 2: %v, want %v", errs[rank], nexar.ErrRemoved)
				}
			} else if errs[rank] != nil || len(sizes[rank]) != 2 || sizes[rank][1] != 2 {
				t.Errorf("rank %d: communicators of %v ranks, error %v; want of 3 and 2 ranks", rank, sizes[rank], errs[rank])
			}
		}
		for _, n := range nodes {
			n.Close()
		}
	})
}
