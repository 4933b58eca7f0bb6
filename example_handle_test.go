package nexar_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/nexar-go/nexar"
)

// onRanks calls f concurrently for each of n ranks in this process.
func onRanks(n int, f func(ctx context.Context, c *nexar.Comm) error) {
	ctx := context.Background()
	comms, err := nexar.Local(ctx, n, nexar.Config{})
	if err != nil {
		log.Fatal(err)
	}
	var ranks sync.WaitGroup
	for _, c := range comms {
		ranks.Go(func() {
			defer c.Close()
			if err := f(ctx, c); err != nil {
				log.Printf("rank %d: %v", c.Rank(), err)
			}
		})
	}
	ranks.Wait()
}

// Reduce one layer while the next one is computed.
func ExampleHandle() {
	onRanks(4, func(ctx context.Context, c *nexar.Comm) error {
		layers := make([][]float32, 3)
		handles := make([]*nexar.Handle, len(layers))
		for i := range layers {
			layers[i] = []float32{float32(i), float32(c.Rank())} // which takes its time
			handles[i] = nexar.StartAllReduce(ctx, c, layers[i], nexar.Sum)
		}
		if err := nexar.WaitAll(handles...); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(layers)
		}
		return nil
	})
	// Output: [[0 6] [4 6] [8 6]]
}

func ExampleStartExchange() {
	onRanks(3, func(ctx context.Context, c *nexar.Comm) error {
		next, prev := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
		got := make([]int32, 8)
		h := nexar.StartExchange(ctx, c, got, []int32{int32(c.Rank())}, next, prev, 0)
		select {
		case <-h.Done():
		case <-ctx.Done():
		}
		if err := h.Wait(); err != nil {
			return err
		}
		if s := h.Status(); c.Rank() == 0 {
			fmt.Printf("rank 0 has received %d from rank %d\n", got[:s.Count], s.Source)
		}
		return nil
	})
	// Output: rank 0 has received [2] from rank 2
}
