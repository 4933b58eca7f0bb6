package faults

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
	"github.com/nexar-go/nexar/transport/sim"
)

// TestExcludeAlone: rank 0 alone excludes both others, so the seed removes it. Its next calls fail with an ErrRemoved, also if the messages of
// the seed or of others are late. Operations of the others fail, and the errors say that rank 0 was removed, also if its
// program closes the node at once. No rank ranges over the epochs.
func TestExcludeAlone(t *testing.T) {
	const late = 200 * time.Millisecond
	for name, slow := range map[string][2]string{
		"equal links":                    {},
		"the seed reaches rank 0 late":   {"seed", "host0"},
		"the seed reaches rank 1 late":   {"seed", "host1"},
		"rank 0 reaches the others late": {"host0", "host1"},
		"the others reach rank 0 late":   {"host1", "host0"},
	} {
		for _, closes := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := worldtest.NewSimCluster(t, 1, 3)
					defer w.Close()
					nodes := w.JoinHosts(t, 3)
					if slow[0] != "" {
						w.Network.SetOneWay(slow[0], slow[1], sim.Link{Delay: late})
					}
					ctx, cancel := context.WithTimeout(w.Ctx, time.Minute)
					defer cancel()
					var ranks sync.WaitGroup
					ranks.Go(func() { excludeAll(ctx, t, nodes[0], closes) })
					for rank, n := range nodes[1:] {
						ranks.Go(func() {
							err := sum(ctx, n)
							for range 2 {
								p, ok := errors.AsType[*nexar.PeerError](err)
								if !ok || p.Rank != 0 || p.Left || !strings.Contains(p.Error(), "the seed has removed it from the world") {
									t.Errorf("rank %d: %v, want that the seed has removed rank 0", rank+1, err)
								}
								time.Sleep(2 * late)
								err = sum(ctx, n)
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
}

// excludeAll excludes the other ranks, and closes the node at once or calls all-reduces.
func excludeAll(ctx context.Context, t *testing.T, n *nexar.Node, closes bool) {
	c := n.World()
	_, err := c.Exclude(ctx, []int{1, 2})
	if closes {
		n.Close()
	}
	const remedy = "its exclusions prevail only if all ranks that stay call Exclude with the same ranks"
	if !errors.Is(err, nexar.ErrRemoved) || !strings.Contains(err.Error(), remedy) {
		t.Errorf("exclude: %v, want %v with %q", err, nexar.ErrRemoved, remedy)
	}
	for range 3 {
		if err := sum(ctx, n); !closes && !errors.Is(err, nexar.ErrRemoved) {
			t.Errorf("all-reduce of rank 0: %v, want %v", err, nexar.ErrRemoved)
		}
		time.Sleep(time.Second)
	}
}

// TestExcludeTwo: ranks 0 and 3 exclude the others. One of these learns first that the other one was excluded. Its later calls fail with the
// exclusion of its own all the same.
func TestExcludeTwo(t *testing.T) {
	const late = 200 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		w := worldtest.NewSimCluster(t, 1, 4)
		defer w.Close()
		nodes := w.JoinHosts(t, 4)
		w.Network.SetOneWay("seed", "host2", sim.Link{Delay: late})
		var ranks sync.WaitGroup
		for rank, n := range nodes {
			ranks.Go(func() {
				if rank == 1 || rank == 2 {
					return
				}
				if _, err := n.World().Exclude(w.Ctx, []int{1, 2}); err != nil {
					t.Errorf("rank %d: %v", rank, err)
				}
			})
		}
		for _, rank := range []int{1, 2} {
			ranks.Go(func() {
				n := nodes[rank]
				_ = sum(w.Ctx, n)
				time.Sleep(5 * late)
				_, err := nexar.Recv(w.Ctx, n.World(), make([]int, 1), 0, 1)
				for _, err := range []error{err, sum(w.Ctx, n), n.World().Err()} {
					if !errors.Is(err, nexar.ErrExcluded) {
						t.Errorf("rank %d: %v, want %v", rank, err, nexar.ErrExcluded)
					}
				}
			})
		}
		ranks.Wait()
		for _, n := range nodes {
			n.Close()
		}
	})
}
