// Command allreduce averages a gradient over all ranks, as data-parallel
// training does after every step.
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

	// Every rank has computed a gradient from its own share of the data.
	gradient := make([]float32, 1_000_000)
	for i := range gradient {
		gradient[i] = float32(world.Rank())
	}
	if err := nexar.AllReduce(ctx, world, gradient, nexar.Avg); err != nil {
		log.Fatal(err)
	}
	// Now all have the same one, bit for bit.
	fmt.Printf("rank %d of %d: the mean gradient is %v\n", world.Rank(), world.Size(), gradient[len(gradient)-1])
}
