package cluster

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestManyRanksOfHost: a process among many of one host shares memory with all, although it is linked to few of them and
// maps the areas of few.
func TestManyRanksOfHost(t *testing.T) {
	t.Parallel()
	const (
		n = 32
		// A rank is linked to the twelve that watch it or that it watches, and to its partners in the negotiation. A
		// link has six pipes.
		linksMax = 22
		// Except the rank that reduces the vectors, a rank maps the areas of those that it is linked to, of its
		// neighbors and of its group.
		areasMax = linksMax + 6
	)
	c := newWorkerSet(t)
	workers := c.startWorld(n, "NEXAR_TRANSPORTS=shm")
	mustSucceed(t, runAll(workers, command{Do: "loop", Op: "barrier", Rounds: 3}))
	all := 0
	for rank, w := range workers {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", w.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		areas, pipes := strings.Count(string(text), "memfd:nexar-area"), strings.Count(string(text), "memfd:nexar-pipe")
		if areas < 2 || pipes == 0 || pipes > 6*linksMax {
			t.Errorf("rank %d has mapped %d areas and %d pipes, want at least 2 areas and at most %d pipes", rank, areas, pipes, 6*linksMax)
		}
		if areas > areasMax {
			all++
		}
	}
	if all > n/4 {
		t.Errorf("%d of %d ranks have mapped more than %d areas", all, n, areasMax)
	}
}
