package nexar_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/nexar-go/nexar"
)

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
