package conformance

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// LocalRanks and LocalRank describe the ranks of the same host, and SplitHost divides the ranks by host.
func TestLocalRanks(t *testing.T) {
	comms := worldtest.MemHosts().Cluster(t, 5, nexar.Config{}) // two ranks on each host
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		want := [][]int{{0, 1}, {0, 1}, {2, 3}, {2, 3}, {4}}[rank]
		if got := c.LocalRanks(); !slices.Equal(got, want) || c.LocalRank() != rank%2 {
			return fmt.Errorf("local ranks %v, own %d, want %v and %d", got, c.LocalRank(), want, rank%2)
		}
		here, err := c.SplitHost(t.Context())
		if err != nil {
			return err
		}
		defer here.Close()
		if here.Size() != len(want) || here.Rank() != rank%2 || here.LocalRank() != rank%2 || len(here.LocalRanks()) != len(want) {
			return fmt.Errorf("rank %d of %d on its host, want rank %d of %d", here.Rank(), here.Size(), rank%2, len(want))
		}
		sum := []int{rank}
		if err := nexar.AllReduce(t.Context(), here, sum, nexar.Sum); err != nil {
			return err
		}
		if total := []int{1, 5, 4}[rank/2]; sum[0] != total {
			return fmt.Errorf("the ranks of the host add up to %d, want %d", sum[0], total)
		}
		// The ranks of a communicator are its own, in another order.
		reversed, err := c.Split(t.Context(), 0, -rank)
		if err != nil {
			return err
		}
		defer reversed.Close()
		if got, want := reversed.LocalRanks(), [][]int{{3, 4}, {1, 2}, {0}}[rank/2]; !slices.Equal(got, want) {
			return fmt.Errorf("after a split the local ranks are %v, want %v", got, want)
		}
		return nil
	})
	local, err := nexar.Local(t.Context(), 3, nexar.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for rank, c := range local {
		if got := c.LocalRanks(); !slices.Equal(got, []int{0, 1, 2}) || c.LocalRank() != rank {
			t.Errorf("rank %d of one process has the local ranks %v", rank, got)
		}
		c.Close()
	}
}
