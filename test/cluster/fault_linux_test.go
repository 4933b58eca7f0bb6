package cluster

import (
	"net"
	"os"
	"testing"
)

// Workers of the original listened at 127.0.0.1 and sent the seed an empty
// address, so it never ran on more than one host. Here a node with nothing but
// the address of a seed listens at all of its addresses, and every other node
// knows one that leads to it.
func TestFaultWorkersBindLoopback(t *testing.T) {
	t.Parallel()
	for name, have := range map[string]family{"IPv4": ipv4, "IPv6": ipv6} {
		t.Run(name, func(t *testing.T) {
			const victim = 1
			c := newCluster(t, 3, have, func(*network, int) []string { return []string{"NEXAR_LISTEN="} })
			c.join()
			c.team[victim].kill(os.Kill)
			for _, rank := range []int{0, 2} {
				f := c.team[rank].do(order{Do: "loop", What: "barrier"}).Failure
				if f == nil {
					t.Fatalf("rank %d: no failure", rank)
				}
				host, port, err := net.SplitHostPort(f.Addr)
				if err != nil || host != c.hosts[victim].addr().String() || port == "" || port == "0" {
					t.Errorf("rank %d knows rank %d at %q, want %v and a port", rank, victim, f.Addr, c.hosts[victim].addr())
				}
			}
		})
	}
}
