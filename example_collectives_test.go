package nexar_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/compress"
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

// Collectives that do not reduce take any struct of a fixed size without pointers.
func ExampleGather_structs() {
	type report struct {
		Step int64
		Loss float32
		Done bool
	}
	ctx := context.Background()
	comms, err := nexar.Local(ctx, 3, nexar.Config{})
	if err != nil {
		log.Fatal(err)
	}
	var ranks sync.WaitGroup
	for _, c := range comms {
		ranks.Go(func() {
			defer c.Close()
			own := report{Step: 7, Loss: 1 / float32(c.Rank()+1), Done: c.Rank() == 2}
			var all []report
			if c.Rank() == 0 {
				all = make([]report, c.Size())
			}
			if err := nexar.Gather(ctx, c, all, []report{own}, 0); err != nil {
				log.Fatal(err)
			}
			for rank, r := range all {
				fmt.Printf("rank %d: step %d, loss %.2f, done: %v\n", rank, r.Step, r.Loss, r.Done)
			}
		})
	}
	ranks.Wait()
	// Output:
	// rank 0: step 7, loss 1.00, done: false
	// rank 1: step 7, loss 0.50, done: false
	// rank 2: step 7, loss 0.33, done: true
}

// Elements with pointers are an error, since pointers are valid in one process only.
func ExampleBroadcast_pointers() {
	ctx := context.Background()
	comms, err := nexar.Local(ctx, 1, nexar.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer comms[0].Close()
	fmt.Println(nexar.Broadcast(ctx, comms[0], []string{"hello"}, 0))
	// Output: nexar: broadcast: invalid type of elements: string contains pointers or uintptrs, which have no meaning in another process: use package objects, which encodes values
}

// Gather different numbers of elements on all ranks: first the numbers, then the elements.
func ExampleAllGatherV() {
	ctx := context.Background()
	comms, err := nexar.Local(ctx, 3, nexar.Config{})
	if err != nil {
		log.Fatal(err)
	}
	var ranks sync.WaitGroup
	for _, c := range comms {
		ranks.Go(func() {
			defer c.Close()
			found := make([]float32, c.Rank()) // none on rank 0, one on rank 1, two on rank 2
			for i := range found {
				found[i] = float32(10*c.Rank() + i)
			}

			counts := make([]int, c.Size())
			if err := nexar.AllGather(ctx, c, counts, []int{len(found)}); err != nil {
				log.Fatal(err)
			}
			total := 0
			for _, n := range counts {
				total += n
			}
			all := make([]float32, total)
			if err := nexar.AllGatherV(ctx, c, all, found, counts); err != nil {
				log.Fatal(err)
			}
			if c.Rank() == 0 {
				fmt.Println(counts, all)
			}
		})
	}
	ranks.Wait()
	// Output: [0 1 2] [10 20 21]
}

// Send each token to the rank of its expert. The number sent to a rank must equal the number that
// this rank expects.
func ExampleAllToAllV() {
	ctx := context.Background()
	comms, err := nexar.Local(ctx, 2, nexar.Config{})
	if err != nil {
		log.Fatal(err)
	}
	tokens := [][]int32{{1, 2, 3}, {4}}    // of ranks 0 and 1
	toRank := [][]int{{1, 2}, {0, 1}}      // how many go to ranks 0 and 1
	fromRank := [][]int{{1, 0}, {2, 1}}    // how many come from them
	expects := [][]int32{{0}, {0, 0, 0}}   // room for them
	outputs := make([]string, len(tokens)) // by rank
	var ranks sync.WaitGroup
	for rank, c := range comms {
		ranks.Go(func() {
			defer c.Close()
			if err := nexar.AllToAllV(ctx, c, expects[rank], tokens[rank], fromRank[rank], toRank[rank]); err != nil {
				log.Fatal(err)
			}
			outputs[rank] = fmt.Sprintf("rank %d has tokens %v", rank, expects[rank])
		})
	}
	ranks.Wait()
	for _, line := range outputs {
		fmt.Println(line)
	}
	// Output:
	// rank 0 has tokens [1]
	// rank 1 has tokens [2 3 4]
}

// Average the loss of a step over all ranks.
func ExampleAllReduceOne() {
	onRanks(4, func(ctx context.Context, c *nexar.Comm) error {
		loss := 1 / float64(c.Rank()+1)
		mean, err := nexar.AllReduceOne(ctx, c, loss, nexar.Avg)
		if err == nil && c.Rank() == 0 {
			fmt.Printf("%.3f\n", mean)
		}
		return err
	})
	// Output: 0.521
}

// Broadcast the seed of a random number generator from rank 0.
func ExampleBroadcastOne() {
	onRanks(3, func(ctx context.Context, c *nexar.Comm) error {
		seed := uint64(0)
		if c.Rank() == 0 {
			seed = 42
		}
		seed, err := nexar.BroadcastOne(ctx, c, seed, 0)
		if err == nil && c.Rank() == 2 {
			fmt.Println(seed)
		}
		return err
	})
	// Output: 42
}

// Collect the process IDs of all ranks: here a number of each.
func ExampleAllGatherOne() {
	onRanks(3, func(ctx context.Context, c *nexar.Comm) error {
		all, err := nexar.AllGatherOne(ctx, c, 100+c.Rank())
		if err == nil && c.Rank() == 0 {
			fmt.Println(all)
		}
		return err
	})
	// Output: [100 101 102]
}

// Gather different numbers of elements: each rank knows only its own.
func ExampleAllGatherVAlloc() {
	onRanks(3, func(ctx context.Context, c *nexar.Comm) error {
		found := make([]int32, c.Rank())
		for i := range found {
			found[i] = int32(10*c.Rank() + i)
		}
		all, counts, err := nexar.AllGatherVAlloc(ctx, c, found)
		if err == nil && c.Rank() == 0 {
			fmt.Println(counts, all)
		}
		return err
	})
	// Output: [0 1 2] [10 20 21]
}

// Send each number to the rank that owns it. No rank knows how many it gets.
func ExampleAllToAllVAlloc() {
	onRanks(2, func(ctx context.Context, c *nexar.Comm) error {
		numbers := [][]int32{{2, 4, 7}, {6, 1, 3}}[c.Rank()] // even numbers belong to rank 0, and come first
		counts := [][]int{{2, 1}, {1, 2}}[c.Rank()]
		own, from, err := nexar.AllToAllVAlloc(ctx, c, numbers, counts)
		if err == nil && c.Rank() == 1 {
			fmt.Println(from, own)
		}
		return err
	})
	// Output: [1 2] [7 1 3]
}

// Compute a mean over samples: rank 0 has three samples and rank 1 has one.
func ExampleAllReduceMean() {
	onRanks(2, func(ctx context.Context, c *nexar.Comm) error {
		samples := [][]float32{{1, 2, 3}, {10}}[c.Rank()]
		mean := []float32{0}
		for _, x := range samples {
			mean[0] += x / float32(len(samples))
		}
		if err := nexar.AllReduceMean(ctx, c, mean, float64(len(samples))); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println(mean)
		}
		return nil
	})
	// Output: [4]
}

