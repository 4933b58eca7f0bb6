package conformance

import (
	"fmt"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestUneven runs every collective with blocks of different lengths by all algorithms,
// with all roots: with empty blocks, a single block that is not empty, a single element
// beside 1 MiB, and lengths around every limit. Over mem it runs all trials, over other
// transports a sample of them.
func TestUneven(t *testing.T) {
	require.NoRace(t, "it repeats TestConformance with other lengths")
	for _, test := range []struct {
		worldtest.Medium
		ranks  []int
		sample uint64 // runs one of so many trials
	}{
		{worldtest.Mem(), []int{1, 2, 3, 4, 5, 6, 7, 8, 9}, 1},
		{worldtest.MemLinks(), []int{2, 3, 5, 8}, 3},
		{worldtest.Sim(), []int{2, 3, 5}, 12},
		{worldtest.QUIC(), []int{2, 3, 5}, 12},
		{worldtest.SHM(), []int{2, 3, 5}, 6},
		{worldtest.SHMLinks(), []int{3}, 12},
		{worldtest.TLS(), []int{3}, 12},
		{worldtest.TCP(), []int{3}, 12},
		{worldtest.Mixed(), []int{3, 4, 6}, 20},
	} {
		test.sample = worldtest.Thin(test.sample)
		for _, n := range test.ranks {
			t.Run(fmt.Sprintf("%s/ranks=%d", test.Name, n), func(t *testing.T) {
				test.Require(t)
				comms := test.Cluster(t, n, nexar.Config{})
				b := unevenGenerator{n: n, kinds: unevenKinds()}
				tried := make(map[plan.Collective]int)
				all, sampled := uint64(0), 0
				for u := range b.trials {
					all++
					if tried[u.collective] > 0 && worldtest.Mix(all)%test.sample != 0 {
						continue
					}
					sampled++
					tried[u.collective]++
					if err := u.run(comms); err != nil {
						t.Fatal(err)
					}
				}
				t.Logf("%d of %d trials, by collective %v", sampled, all, tried)
			})
		}
	}
}

// An unevenGenerator generates trials for n ranks.
type unevenGenerator struct {
	n     int
	kinds []*kind
	drawn uint64
}

// trials returns all trials.
func (b *unevenGenerator) trials(yield func(unevenTrial) bool) {
	for _, c := range []plan.Collective{plan.Gather, plan.AllGather, plan.Scatter, plan.ReduceScatter, plan.AllToAll} {
		roots := 1
		if c.Rooted() {
			roots = b.n
		}
		for _, w := range choicesOf(c, b.n) {
			for root := range roots {
				for shape := range shapes {
					u := b.draw(trial{collective: c, root: root}, w, shape)
					if !yield(u) {
						return
					}
				}
				u := b.draw(trial{collective: c, root: root}, w, shapes+int(b.drawn%long))
				if b.drawn%3 == 0 && !yield(u) {
					return
				}
			}
		}
	}
}

// draw fills in the open fields of a trial. They vary between trials, and are the same in
// each run.
func (b *unevenGenerator) draw(tr trial, p pinned, shape int) unevenTrial {
	b.drawn++
	h := worldtest.Mix(b.drawn)
	tr.kind, tr.op, tr.algorithm = b.kinds[h%uint64(len(b.kinds))], nexar.Sum, -1
	if tr.collective == plan.ReduceScatter {
		list := tr.kind.ops()
		tr.op = list[h>>16%uint64(len(list))]
	}
	tr.flavour = flavour(h >> 24 % uint64(flavours))
	tr.late = int(h >> 32 % uint64(8*b.n)) // usually none
	tr.inPlace = int(h >> 40 % 3)
	u := unevenTrial{trial: tr, how: p, begun: h>>48%3 == 0}
	rows := 1
	if tr.collective == plan.AllToAll {
		rows = b.n
	}
	for row := range rows {
		u.lengths = append(u.lengths, b.row(shape, row+int(h>>52), tr.kind.typ.Size()))
	}
	return u
}

// Numbers of the shapes of row. Those from shapes on have long blocks.
const (
	shapes = 6
	long   = 3
)

// row returns the lengths of n blocks, for elements of a given size in bytes.
func (b *unevenGenerator) row(shape, turn, elem int) []int {
	row := make([]int, b.n)
	for i := range row {
		k := (i + turn) % b.n // so that each rank has each role in turn
		h := worldtest.Mix(uint64(100*turn + i))
		switch shape {
		case 0: // all blocks are empty
		case 1:
			row[i] = 1
		case 2: // one block has all elements
			if k == 0 {
				row[i] = 1009
			}
		case 3: // every other block is empty
			row[i] = k % 2 * 513
		case 4:
			row[i] = 37 * k
		case 5: // random, in all orders of magnitude
			row[i] = int(h>>8) % (1 << (h % 12))
		case 6: // one element beside 1 MiB
			row[i] = 1
			if k == 0 {
				row[i] = 1 << 20 / elem
			}
		case 7: // around the longest that is sent without a grant, and a piece in shared memory
			row[i] = wire.PayloadMax/elem + k - 1
		case 8: // around the longest piece of a granted message
			row[i] = k % 2 * (wire.SegmentMax/elem + k%3 - 1)
			if b.n > 4 {
				row[i] /= 8 // All combinations would take too long.
			}
		}
	}
	return row
}
