package nexar_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"sync"

	"github.com/nexar-go/nexar"
)

// Receive a message of unknown length into a vector of its length.
func ExampleProbe() {
	onRanks(2, func(ctx context.Context, c *nexar.Comm) error {
		if c.Rank() == 1 {
			return nexar.Send(ctx, c, []float64{3, 1, 4, 1, 5}, 0, 7)
		}
		coming, err := nexar.Probe[float64](ctx, c, nexar.AnyRank, nexar.AnyTag)
		if err != nil {
			return err
		}
		data := make([]float64, coming.Count)
		if _, err := nexar.Recv(ctx, c, data, coming.Source, coming.Tag); err != nil {
			return err
		}
		fmt.Printf("rank %d sent %v with tag %d\n", coming.Source, data, coming.Tag)
		return nil
	})
	// Output: rank 1 sent [3 1 4 1 5] with tag 7
}

// Each rank of a line sends its last element to the next rank, and receives that of the rank
// before it.
func ExampleExchange() {
	onRanks(3, func(ctx context.Context, c *nexar.Comm) error {
		own := []int32{int32(10 * c.Rank()), int32(10*c.Rank() + 1)}
		before := make([]int32, 1)
		next, prev := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
		if _, err := nexar.Exchange(ctx, c, before, own[1:], next, prev, 0); err != nil {
			return err
		}
		if c.Rank() == 2 {
			fmt.Println(before, own)
		}
		return nil
	})
	// Output: [11] [20 21]
}

// Send the rows of a block of a matrix, which are not contiguous, as one message, and receive it
// into two vectors.
func ExampleSendVec() {
	matrix := []int32{
		1, 2, 3, 4,
		5, 6, 7, 8,
		9, 10, 11, 12,
	}
	onRanks(2, func(ctx context.Context, c *nexar.Comm) error {
		if c.Rank() == 0 {
			return nexar.SendVec(ctx, c, [][]int32{matrix[1:3], matrix[5:7], matrix[9:11]}, 1, 0)
		}
		head, rest := make([]int32, 1), make([]int32, 8)
		got, err := nexar.RecvVec(ctx, c, [][]int32{head, rest}, 0, 0)
		if err != nil {
			return err
		}
		fmt.Println(got.Count, head, rest[:got.Count-1])
		return nil
	})
	// Output: 6 [2] [3 6 7 10 11]
}

// Rank 0 registers a function of bytes, and the others call it.
func ExampleComm_Call() {
	onRanks(2, func(ctx context.Context, c *nexar.Comm) error {
		if c.Rank() == 0 {
			c.Register("greet", func(_ context.Context, from int, args []byte) ([]byte, error) {
				return fmt.Appendf(nil, "hello %s of rank %d", args, from), nil
			})
		}
		if err := c.Barrier(ctx); err != nil { // By now it is registered.
			return err
		}
		if c.Rank() == 1 {
			answer, err := c.Call(ctx, 0, "greet", []byte("Ada"))
			if err != nil {
				return err
			}
			fmt.Printf("%s\n", answer)
		}
		return c.Barrier(ctx) // Rank 0 stays until then.
	})
	// Output: hello Ada of rank 1
}

// A Func has Go values as argument and result.
func ExampleFunc() {
	type request struct{ Key string }
	type entry struct{ Values []float32 }
	lookup := nexar.Func[request, entry]{Name: "lookup"}
	onRanks(2, func(ctx context.Context, c *nexar.Comm) error {
		table := map[string]entry{"bias": {[]float32{0.5, 1.5}}}
		lookup.Register(c, func(_ context.Context, _ int, r request) (entry, error) {
			e, ok := table[r.Key]
			if !ok {
				return e, fmt.Errorf("there is no %q", r.Key)
			}
			return e, nil
		})
		if err := c.Barrier(ctx); err != nil {
			return err
		}
		if c.Rank() == 1 {
			e, err := lookup.Call(ctx, c, 0, request{"bias"})
			if err != nil {
				return err
			}
			fmt.Println(e.Values)
			_, err = lookup.Call(ctx, c, 0, request{"weight"})
			if failed, ok := errors.AsType[*nexar.HandlerError](err); ok {
				fmt.Println(failed)
			}
		}
		return c.Barrier(ctx)
	})
	// Output:
	// [0.5 1.5]
	// there is no "weight"
}

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

// Each rank of a grid of two rows gets a communicator of its row and one of its column.
func ExampleComm_Split() {
	onRanks(6, func(ctx context.Context, c *nexar.Comm) error {
		const columns = 3
		row, err := c.Split(ctx, c.Rank()/columns, c.Rank())
		if err != nil {
			return err
		}
		defer row.Close()
		column, err := c.Split(ctx, c.Rank()%columns, c.Rank())
		if err != nil {
			return err
		}
		defer column.Close()
		x, y := []int64{int64(c.Rank())}, []int64{int64(c.Rank())}
		if err := nexar.AllReduce(ctx, row, x, nexar.Sum); err != nil {
			return err
		}
		if err := nexar.AllReduce(ctx, column, y, nexar.Sum); err != nil {
			return err
		}
		if c.Rank() == 5 {
			fmt.Printf("row: rank %d of %d, sum %d\n", row.Rank(), row.Size(), x[0])
			fmt.Printf("column: rank %d of %d, sum %d\n", column.Rank(), column.Size(), y[0])
		}
		return nil
	})
	// Output:
	// row: rank 2 of 3, sum 12
	// column: rank 1 of 2, sum 7
}

// A communicator of listed ranks has the order of the list.
func ExampleComm_Sub() {
	onRanks(4, func(ctx context.Context, c *nexar.Comm) error {
		pair, err := c.Sub(ctx, []int{3, 1})
		if err != nil || pair == nil {
			return err // or this rank is not in the list
		}
		defer pair.Close()
		data := []int32{int32(c.Rank())}
		if err := nexar.Broadcast(ctx, pair, data, 0); err != nil {
			return err
		}
		if c.Rank() == 1 {
			fmt.Printf("rank %d, which is rank 1 of the world, has %d of rank %d\n", pair.Rank(), data[0], pair.WorldRank(0))
		}
		return nil
	})
	// Output: rank 1, which is rank 1 of the world, has 3 of rank 3
}

// A trace shows the running operations of a rank: here an all-reduce that waits for rank
// 1, which has not called it yet.
func ExampleNode_Trace() {
	onRanks(2, func(ctx context.Context, c *nexar.Comm) error {
		if c.Rank() == 1 {
			if _, err := nexar.Recv(ctx, c, []int32{0}, 0, 7); err != nil {
				return err
			}
			return nexar.AllReduce(ctx, c, []float32{1}, nexar.Sum)
		}
		h := nexar.StartAllReduce(ctx, c, []float32{1}, nexar.Sum)
		for seen := false; !seen; {
			for _, o := range c.Trace().Operations { // of a Node, node.Trace()
				if o.Running() && len(o.Waiting) > 0 {
					fmt.Printf("%s of %d × %s waits for ranks %v\n", o.Op, o.Length, o.Type, o.Waiting)
					seen = true
				}
			}
		}
		if err := nexar.Send(ctx, c, []int32{0}, 1, 7); err != nil {
			return err
		}
		if err := h.Wait(); err != nil {
			return err
		}
		table := c.Trace().String() // for people
		fmt.Println(strings.Contains(table, "all_reduce #"), strings.Contains(table, "send to rank 1, tag 7, 1 × int32"))
		return nil
	})
	// Output:
	// all_reduce of 1 × float32 waits for ranks [1]
	// true true
}
