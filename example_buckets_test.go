package nexar_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/nexar-go/nexar"
)

// Average the gradients of all layers, long and short ones, in buckets.
func ExampleAllReduceBuckets() {
	ctx := context.Background()
	comms, err := nexar.Local(ctx, 4, nexar.Config{})
	if err != nil {
		log.Fatal(err)
	}
	var ranks sync.WaitGroup
	for _, c := range comms {
		ranks.Go(func() {
			defer c.Close()
			x := float32(c.Rank())
			gradients := [][]float32{
				{x, 2 * x, 3 * x}, // weights
				{10 + x},          // a bias
				{-x, -x},          // another one
			}
			if err := nexar.AllReduceBuckets(ctx, c, gradients, nexar.Avg); err != nil {
				log.Fatal(err)
			}
			if c.Rank() == 0 {
				fmt.Println(gradients)
			}
		})
	}
	ranks.Wait()
	// Output: [[1.5 3 4.5] [11.5] [-1.5 -1.5]]
}

// The weights of all layers, from rank 0.
func ExampleBroadcastBuckets() {
	onRanks(3, func(ctx context.Context, c *nexar.Comm) error {
		weights := [][]float32{make([]float32, 2), make([]float32, 1), nil, make([]float32, 3)}
		if c.Rank() == 0 {
			weights = [][]float32{{1, 2}, {3}, nil, {4, 5, 6}}
		}
		if err := nexar.BroadcastBuckets(ctx, c, weights, 0); err != nil {
			return err
		}
		if c.Rank() == 2 {
			fmt.Println(weights)
		}
		return nil
	})
	// Output: [[1 2] [3] [] [4 5 6]]
}

// Values of several types; the slice that names leads to gets the length that it has on rank 0.
func ExampleBroadcastValues() {
	onRanks(2, func(ctx context.Context, c *nexar.Comm) error {
		step, weights, names := int64(0), []float64{0, 0}, []byte(nil)
		if c.Rank() == 0 {
			step, weights, names = 12, []float64{0.5, 0.25}, []byte("w,b")
		}
		if err := nexar.BroadcastValues(ctx, c, 0, &step, weights, &names); err != nil {
			return err
		}
		if c.Rank() == 1 {
			fmt.Println(step, weights, string(names))
		}
		return nil
	})
	// Output: 12 [0.5 0.25] w,b
}
