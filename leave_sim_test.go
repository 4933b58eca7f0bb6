package nexar_test

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

// An outcome is the effect of a leave on a remaining rank.
type outcome struct {
	err     error          // of its receive in the first epoch
	ended   time.Time      // time of err
	next    time.Time      // time of the next communicator
	size    int            // of the next communicator
	nodes   []nexar.NodeID // of the next communicator
	trouble error
}

// watchLeave runs a remaining rank: it waits for a message that is not sent, and continues with
// the next epoch.
func watchLeave(w *worldtest.SimCluster, n *nexar.Node, from int) (seen outcome) {
	ctx, cancel := context.WithTimeout(w.Ctx, 2*time.Minute)
	defer cancel()
	for c, err := range n.Epochs(ctx) {
		switch {
		case err != nil:
			seen.trouble = err
		case seen.err == nil:
			_, seen.err = nexar.Recv(ctx, c, make([]int64, 1), from, 1)
			seen.ended = time.Now()
			continue
		default:
			seen.next, seen.size = time.Now(), c.Size()
			seen.nodes = nexar.NodeIDs(c)
			seen.trouble = c.Barrier(ctx)
		}
		break
	}
	return seen
}

// TestLeaveSeenBySome: rank 3 of four leaves with a goodbye, but rank 0 loses its link to rank 3.
// Ranks 1 and 2, which have read the goodbye, wait for rank 0. All three get the failure of rank 3
// within the heartbeat timeout and a second, and continue together.
func TestLeaveSeenBySome(t *testing.T) {
	errProtocol := errors.New("link: protocol error: as the test says")
	cases := map[string]func(w *worldtest.SimCluster, nodes []*nexar.Node){
		"its packets to rank 0 are lost": func(w *worldtest.SimCluster, _ []*nexar.Node) {
			w.Network.SetOneWay("host3", "host0", sim.Link{Down: true})
		},
		"rank 0 sees a protocol error": func(_ *worldtest.SimCluster, nodes []*nexar.Node) {
			nexar.LinkTo(nodes[0], nodes[3]).Fail(errProtocol)
		},
		"rank 0 sees a protocol error when the others have read the goodbye": func(w *worldtest.SimCluster, nodes []*nexar.Node) {
			w.Network.SetOneWay("host3", "host0", sim.Link{Delay: 500 * time.Millisecond})
			time.AfterFunc(100*time.Millisecond, func() { nexar.LinkTo(nodes[0], nodes[3]).Fail(errProtocol) })
		},
	}
	for name, harm := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := worldtest.NewSimCluster(t, 1, 4)
				defer w.Close()
				nodes := w.JoinHosts(t, 4)
				seen := make([]outcome, 3)
				var staying sync.WaitGroup
				for rank := range seen {
					staying.Go(func() { seen[rank] = watchLeave(w, nodes[rank], (rank+1)%2) })
				}
				time.Sleep(10 * time.Second)
				left := time.Now()
				harm(w, nodes)
				var leaving sync.WaitGroup
				leaving.Go(func() { nodes[3].Close() })
				staying.Wait()
				for rank, s := range seen {
					s.check(t, rank, left, nodes)
				}
				leaving.Wait()
				for _, n := range nodes[:3] {
					n.Close()
				}
			})
		})
	}
}

// check checks the outcome of the leave of rank 3.
func (s outcome) check(t *testing.T, rank int, left time.Time, nodes []*nexar.Node) {
	t.Helper()
	const most = time.Second + time.Second // the heartbeat timeout and a second
	p, ok := errors.AsType[*nexar.PeerError](s.err)
	if !ok || p.Rank != 3 || p.Left || rank > 0 && !strings.Contains(p.Error(), "as rank 0 reports") {
		t.Errorf("rank %d: %v, want the failure of rank 3 as reported by rank 0", rank, s.err)
	}
	if took := s.ended.Sub(left); took > most {
		t.Errorf("rank %d waited for %v, want at most %v", rank, took, most)
	}
	if s.trouble != nil {
		t.Errorf("rank %d: %v", rank, s.trouble)
	}
	if took := s.next.Sub(s.ended); s.size != 3 || took > time.Second {
		t.Errorf("rank %d has a communicator of %d ranks after %v, want 3 within a second", rank, s.size, took)
	}
	for r, id := range s.nodes {
		if id != nodes[r].ID() {
			t.Errorf("rank %d: rank %d of the next epoch is %v, want %v", rank, r, id, nodes[r].ID())
		}
	}
}

// TestLeaverSeesNoFailures: rank 2 leaves with a Reconfigure, or is excluded. The others close their links to it, which is no failure of theirs.
func TestLeaverSeesNoFailures(t *testing.T) {
	for name, leaves := range map[string]bool{"Leave": true, "Exclude": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := worldtest.NewSimCluster(t, 1, 3)
				defer w.Close()
				nodes := w.JoinHosts(t, 3)
				var ranks sync.WaitGroup
				if leaves {
					w.Network.SetOneWay("seed", "host2", sim.Link{Delay: 500 * time.Millisecond}) // The links end before the seed says so.
					ranks.Go(func() {
						if err := nodes[2].Leave(w.Ctx); err != nil {
							t.Error(err)
						}
					})
				}
				for rank, n := range nodes {
					ranks.Go(func() {
						time.Sleep(time.Second)
						if !leaves && rank < 2 {
							if _, err := n.World().Exclude(w.Ctx, []int{2}); err != nil {
								t.Errorf("rank %d: %v", rank, err)
							}
						}
						for c, err := range n.Epochs(w.Ctx) {
							if err != nil || c.Size() == 2 {
								return
							}
							if _, err := n.Reconfigure(w.Ctx); err != nil {
								return
							}
						}
					})
				}
				ranks.Wait()
				time.Sleep(5 * time.Second)
				ctx, cancel := context.WithTimeout(w.Ctx, time.Second)
				defer cancel()
				for e, err := range nodes[2].Failures(ctx) {
					if err == nil {
						t.Errorf("rank 2 sees a failure: %v", e)
					}
				}
				for rank := range nodes {
					if err := nodes[2-rank].Close(); err != nil {
						t.Errorf("close of rank %d: %v", 2-rank, err)
					}
				}
			})
		})
	}
}
