package nexar_test

import (
	"context"
	"fmt"

	"github.com/nexar-go/nexar"
)

// Each rank of a grid of two rows gets a communicator of its row and one of its column.
func ExampleComm_Split() {
	onRanks(6, func(ctx context.Context, c *nexar.Comm) error {
		const columns = 3
		row, err := c.Split(ctx, c.Rank()/columns, c.Rank())
		if err != nil {
			return err
		}
		defer row.Close()
		column, err := c.Split(ctx, c.Rank()%columns, c.Rank())
		if err != nil {
			return err
		}
		defer column.Close()
		x, y := []int64{int64(c.Rank())}, []int64{int64(c.Rank())}
		if err := nexar.AllReduce(ctx, row, x, nexar.Sum); err != nil {
			return err
		}
		if err := nexar.AllReduce(ctx, column, y, nexar.Sum); err != nil {
			return err
		}
		if c.Rank() == 5 {
			fmt.Printf("row: rank %d of %d, sum %d\n", row.Rank(), row.Size(), x[0])
			fmt.Printf("column: rank %d of %d, sum %d\n", column.Rank(), column.Size(), y[0])
		}
		return nil
	})
	// Output:
	// row: rank 2 of 3, sum 12
	// column: rank 1 of 2, sum 7
}

// A communicator of listed ranks has the order of the list.
func ExampleComm_Sub() {
	onRanks(4, func(ctx context.Context, c *nexar.Comm) error {
		pair, err := c.Sub(ctx, []int{3, 1})
		if err != nil || pair == nil {
			return err // or this rank is not in the list
		}
		defer pair.Close()
		data := []int32{int32(c.Rank())}
		if err := nexar.Broadcast(ctx, pair, data, 0); err != nil {
			return err
		}
		if c.Rank() == 1 {
			fmt.Printf("rank %d, which is rank 1 of the world, has %d of rank %d\n", pair.Rank(), data[0], pair.WorldRank(0))
		}
		return nil
	})
	// Output: rank 1, which is rank 1 of the world, has 3 of rank 3
}
