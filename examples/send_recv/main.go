// Command send_recv passes a message around a ring: each rank receives it from the rank before, adds
// itself, and sends it to the next.
//
//	go run ./cmd/nexar run -n 4 -- go run ./examples/send_recv
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/nexar-go/nexar"
)

const tag = 1

func main() {
	log.SetFlags(0)
	ctx := context.Background()
	node, err := nexar.Join(ctx, nexar.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	world := node.World()
	rank, size := world.Rank(), world.Size()
	next, previous := (rank+1)%size, (rank+size-1)%size

	// visited[i] is 1 if the message has been at rank i.
	visited := make([]int32, size)
	if rank == 0 {
		visited[0] = 1
		if err := nexar.Send(ctx, world, visited, next, tag); err != nil {
			log.Fatal(err)
		}
	}
	status, err := nexar.Recv(ctx, world, visited, previous, tag)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("rank %d got %v from rank %d\n", rank, visited, status.Source)
	if rank != 0 {
		visited[rank] = 1
		if err := nexar.Send(ctx, world, visited, next, tag); err != nil {
			log.Fatal(err)
		}
	}
}
