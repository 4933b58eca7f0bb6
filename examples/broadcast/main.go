// Command broadcast copies the initial weights of rank 0 to all ranks.
//
//	go run ./cmd/nexar run -n 4 -- go run ./examples/broadcast
package main

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"

	"github.com/nexar-go/nexar"
)

const root = 0

func main() {
	log.SetFlags(0)
	ctx := context.Background()
	node, err := nexar.Join(ctx, nexar.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	world := node.World()

	weights := make([]float64, 4)
	if world.Rank() == root {
		for i := range weights {
			weights[i] = rand.NormFloat64()
		}
	}
	if err := nexar.Broadcast(ctx, world, weights, root); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("rank %d begins with %.3f\n", world.Rank(), weights)
}
