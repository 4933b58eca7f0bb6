package nexar_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
	"github.com/nexar-go/nexar/transport/sim"
)

// TestRemovedWithoutLosses: the seed removes rank 2 because of a false report. All links work. Rank 2 ends with an ErrRemoved, and the
// others get the next communicator. If they call Reconfigure before rank 2 learns it, no operation of theirs fails, and Reconfigure
// returns true. Other operations fail, and their errors say that rank 2 was removed. A rank that ranges over the epochs does not stay in a world that the
// seed has replaced.
func TestRemovedWithoutLosses(t *testing.T) {
	for name, reconfigure := range map[string]bool{"Reconfigure": true, "AllReduce": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { removeWithoutLosses(t, reconfigure) })
		})
	}
}

// removeWithoutLosses is TestRemovedWithoutLosses with Reconfigure, and messages of the seed that reach rank 2 late, or with AllReduce.
func removeWithoutLosses(t *testing.T, reconfigure bool) {
	w := worldtest.NewSimCluster(t, 1, 3)
	defer w.Close()
	nodes := w.JoinHosts(t, 3)
	if reconfigure {
		w.Network.SetOneWay("seed", "host2", sim.Link{Delay: 700 * time.Millisecond})
	}
	ends, failures, sizes := make([]error, 3), make([]error, 3), make([][]int, 3)
	ctx, cancel := context.WithTimeout(w.Ctx, time.Minute)
	defer cancel()
	var working sync.WaitGroup
	for rank, n := range nodes {
		working.Go(func() {
			for c, err := range n.Epochs(ctx) {
				if ends[rank] = err; err != nil {
					return
				}
				if sizes[rank] = append(sizes[rank], c.Size()); c.Size() < 3 {
					ends[rank] = c.Barrier(ctx)
					return
				}
				for changed := false; !changed && err == nil; time.Sleep(10 * time.Millisecond) {
					if reconfigure {
						changed, err = n.Reconfigure(ctx)
					} else {
						err = nexar.AllReduce(ctx, c, []int{1}, nexar.Sum)
					}
				}
				failures[rank] = err
			}
		})
	}
	time.Sleep(10 * time.Second)
	nexar.ReportLost(nodes[0], nodes[2], errors.New("closed by the peer"))
	working.Wait()
	if !errors.Is(ends[2], nexar.ErrRemoved) || !reconfigure && !errors.Is(failures[2], nexar.ErrRemoved) {
		t.Errorf("rank 2: %v, after %v; want %v", ends[2], failures[2], nexar.ErrRemoved)
	}
	for rank := range 2 {
		if ends[rank] != nil || len(sizes[rank]) != 2 || sizes[rank][1] != 2 {
			t.Errorf("rank %d: communicators of %v ranks, error %v; want of 3 and 2 ranks", rank, sizes[rank], ends[rank])
		}
		p, failed := errors.AsType[*nexar.PeerError](failures[rank])
		if reconfigure && failures[rank] != nil {
			t.Errorf("rank %d: %v, want that no operation fails", rank, failures[rank])
		}
		if !reconfigure && (!failed || p.Rank != 2 || p.Left || !strings.Contains(p.Error(), "the seed has removed it")) {
			t.Errorf("rank %d: %v, want that the seed has removed rank 2", rank, failures[rank])
		}
	}
	for _, n := range nodes {
		n.Close()
	}
}

