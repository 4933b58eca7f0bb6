package nexar

import (
	"context"
	"slices"

	"github.com/nexar-go/nexar/internal/collective"
)

// LocalRanks returns the ranks of this communicator on the host of this node, including its own, in
// ascending order. Processes are on the same host if they share its network, so containers with
// separate networks count as separate hosts.
func (c *Comm) LocalRanks() (ranks []int) {
	own := c.impl.Nodes[c.impl.Rank].Host
	for rank, n := range c.impl.Nodes {
		if rank == c.impl.Rank || own != "" && n.Host == own {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// LocalRank returns the position of this rank in [Comm.LocalRanks], from 0 on, for example
// to choose an accelerator of the host. Other launchers call it LOCAL_RANK.
func (c *Comm) LocalRank() int { return slices.Index(c.LocalRanks(), c.impl.Rank) }

// SplitHost makes a communicator of the ranks on each host, in the order of their ranks
// here, as MPI_Comm_split_type does for MPI_COMM_TYPE_SHARED. All ranks call it as they call
// [Comm.Split].
func (c *Comm) SplitHost(ctx context.Context) (*Comm, error) {
	return c.split(ctx, collective.SplitHostOp, c.LocalRanks()[0], c.impl.Rank, nil)
}
