package nexar_test

import (
	"context"
	"fmt"

	"github.com/nexar-go/nexar"
)

// The weights of a gomlx tensor: its package has a bfloat16 of its own, "type BFloat16 uint16",
// which View makes one of this package. The memory is the same.
func ExampleView() {
	type BFloat16 uint16 // as in gomlx/pkg/core/dtypes/bfloat16
	onRanks(2, func(ctx context.Context, c *nexar.Comm) error {
		weights := []BFloat16{0x3f80, 0x4000} // 1 and 2
		if err := nexar.AllReduce(ctx, c, nexar.View[nexar.BFloat16](weights), nexar.Sum); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Printf("%#x %v\n", weights, nexar.View[nexar.BFloat16](weights))
		}
		return nil
	})
	// Output: [0x4000 0x4080] [2 4]
}

// Structs are reduced by a function: here the mean and the sum of squared deviations of samples
// (Chan, Golub and LeVeque 1983).
func ExampleAllReduceFunc_structs() {
	type moments struct {
		N        int64
		Mean, M2 float64
	}
	onRanks(3, func(ctx context.Context, c *nexar.Comm) error {
		own := []moments{{N: 1, Mean: float64(3 * c.Rank())}} // one sample: 0, 3 or 6
		err := nexar.AllReduceFunc(ctx, c, own, func(dst, src []moments) {
			for i, b := range src {
				a := &dst[i]
				n, delta := a.N+b.N, b.Mean-a.Mean
				a.M2 += b.M2 + delta*delta*float64(a.N)*float64(b.N)/float64(n)
				a.Mean += delta * float64(b.N) / float64(n)
				a.N = n
			}
		})
		if err == nil && c.Rank() == 0 {
			fmt.Printf("n=%d mean=%g variance=%g\n", own[0].N, own[0].Mean, own[0].M2/float64(own[0].N))
		}
		return err
	})
	// Output: n=3 mean=3 variance=6
}

// A []int is reduced as it is, and has 64 bits on the wire.
func ExampleAllReduce_int() {
	onRanks(4, func(ctx context.Context, c *nexar.Comm) error {
		histogram := make([]int, 3)
		histogram[c.Rank()%3] = 10
		if err := nexar.AllReduce(ctx, c, histogram, nexar.Sum); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(histogram)
		}
		return nil
	})
	// Output: [20 10 10]
}