// TestRemovedBeforeTheSeedSaysSo: ranks 0 and 1 exclude rank 2, or the seed removes it because of a false report. The seed is slow to
// reach rank 2, so the others go on without it before. The call that waits for them, later calls and the epochs end with
// the exclusion or the removal all the same.
func TestRemovedBeforeTheSeedSaysSo(t *testing.T) {
	const odd, late = 2, 1500 * time.Millisecond // longer than the seed waits for rank 2
	calls := map[string]func(ctx context.Context, c, child *nexar.Comm) error{
		"Barrier": func(ctx context.Context, c, _ *nexar.Comm) error { return c.Barrier(ctx) },
		"Recv": func(ctx context.Context, c, _ *nexar.Comm) error {
			_, err := nexar.Recv(ctx, c, make([]int64, 1), 0, 1)
			return err
		},
		"Barrier of a child": func(ctx context.Context, _, child *nexar.Comm) error { return child.Barrier(ctx) },
	}
	goOn := map[error]func(ctx context.Context, nodes []*nexar.Node, rank int) (*nexar.Comm, error){
		nexar.ErrExcluded: func(ctx context.Context, nodes []*nexar.Node, rank int) (*nexar.Comm, error) {
			return nodes[rank].World().Exclude(ctx, []int{odd})
		},
		nexar.ErrRemoved: func(ctx context.Context, nodes []*nexar.Node, rank int) (c *nexar.Comm, err error) {
			if rank == 0 {
				nexar.ReportLost(nodes[0], nodes[odd], errors.New("closed by the peer"))
			}
			for c, err = range nodes[rank].Epochs(ctx) {
				if err != nil || c.Size() == 2 {
					break
				}
			}
			return c, err
		},
	}
	for name, call := range calls {
		for kind, goOn := range goOn {
			t.Run(fmt.Sprintf("%s, %v", name, kind), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := worldtest.NewSimCluster(t, 1, 3)
					defer w.Close()
					nodes := w.JoinHosts(t, 3)
					w.Network.SetOneWay("seed", "host2", sim.Link{Delay: late})
					ctx, cancel := context.WithTimeout(w.Ctx, time.Minute)
					defer cancel()
					began := time.Now()
					var ranks sync.WaitGroup
					for rank, n := range nodes[:odd] {
						ranks.Go(func() {
							if _, err := n.World().Dup(ctx); err != nil {
								t.Errorf("rank %d: %v", rank, err)
							}
							time.Sleep(10*time.Second - time.Since(began))
							c, err := goOn(ctx, nodes, rank)
							if err != nil || c.Size() != 2 || c.Barrier(ctx) != nil {
								t.Errorf("rank %d: %v, want a communicator of 2 ranks", rank, err)
							}
						})
					}
					ranks.Go(func() {
						var errs []error
						for c, err := range nodes[odd].Epochs(ctx) {
							if err == nil {
								child, err := c.Dup(ctx)
								if err != nil {
									t.Error(err)
									return
								}
								errs = append(errs, call(ctx, c, child))
								if took := time.Since(began); took > 10*time.Second+late {
									t.Errorf("the call ended after %v, when the seed had said so", took)
								}
								errs = append(errs, c.Barrier(ctx), child.Barrier(ctx), c.Err())
								continue
							}
							errs = append(errs, err)
						}
						for i, err := range errs {
							if !errors.Is(err, kind) || !errors.Is(err, nexar.ErrNoQuorum) {
								t.Errorf("error %d: %v, want %v", i, err, kind)
							}
						}
						if len(errs) != 5 {
							t.Errorf("%d errors, want 5: %v", len(errs), errs)
						}
					})
					ranks.Wait()
					for _, n := range nodes {
						n.Close()
					}
				})
			})
		}
	}
}

// TestLeaveOfARemovedRank: ranks 0 and 1 exclude rank 2. Its Leave waits, or begins later. It fails at once with the reason.
func TestLeaveOfARemovedRank(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := worldtest.NewSimCluster(t, 1, 3)
		defer w.Close()
		nodes := w.JoinHosts(t, 3)
		var ranks sync.WaitGroup
		for rank, n := range nodes[:2] {
			ranks.Go(func() {
				time.Sleep(time.Second)
				if _, err := n.World().Exclude(w.Ctx, []int{2}); err != nil {
					t.Errorf("rank %d: %v", rank, err)
				}
			})
		}
		ranks.Go(func() {
			for _, when := range []string{"before", "after"} {
				began := time.Now()
				err := nodes[2].Leave(w.Ctx)
				if !errors.Is(err, nexar.ErrExcluded) || !strings.Contains(err.Error(), "has excluded it") {
					t.Errorf("Leave that begins %s the exclusion: %v, want %v with the reason", when, err, nexar.ErrExcluded)
				}
				if took := time.Since(began); took > 2500*time.Millisecond || when == "after" && took > 0 {
					t.Errorf("Leave that begins %s the exclusion fails after %v, want at once", when, took)
				}
			}
		})
		ranks.Wait()
		for _, n := range nodes {
			n.Close()
		}
	})
}
