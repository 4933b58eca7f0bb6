package nexar_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/compress"
)

// Each rank sends the largest element of its gradient, and adds the others to the next gradient:
// in step 1, rank 1 sends 6 + 6.
func ExampleAllReduceCompressed() {
	ctx := context.Background()
	comms, err := nexar.Local(ctx, 2, nexar.Config{})
	if err != nil {
		log.Fatal(err)
	}
	gradients := [][]float32{{1, -8, 3}, {6, -8, 5}} // by rank, the same in each step
	var ranks sync.WaitGroup
	for rank, c := range comms {
		ranks.Go(func() {
			defer c.Close()
			compressor := &compress.ErrorFeedback{Compressor: &compress.TopK{K: 1}}
			for step := range 2 {
				sum := append([]float32(nil), gradients[rank]...)
				if err := nexar.AllReduceCompressed(ctx, c, sum, nexar.Sum, compressor); err != nil {
					log.Fatal(err)
				}
				if rank == 0 {
					fmt.Println("step", step, sum)
				}
			}
		})
	}
	ranks.Wait()
	// Output:
	// step 0 [0 -16 0]
	// step 1 [12 -8 0]
}
