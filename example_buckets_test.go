package nexar_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/nexar-go/nexar"
)

// The gradients of all layers are averaged together, however short some are.
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
