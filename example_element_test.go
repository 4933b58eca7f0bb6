package nexar_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/nexar-go/nexar"
)

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
	// Output: nexar: broadcast: invalid type of elements: string contains pointers or uintptrs, which have no meaning in another process: encode the values, such as by encoding/gob, and use the []byte
}
