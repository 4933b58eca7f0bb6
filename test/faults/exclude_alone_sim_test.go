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

// TestExcludeEndsCalls: ranks 0 and 1 exclude rank 2 while goroutines of theirs wait for it. These calls fail with the removal of rank 2, also
// if messages are late, and if rank 2 closes its node as soon as it is removed.
func TestExcludeEndsCalls(t *testing.T) {
	const late = 200 * time.Millisecond
	waits := map[string]func(ctx context.Context, c *nexar.Comm) error{
		"recv": func(ctx context.Context, c *nexar.Comm) error { return worldtest.RecvError(ctx, c, 2, 1) },
		"call": func(ctx context.Context, c *nexar.Comm) error {
			_, err := c.Call(ctx, 2, "wait", nil)
			return err
		},
	}
	for name, slow := range map[string][2]string{
		"equal links":                  {},
		"the seed reaches 1 late":      {"seed", "host1"},
		"the seed reaches 2 late":      {"seed", "host2"},
		"rank 2 reaches rank 1 late":   {"host2", "host1"},
		"rank 0 reaches rank 1 late":   {"host0", "host1"},
		"rank 0 reaches rank 2 late":   {"host0", "host2"},
		"rank 2 reaches the seed late": {"host2", "seed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := worldtest.NewSimCluster(t, 1, 3)
				defer w.Close()
				nodes := w.JoinHosts(t, 3)
				nodes[2].World().Register("wait", func(ctx context.Context, _ int, _ []byte) ([]byte, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				})
				if slow[0] != "" {
					w.Network.SetOneWay(slow[0], slow[1], sim.Link{Delay: late})
				}
				ctx, cancel := context.WithTimeout(w.Ctx, time.Minute)
				defer cancel()
				var ranks sync.WaitGroup
				for rank, n := range nodes[:2] {
					world := n.World()
					for name, wait := range waits {
						ranks.Go(func() {
							err := wait(ctx, world)
							p, ok := errors.AsType[*nexar.PeerError](err)
							if !ok || p.Rank != 2 || p.Left || !strings.Contains(p.Error(), "the seed has removed it from the world") {
								t.Errorf("%s of rank %d: %v, want that the seed has removed rank 2", name, rank, err)
							}
						})
					}
					ranks.Go(func() {
						time.Sleep(3 * late)
						c, err := world.Exclude(ctx, []int{2})
						if err != nil || c.Barrier(ctx) != nil {
							t.Errorf("exclude of rank %d: %v", rank, err)
						}
					})
				}
				ranks.Go(func() {
					if err := worldtest.RecvError(ctx, nodes[2].World(), 1, 1); !errors.Is(err, nexar.ErrExcluded) {
						t.Errorf("receive of rank 2: %v, want %v", err, nexar.ErrExcluded)
					}
					nodes[2].Close()
				})
				ranks.Wait()
				for _, n := range nodes {
					n.Close()
				}
			})
		})
	}
}
