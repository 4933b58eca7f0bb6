// Command rpc is a key-value store sharded over the ranks: each stores some of the keys and serves
// calls of the others for them.
//
//	go run ./cmd/nexar run -n 4 -- go run ./examples/rpc
//
// It also shows the errors of a handler that fails and of a call that times out.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/nexar-go/nexar"
)

// timeout is the time that rank 0 waits for a key that no rank puts into the store.
const timeout = 100 * time.Millisecond

func main() {
	log.SetFlags(0)
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	node, err := nexar.Join(ctx, nexar.Config{})
	if err != nil {
		return err
	}
	defer node.Close()
	world := node.World()
	rank, size := world.Rank(), world.Size()

	s, err := open(ctx, world)
	if err != nil {
		return err
	}
	if err := s.Put(ctx, greeting(rank), fmt.Sprintf("hello from rank %d", rank)); err != nil {
		return err
	}
	// The next rank may not have put its greeting yet. Await waits at the owner of the key, without
	// polling.
	key := greeting((rank + 1) % size)
	value, err := s.Await(ctx, key)
	if err != nil {
		return err
	}
	fmt.Printf("rank %d finds %s at rank %d: %s\n", rank, key, s.Owner(key), value)

	if rank == 0 {
		if err := ask(ctx, s, "farewell/0"); err != nil {
			return err
		}
	}
	// The keys of a rank are lost when it leaves, so no rank leaves before all have finished.
	return world.Barrier(ctx)
}

func greeting(rank int) string { return fmt.Sprintf("greeting/%d", rank) }

// ask requests a key that is never put, and distinguishes the two errors.
func ask(ctx context.Context, s *store, key string) error {
	_, err := s.Get(ctx, key)
	refusal, ok := errors.AsType[*nexar.HandlerError](err)
	if !ok {
		return fmt.Errorf("get %s: got error %v, want a HandlerError", key, err)
	}
	fmt.Printf("rank %d says: %s\n", s.Owner(key), refusal.Text)

	short, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err = s.Await(short, key)
	call, ok := errors.AsType[*nexar.CallError](err)
	if !ok || !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("await %s: got error %v, want DeadlineExceeded", key, err)
	}
	fmt.Printf("rank %d has not answered after %v\n", call.Rank, timeout)
	return nil
}
