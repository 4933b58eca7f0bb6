package cluster

import (
	"net"
	"os"
	"testing"
)

// Nodes of nexar 0.1 listened at 127.0.0.1 and sent the seed an empty address, so that a world
// never had more than one host. Here a node that knows only the address of a seed listens at all
// its addresses, and all other nodes get an address that they can reach.
func TestFaultWorkersBindLoopback(t *testing.T) {
	t.Parallel()
	for name, have := range map[string]family{"IPv4": ipv4, "IPv6": ipv6} {
		t.Run(name, func(t *testing.T) {
			const victim = 1
			c := newCluster(t, 3, have, func(*network, int) []string { return []string{"NEXAR_LISTEN="} })
			c.join()
			c.ranks[victim].kill(os.Kill)
			for _, rank := range []int{0, 2} {
				f := c.ranks[rank].do(command{Do: "loop", Op: "barrier"}).Failure
				if f == nil {
					t.Fatalf("rank %d: no failure", rank)
				}
				host, port, err := net.SplitHostPort(f.Addr)
				if err != nil || host != c.hosts[victim].addr().String() || port == "" || port == "0" {
					t.Errorf("rank %d: address %q of rank %d, want %v and a port", rank, f.Addr, victim, c.hosts[victim].addr())
				}
			}
		})
	}
}
