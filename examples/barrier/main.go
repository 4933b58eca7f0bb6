// Command barrier lets ranks arrive at a barrier one after the other, and
// shows that none goes on before the last has come.
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

// stagger is how much later each rank arrives than the one before.
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

	// The clocks begin together.
	if err := world.Barrier(ctx); err != nil {
		log.Fatal(err)
	}
	began := time.Now()
	time.Sleep(time.Duration(world.Rank()) * stagger)
	arrived := time.Since(began)
	if err := world.Barrier(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("rank %d came after %3d ms and went on after %3d ms\n",
		world.Rank(), arrived.Milliseconds(), time.Since(began).Milliseconds())
}
