package cluster

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/require"
)

// TestCutsBetweenHosts: the connections of random pairs of living hosts break, and packets between them are dropped for a
// while. All results are right, no node is removed, and a communicator ends only to be followed by one of the same ranks.
func TestCutsBetweenHosts(t *testing.T) {
	t.Parallel()
	const hosts, cuts = 5, 20
	_, err := exec.LookPath("ss")
	require.Have(t, "netns", err == nil, "the command ss of iproute2 is not installed")
	for _, topology := range []string{"full"} {
		t.Run(topology, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(rand.Uint64(), 0))
			c := newCluster(t, hosts, ipv4, func(*network, int) []string {
				return []string{"NEXAR_TOPOLOGY=" + topology, "NEXAR_TRANSPORTS=tcp"}
			})
			c.join()
			running := make([]<-chan result, hosts)
			for rank, w := range c.ranks {
				running[rank] = w.start(command{Do: "survive", Op: "all_to_all", N: 1000, Peer: hosts, Rounds: 1000})
			}
			made := 0
			for ; made < cuts && len(running[0]) == 0; made++ {
				time.Sleep(time.Duration(50+rng.IntN(150)) * time.Millisecond)
				a := rng.IntN(hosts)
				b := (a + 1 + rng.IntN(hosts-1)) % hosts
				c.cut(a, b, rng.IntN(2) == 0)
			}
			again := 0
			for rank, r := range awaitAll(c.ranks, running) {
				if r.Failure != nil {
					t.Errorf("rank %d: %v", rank, r.Failure)
				}
				for _, e := range r.Epochs {
					if e.Rank != rank || e.Size != hosts {
						t.Errorf("rank %d of %d has become rank %d of %d", rank, hosts, e.Rank, e.Size)
					}
				}
				again = max(again, len(r.Epochs)-1)
			}
			t.Logf("after %d cuts, %d communicators have ended", made, again)
			if made < cuts/4 {
				t.Errorf("%d cuts were made before the end, want at least %d", made, cuts/4)
			}
		})
	}
}

// cut breaks the connections between two hosts, or has one of them send nothing to the other for a while. The sessions with the
// seed stay.
func (c *cluster) cut(a, b int, breaks bool) {
	c.t.Helper()
	other := c.hosts[b].addr().String()
	if breaks {
		c.hosts[a].run("ss", "-K", "-t", fmt.Sprintf("dst %s and not ( sport = :%s or dport = :%s )", other, seedPort, seedPort))
		return
	}
	c.hosts[a].run("ip", "route", "add", "blackhole", other)
	time.Sleep(300 * time.Millisecond)
	c.hosts[a].run("ip", "route", "del", "blackhole", other)
}