// Divide ten rows among four ranks.
func ExampleShares() {
	rows := []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	onRanks(4, func(ctx context.Context, c *nexar.Comm) error {
		counts := nexar.Shares(len(rows), c.Size())
		own := make([]int32, counts[c.Rank()])
		if err := nexar.ScatterV(ctx, c, own, rows, counts, 0); err != nil {
			return err
		}
		if c.Rank() == 1 {
			fmt.Println(counts, own)
		}
		return nil
	})
	// Output: [3 3 2 2] [3 4 5]
}

// Process the results of several receives in the order of their arrival.
func ExampleWaitAny() {
	onRanks(3, func(ctx context.Context, c *nexar.Comm) error {
		if c.Rank() > 0 {
			return nexar.Send(ctx, c, []int{100 * c.Rank()}, 0, 0)
		}
		results, handles := make([][]int, 3), make([]*nexar.Handle, 3) // none from rank 0
		for r := 1; r < 3; r++ {
			results[r] = make([]int, 1)
			handles[r] = nexar.StartRecv(ctx, c, results[r], r, 0)
		}
		total := 0
		for {
			i, err := nexar.WaitAny(ctx, handles...)
			if err != nil {
				return err
			}
			if i < 0 {
				break
			}
			total += results[i][0]
			handles[i] = nil
		}
		fmt.Println(total)
		return nil
	})
	// Output: 300
}

// Exchange the halo of a one-dimensional stencil. The first and last rank have one neighbor and need
// no special case.
func ExampleExchange_noRank() {
	onRanks(3, func(ctx context.Context, c *nexar.Comm) error {
		left, right := c.Rank()-1, c.Rank()+1
		if left < 0 {
			left = nexar.NoRank
		}
		if right == c.Size() {
			right = nexar.NoRank
		}
		x := []float64{-1, float64(c.Rank()), -1} // the element of this rank between two of its neighbors
		if _, err := nexar.Exchange(ctx, c, x[2:], x[1:2], left, right, 0); err != nil {
			return err
		}
		if _, err := nexar.Exchange(ctx, c, x[:1], x[1:2], right, left, 0); err != nil {
			return err
		}
		if c.Rank() == 2 {
			fmt.Println(x)
		}
		return nil
	})
	// Output: [1 2 -1]
}

