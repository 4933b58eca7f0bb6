package shmexec

import (
	"testing"

	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/plan"
)

// Pieces returns pieces that fit into the areas, and few more of them than necessary.
func TestPiecesFit(t *testing.T) {
	const room, ranks = 64 << 10, 4
	for _, c := range []plan.Collective{plan.AllReduce, plan.AllGather, plan.AllToAll} {
		for _, a := range plan.Algorithms(c) {
			p := NewSchedule(a.Plans(ranks, 0)).Compile(0)
			if !p.Single {
				continue
			}
			for _, count := range []int{0, 1, 1000, 100_003, 10 << 20} {
				l := exec.Layout{Elem: 4, Count: count, Blocks: c != plan.AllReduce}
				pieces := p.Pieces(l, room)
				if need := p.room(l.Unit(p.Chunks, pieces)); need > room {
					t.Errorf("%v %s: %d elements in %d pieces need %d bytes", c, a.Name, count, pieces, need)
				}
				if least := p.room(l.Unit(p.Chunks, 1)) / room; pieces > 2+least*5/4 {
					t.Errorf("%v %s: %d elements in %d pieces, want about %d", c, a.Name, count, pieces, least)
				}
			}
		}
	}
}
