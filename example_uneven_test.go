package nexar_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/nexar-go/nexar"
)

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
