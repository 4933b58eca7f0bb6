package nexar_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/nexar-go/nexar"
)

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
