// Command allreduce averages a gradient over all ranks, as data-parallel training does in each step.
//
//	go run ./cmd/nexar run -n 4 -- go run ./examples/allreduce
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/nexar-go/nexar"
)

func main() {
	log.SetFlags(0)
	ctx := context.Background()
	node, err := nexar.Join(ctx, nexar.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	world := node.World()

	// Each rank has a gradient of its part of the data.
	gradient := make([]float32, 1_000_000)
	for i := range gradient {
		gradient[i] = float32(world.Rank())
	}
	if err := nexar.AllReduce(ctx, world, gradient, nexar.Avg); err != nil {
		log.Fatal(err)
	}
	// All ranks have the same bits.
	fmt.Printf("rank %d of %d: the mean gradient is %v\n", world.Rank(), world.Size(), gradient[len(gradient)-1])
}
