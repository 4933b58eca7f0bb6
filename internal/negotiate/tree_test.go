package negotiate

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/engine/shmexec"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/transport"
)

// TestTreeOfWatches: the tree of the negotiation of many ranks has no edges but those between ranks that watch
// each other, before and after a rank has died.
func TestTreeOfWatches(t *testing.T) {
	for _, n := range []int{treeFrom, 66, 100, 127, 128, 255, 256, 511, 512, 1000, 1023, 1024, 1100} {
		v := membership.View{Nodes: make([]membership.Node, n)}
		a, g := overTree(membership.WatchDistances(n, 0)).Choose(cost.Need{}).Algorithm, membership.WatchGraph{}
		for rank, p := range a.Plans(n, 0) {
			for _, round := range p.Rounds {
				for i := range round {
					if peer := round[i].Peer; !g.Connects(v, rank, peer) {
						t.Fatalf("%d ranks: rank %d negotiates with rank %d, and neither watches the other", n, rank, peer)
					}
				}
			}
		}
	}
}

// treeWorld is a world of n ranks, which negotiate over a tree and share no memory.
func treeWorld(t *testing.T, n int) *world {
	t.Helper()
	w := formWorld(t, true, make([]int, n)...)
	w.onDemand = false
	return w
}

// TestNegotiationNeedsNoLinks: the ranks of a large world negotiate, and an all-reduce over the same tree works, although each
// is linked to the ranks that it watches and to those that watch it alone.
func TestNegotiationNeedsNoLinks(t *testing.T) {
	const watches = 12
	w := treeWorld(t, treeFrom+5)
	members := w.run(t, 7, ranks(treeFrom+5), transport.ClassTLS)
	requireSame(t, members, false)
	for node := range members {
		if got := w.linked(node); got > watches {
			t.Errorf("node %d is linked to %d others after the negotiation, want at most %d", node, got, watches)
		}
	}
	if shmexec.Processors() < len(members) {
		for c, want := range map[plan.Collective]string{plan.AllReduce: "ordered", plan.Barrier: "binomial"} {
			if got := members[0].Selector.Tuner().Choose(cost.Need{Collective: c, Size: len(members), Bytes: 8}).Algorithm.Name; got != want {
				t.Errorf("%v of ranks that share processors: %s, want %s", c, got, want)
			}
		}
	}
	sumAll(t, members, 1, 5000)
	closeAll(members)
}

// TestPartNegotiates: the ranks of a part of a large world negotiate over a tree as well, and link themselves to it.
func TestPartNegotiates(t *testing.T) {
	w := treeWorld(t, 2*treeFrom)
	var part []int
	for node := range treeFrom {
		part = append(part, 2*treeFrom-1-2*node)
	}
	members := w.run(t, 7, part, transport.ClassTLS)
	requireSame(t, members, false)
	sumAll(t, members, 1)
	closeAll(members)
}

// TestDeathInTree: a rank of a large world dies while the others negotiate. All of them get its failure.
func TestDeathInTree(t *testing.T) {
	victims := []int{0, 1, treeFrom / 2, treeFrom + 4}
	if testing.Short() {
		victims = victims[1:3]
	}
	for _, killed := range victims {
		w := treeWorld(t, treeFrom+5)
		n := len(w.meshes)
		members := make([]*member, n)
		for rank := range members {
			members[rank] = w.member(7, ranks(n), rank, transport.ClassTLS, slog.New(slog.DiscardHandler))
		}
		time.AfterFunc(20*time.Millisecond, func() { w.network.Kill(w.view.Nodes[killed].ID.String()) })
		for rank, err := range w.each(func(rank int) error {
			if rank == killed {
				return nil
			}
			return members[rank].run(t.Context())
		}) {
			if p, ok := errors.AsType[*engine.PeerError](err); rank != killed && (!ok || !isRank(p.Rank, killed) || p.Left) {
				t.Errorf("rank %d: %v, want the failure of rank %d", rank, err, killed)
			}
		}
	}
}
