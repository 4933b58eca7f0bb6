package cluster

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nexar-go/nexar"
)

// TestSparse: nodes of sparse topologies work over real sockets, in the clear and encrypted, over one and two connections, and
// through relays.
func TestSparse(t *testing.T) {
	t.Parallel()
	for _, topology := range []string{"k-regular:2", "hypercube"} {
		for _, transports := range [][]string{{"quic"}, {"tcp"}, {"tcp", "quic"}, {"shm", "tcp", "quic"}} {
			t.Run(fmt.Sprint(topology, transports), func(t *testing.T) {
				nodes := form(t, 6, func(cfg *nexar.Config) {
					patientConfig(cfg)
					cfg.Topology, cfg.Transports = topology, transports
				})
				for _, n := range []int{1, 1000, 100_000} {
					mustBeNil(t, onEachNode(nodes, func(c *nexar.Comm) error { return allReduce(t.Context(), c, n, n) }))
					mustBeNil(t, onEachNode(nodes, func(c *nexar.Comm) error { return ring(t.Context(), c, n, n) }))
					mustBeNil(t, onEachNode(nodes, func(c *nexar.Comm) error {
						in, out := make([]int64, n*c.Size()), make([]int64, n*c.Size())
						for i := range out {
							out[i] = value(c.Rank(), i, n)
						}
						if err := nexar.AllToAll(t.Context(), c, in, out); err != nil {
							return err
						}
						return equal("all_to_all", in, func(i int) int64 { return value(i/n, c.Rank()*n+i%n, n) })
					}))
				}
				for rank, node := range nodes {
					near := node.Neighbors()
					for _, p := range node.Peers() {
						isNear := p.Hops == 1
						if (p.Transport == "relay") == isNear || isNear != slices.Contains(near, p.Rank) || p.LinkPurpose == "" {
							t.Errorf("rank %d has the neighbors %v and the peer %+v", rank, near, p)
						}
					}
				}
				closeAll(t, nodes)
			})
		}
	}
}

// TestSparseSendAndLeave: every rank sends to rank 0 and leaves, over real sockets. Their relays leave as well, and no message is lost.
func TestSparseSendAndLeave(t *testing.T) {
	for _, topology := range []string{"k-regular:2", "hypercube"} {
		t.Run(topology, func(t *testing.T) {
			nodes := form(t, 12, func(cfg *nexar.Config) {
				patientConfig(cfg)
				cfg.Topology, cfg.Transports = topology, []string{"tcp", "quic"}
			})
			mustBeNil(t, onEachNode(nodes, func(c *nexar.Comm) error {
				data := make([]int64, 3000)
				if c.Rank() != 0 {
					for i := range data {
						data[i] = value(c.Rank(), i, len(data))
					}
					if err := nexar.Send(t.Context(), c, data, 0, 1); err != nil {
						return err
					}
					return nodes[c.Rank()].Close()
				}
				for from := 1; from < c.Size(); from++ {
					if _, err := nexar.Recv(t.Context(), c, data, from, 1); err != nil {
						return err
					}
					if err := equal(fmt.Sprint("from rank ", from), data, func(i int) int64 { return value(from, i, len(data)) }); err != nil {
						return err
					}
				}
				return nodes[0].Close()
			}))
		})
	}
}