// Find the slowest rank and its time in each phase of a step.
func ExampleMaxLoc() {
	ctx := context.Background()
	comms, err := nexar.Local(ctx, 3, nexar.Config{})
	if err != nil {
		log.Fatal(err)
	}
	phases := []string{"forward", "backward", "optimizer"}
	milliseconds := [][]float64{ // by rank
		{31, 60, 12},
		{30, 88, 12},
		{45, 61, 11},
	}
	var ranks sync.WaitGroup
	for rank, c := range comms {
		ranks.Go(func() {
			defer c.Close()
			slowest, who := milliseconds[rank], make([]int32, len(phases))
			if err := nexar.MaxLoc(ctx, c, slowest, who); err != nil {
				log.Fatal(err)
			}
			if rank == 0 {
				for i, phase := range phases {
					fmt.Printf("%s: %v ms on rank %d\n", phase, slowest[i], who[i])
				}
			}
		})
	}
	ranks.Wait()
	// Output:
	// forward: 45 ms on rank 2
	// backward: 88 ms on rank 1
	// optimizer: 12 ms on rank 0
}

// Each rank sends the largest element of its gradient, and adds the others to the next gradient:
// in step 1, rank 1 sends 6 + 6.
func ExampleAllReduceCompressed() {
	ctx := context.Background()
	comms, err := nexar.Local(ctx, 2, nexar.Config{})
	if err != nil {
		log.Fatal(err)
	}
	gradients := [][]float32{{1, -8, 3}, {6, -8, 5}} // by rank, the same in each step
	var ranks sync.WaitGroup
	for rank, c := range comms {
		ranks.Go(func() {
			defer c.Close()
			compressor := &compress.ErrorFeedback{Compressor: &compress.TopK{K: 1}}
			for step := range 2 {
				sum := append([]float32(nil), gradients[rank]...)
				if err := nexar.AllReduceCompressed(ctx, c, sum, nexar.Sum, compressor); err != nil {
					log.Fatal(err)
				}
				if rank == 0 {
					fmt.Println("step", step, sum)
				}
			}
		})
	}
	ranks.Wait()
	// Output:
	// step 0 [0 -16 0]
	// step 1 [12 -8 0]
}

// Average the gradients of all layers, long and short ones, in buckets.
func ExampleAllReduceBuckets() {
	ctx := context.Background()
	comms, err := nexar.Local(ctx, 4, nexar.Config{})
	if err != nil {
		log.Fatal(err)
	}
	var ranks sync.WaitGroup
	for _, c := range comms {
		ranks.Go(func() {
			defer c.Close()
			x := float32(c.Rank())
			gradients := [][]float32{
				{x, 2 * x, 3 * x}, // weights
				{10 + x},          // a bias
				{-x, -x},          // another one
			}
			if err := nexar.AllReduceBuckets(ctx, c, gradients, nexar.Avg); err != nil {
				log.Fatal(err)
			}
			if c.Rank() == 0 {
				fmt.Println(gradients)
			}
		})
	}
	ranks.Wait()
	// Output: [[1.5 3 4.5] [11.5] [-1.5 -1.5]]
}

// The weights of all layers, from rank 0.
func ExampleBroadcastBuckets() {
	onRanks(3, func(ctx context.Context, c *nexar.Comm) error {
		weights := [][]float32{make([]float32, 2), make([]float32, 1), nil, make([]float32, 3)}
		if c.Rank() == 0 {
			weights = [][]float32{{1, 2}, {3}, nil, {4, 5, 6}}
		}
		if err := nexar.BroadcastBuckets(ctx, c, weights, 0); err != nil {
			return err
		}
		if c.Rank() == 2 {
			fmt.Println(weights)
		}
		return nil
	})
	// Output: [[1 2] [3] [] [4 5 6]]
}

// Values of several types; the slice that names leads to gets the length that it has on rank 0.
func ExampleBroadcastValues() {
	onRanks(2, func(ctx context.Context, c *nexar.Comm) error {
		step, weights, names := int64(0), []float64{0, 0}, []byte(nil)
		if c.Rank() == 0 {
			step, weights, names = 12, []float64{0.5, 0.25}, []byte("w,b")
		}
		if err := nexar.BroadcastValues(ctx, c, 0, &step, weights, &names); err != nil {
			return err
		}
		if c.Rank() == 1 {
			fmt.Println(step, weights, string(names))
		}
		return nil
	})
	// Output: 12 [0.5 0.25] w,b
}
