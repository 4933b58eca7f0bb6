package nexar_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/nexar-go/nexar"
)

// Find the slowest rank and its time in each phase of a step.
func ExampleMaxLoc() {
	ctx := context.Background()
	comms, err := nexar.Local(ctx, 3, nexar.Config{})
	if err != nil {
		log.Fatal(err)
	}
	phases := []string{"forward", "backward", "optimizer"}
	milliseconds := [][]float64{ // by rank
		{31, 60, 12},
		{30, 88, 12},
		{45, 61, 11},
	}
	var ranks sync.WaitGroup
	for rank, c := range comms {
		ranks.Go(func() {
			defer c.Close()
			slowest, who := milliseconds[rank], make([]int32, len(phases))
			if err := nexar.MaxLoc(ctx, c, slowest, who); err != nil {
				log.Fatal(err)
			}
			if rank == 0 {
				for i, phase := range phases {
					fmt.Printf("%s: %v ms on rank %d\n", phase, slowest[i], who[i])
				}
			}
		})
	}
	ranks.Wait()
	// Output:
	// forward: 45 ms on rank 2
	// backward: 88 ms on rank 1
	// optimizer: 12 ms on rank 0
}
