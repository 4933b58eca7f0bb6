package nexar_test

import (
	"context"
	"fmt"

	"github.com/nexar-go/nexar"
)

// Average the loss of a step over all ranks.
func ExampleAllReduceOne() {
	onRanks(4, func(ctx context.Context, c *nexar.Comm) error {
		loss := 1 / float64(c.Rank()+1)
		mean, err := nexar.AllReduceOne(ctx, c, loss, nexar.Avg)
		if err == nil && c.Rank() == 0 {
			fmt.Printf("%.3f\n", mean)
		}
		return err
	})
	// Output: 0.521
}

// Broadcast the seed of a random number generator from rank 0.
func ExampleBroadcastOne() {
	onRanks(3, func(ctx context.Context, c *nexar.Comm) error {
		seed := uint64(0)
		if c.Rank() == 0 {
			seed = 42
		}
		seed, err := nexar.BroadcastOne(ctx, c, seed, 0)
		if err == nil && c.Rank() == 2 {
			fmt.Println(seed)
		}
		return err
	})
	// Output: 42
}

// Gather the counts for AllGatherV: each rank knows only its own.
func ExampleAllGatherOne() {
	onRanks(3, func(ctx context.Context, c *nexar.Comm) error {
		found := make([]int32, c.Rank())
		for i := range found {
			found[i] = int32(10*c.Rank() + i)
		}
		counts, err := nexar.AllGatherOne(ctx, c, len(found))
		if err != nil {
			return err
		}
		all := make([]int32, counts[0]+counts[1]+counts[2])
		if err := nexar.AllGatherV(ctx, c, all, found, counts); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(counts, all)
		}
		return nil
	})
	// Output: [0 1 2] [10 20 21]
}

// Compute a mean over samples: rank 0 has three samples and rank 1 has one.
func ExampleAllReduceMean() {
	onRanks(2, func(ctx context.Context, c *nexar.Comm) error {
		samples := [][]float32{{1, 2, 3}, {10}}[c.Rank()]
		mean := []float32{0}
		for _, x := range samples {
			mean[0] += x / float32(len(samples))
		}
		if err := nexar.AllReduceMean(ctx, c, mean, float64(len(samples))); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(mean)
		}
		return nil
	})
	// Output: [4]
}

// Divide ten rows among four ranks.
func ExampleShares() {
	rows := []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	onRanks(4, func(ctx context.Context, c *nexar.Comm) error {
		counts := nexar.Shares(len(rows), c.Size())
		own := make([]int32, counts[c.Rank()])
		if err := nexar.ScatterV(ctx, c, own, rows, counts, 0); err != nil {
			return err
		}
		if c.Rank() == 1 {
			fmt.Println(counts, own)
		}
		return nil
	})
	// Output: [3 3 2 2] [3 4 5]
}

// Process the results of several receives in the order of their arrival.
func ExampleWaitAny() {
	onRanks(3, func(ctx context.Context, c *nexar.Comm) error {
		if c.Rank() > 0 {
			return nexar.Send(ctx, c, []int{100 * c.Rank()}, 0, 0)
		}
		results, handles := make([][]int, 3), make([]*nexar.Handle, 3) // none from rank 0
		for r := 1; r < 3; r++ {
			results[r] = make([]int, 1)
			handles[r] = nexar.StartRecv(ctx, c, results[r], r, 0)
		}
		total := 0
		for {
			i, err := nexar.WaitAny(ctx, handles...)
			if err != nil {
				return err
			}
			if i < 0 {
				break
			}
			total += results[i][0]
			handles[i] = nil
		}
		fmt.Println(total)
		return nil
	})
	// Output: 300
}

// Exchange the halo of a one-dimensional stencil. The first and last rank have one neighbor and need
// no special case.
func ExampleExchange_noRank() {
	onRanks(3, func(ctx context.Context, c *nexar.Comm) error {
		left, right := c.Rank()-1, c.Rank()+1
		if left < 0 {
			left = nexar.NoRank
		}
		if right == c.Size() {
			right = nexar.NoRank
		}
		x := []float64{-1, float64(c.Rank()), -1} // the element of this rank between two of its neighbors
		if _, err := nexar.Exchange(ctx, c, x[2:], x[1:2], left, right, 0); err != nil {
			return err
		}
		if _, err := nexar.Exchange(ctx, c, x[:1], x[1:2], right, left, 0); err != nil {
			return err
		}
		if c.Rank() == 2 {
			fmt.Println(x)
		}
		return nil
	})
	// Output: [1 2 -1]
}
