package objects_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/objects"
)

// onRanks calls f for each of n ranks of this process. A program with one rank in each process gets its
// communicator from Node.World.
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
				log.Fatal(err)
			}
		})
	}
	ranks.Wait()
}

// Collect the findings of all ranks.
func ExampleAllGather() {
	onRanks(3, func(ctx context.Context, c *nexar.Comm) error {
		found := []map[string]int{{"warnings": 2}, {}, {"warnings": 1, "errors": 1}}[c.Rank()]
		all, err := objects.AllGather(ctx, c, found)
		if err == nil && c.Rank() == 1 {
			fmt.Println(all)
		}
		return err
	})
	// Output: [map[warnings:2] map[] map[errors:1 warnings:1]]
}

// Rank 0 reads a configuration, and all ranks get it.
func ExampleBroadcast() {
	type config struct {
		Model  string
		Layers []int
	}
	onRanks(2, func(ctx context.Context, c *nexar.Comm) error {
		var cfg config
		if c.Rank() == 0 {
			cfg = config{"small", []int{64, 32}}
		}
		cfg, err := objects.Broadcast(ctx, c, cfg, 0)
		if err == nil && c.Rank() == 1 {
			fmt.Println(cfg)
		}
		return err
	})
	// Output: {small [64 32]}
}

// Rank 0 prints the names of all ranks.
func ExampleGather() {
	onRanks(3, func(ctx context.Context, c *nexar.Comm) error {
		names, err := objects.Gather(ctx, c, fmt.Sprintf("worker-%d", c.Rank()), 0)
		if err == nil && c.Rank() == 0 {
			fmt.Println(names)
		}
		return err
	})
	// Output: [worker-0 worker-1 worker-2]
}

// Rank 0 gives each rank some files.
func ExampleScatter() {
	onRanks(2, func(ctx context.Context, c *nexar.Comm) error {
		var files [][]string
		if c.Rank() == 0 {
			files = [][]string{{"a.txt", "b.txt"}, {"c.txt"}}
		}
		own, err := objects.Scatter(ctx, c, files, 0)
		if err == nil && c.Rank() == 1 {
			fmt.Println(own)
		}
		return err
	})
	// Output: [c.txt]
}

// Send counts to the ranks that add them: rank 0 those of words from a to m, and rank 1 the others.
func ExampleAllToAll() {
	onRanks(2, func(ctx context.Context, c *nexar.Comm) error {
		counts := [][]map[string]int{
			{{"apple": 1}, {"pear": 2}},
			{{"apple": 3}, {"quince": 1}},
		}[c.Rank()]
		received, err := objects.AllToAll(ctx, c, counts)
		if err == nil && c.Rank() == 0 {
			fmt.Println(received)
		}
		return err
	})
	// Output: [map[apple:1] map[apple:3]]
}

// Send a task to another rank.
func ExampleSend() {
	type task struct {
		Name string
		Args []string
	}
	onRanks(2, func(ctx context.Context, c *nexar.Comm) error {
		if c.Rank() == 0 {
			return objects.Send(ctx, c, task{"resize", []string{"a.png", "50%"}}, 1, 0)
		}
		t, status, err := objects.Recv[task](ctx, c, nexar.AnyRank, 0)
		if err == nil {
			fmt.Println(t, "from rank", status.Source)
		}
		return err
	})
	// Output: {resize [a.png 50%]} from rank 0
}

// Encode objects by package gob, and allow 16 MiB of them.
func ExampleFormat() {
	points := objects.Format[map[[2]int]string]{Codec: nexar.Gob{}, MaxBytes: 16 << 20} // JSON has no such keys.
	onRanks(2, func(ctx context.Context, c *nexar.Comm) error {
		all, err := points.AllGather(ctx, c, map[[2]int]string{{c.Rank(), 1}: "x"})
		if err == nil && c.Rank() == 0 {
			fmt.Println(all)
		}
		return err
	})
	// Output: [map[[0 1]:x] map[[1 1]:x]]
}

// If the object of a rank cannot be encoded, all ranks get the same error, and can go on.
func ExampleEncodeError() {
	onRanks(2, func(ctx context.Context, c *nexar.Comm) error {
		var v any = "fine"
		if c.Rank() == 1 {
			v = func() {}
		}
		_, err := objects.AllGather(ctx, c, v)
		if failed, ok := errors.AsType[*objects.EncodeError](err); ok && c.Rank() == 0 {
			fmt.Println("rank", failed.Rank, "has no object:", err)
		}
		return c.Barrier(ctx)
	})
	// Output: rank 1 has no object: objects: all_gather: rank 1 cannot encode its interface {}: json: unsupported type: func()
}
