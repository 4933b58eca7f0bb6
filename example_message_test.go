package nexar_test

import (
	"context"
	"fmt"

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
