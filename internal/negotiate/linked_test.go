package negotiate

import (
	"log/slog"
	"testing"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/transport"
)

// TestFirstUseIsTheSame: all ranks of a communicator choose alike, in the order of the world and in another one. They choose a gather
// with few links if any rank makes its links on demand. In the other order the root is linked to more ranks, since it
// does not negotiate with those of its watches.
func TestFirstUseIsTheSame(t *testing.T) {
	require.NoRace(t, "it repeats TestLinkedAfterNegotiation in many orders")
	const size = 46
	first, mixed := ranks(size), make([]int, size)
	for rank := range mixed {
		mixed[rank] = 15 * rank % size
	}
	w := treeWorld(t, size)
	for i, test := range []struct {
		name  string
		nodes []int
		eager func(rank int) bool
		want  string
	}{
		{"on demand", first, func(int) bool { return false }, "binomial"},
		{"another order", mixed, func(int) bool { return false }, "direct"},
		{"one on demand", first, func(rank int) bool { return rank != 3 }, "binomial"},
		{"all eager", first, func(int) bool { return true }, "direct"},
	} {
		members := make([]*member, len(test.nodes))
		for rank := range members {
			members[rank] = w.member(uint64(10+i), test.nodes, rank, transport.ClassQUIC, slog.New(slog.DiscardHandler))
			members[rank].OnDemand = !test.eager(rank)
		}
		runAll(t, members)
		requireSame(t, members, false)
		need := cost.Need{Collective: plan.Gather, Size: size, Bytes: 32 << 10, Blocks: true}
		for rank, p := range members {
			if got := p.Selector.Tuner().Choose(need).Algorithm.Name; got != test.want {
				t.Errorf("%s: rank %d gathers by %s, want %s", test.name, rank, got, test.want)
			}
		}
		closeAll(members)
	}
}

// TestLinkedAfterNegotiation: after the negotiation each rank has as many links as the cost model assumes.
func TestLinkedAfterNegotiation(t *testing.T) {
	for _, size := range []int{20, treeFrom + 5} {
		w := treeWorld(t, size)
		members := w.run(t, 7, ranks(size), transport.ClassTLS)
		for rank, p := range members {
			linked := make(map[int]bool)
			for _, peer := range p.linked(1)(rank) {
				linked[peer] = true
			}
			if got := w.linked(p.node); got != len(linked) {
				t.Errorf("%d ranks: rank %d is linked to %d others, the cost model counts %d", size, rank, got, len(linked))
			}
		}
		closeAll(members)
	}
}
