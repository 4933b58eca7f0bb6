// Command barrier shows that no rank leaves a barrier before the last one has entered it.
//
//	go run ./cmd/nexar run -n 4 -- go run ./examples/barrier
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/nexar-go/nexar"
)

// stagger is the time between the calls of two consecutive ranks.
const stagger = 200 * time.Millisecond

func main() {
	log.SetFlags(0)
	ctx := context.Background()
	node, err := nexar.Join(ctx, nexar.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	world := node.World()

	// Start the clocks together.
	if err := world.Barrier(ctx); err != nil {
		log.Fatal(err)
	}
	began := time.Now()
	time.Sleep(time.Duration(world.Rank()) * stagger)
	arrived := time.Since(began)
	if err := world.Barrier(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("rank %d entered after %3d ms and left after %3d ms\n",
		world.Rank(), arrived.Milliseconds(), time.Since(began).Milliseconds())
}
