// Command elastic trains the network of examples/train with package ddp, and continues when ranks die or join:
//
//	go run ./cmd/nexar run -n 4 --elastic -- go run ./examples/elastic --pause 20ms
//
// It prints process IDs. Kill a process with kill -9, and the others continue with the step after
// the last completed one. Start another process with the command that nexar run prints; it gets
// the weights and takes part from the next step on. A process that gets SIGTERM leaves after its
// current step. Batches do not depend on the number of ranks, so the result is that of the first
// four ranks, up to rounding.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/ddp"
	"github.com/nexar-go/nexar/examples/train/digits"
	"github.com/nexar-go/nexar/examples/train/mlp"
	"github.com/nexar-go/nexar/examples/train/sgd"
)

const (
	seed   = 1
	batch  = 32
	hidden = 64
	rate   = 0.2
	decay  = 1e-3
	held   = 0.2 // fraction of the images in the test set
)

func main() {
	log.SetFlags(0)
	epochs := flag.Int("epochs", 30, "number of passes over the images")
	pause := flag.Duration("pause", 0, "`time` to wait in each step, so that processes can be killed and started meanwhile")
	flag.Parse()
	if err := run(context.Background(), *epochs, *pause); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, epochs int, pause time.Duration) error {
	all, err := digits.Load()
	if err != nil {
		return err
	}
	train, test := all.Split(seed, held)
	sampler, err := ddp.NewSampler(train.Len(), batch, seed)
	if err != nil {
		return err
	}
	node, err := nexar.Join(ctx, nexar.Config{})
	if err != nil {
		return err
	}
	defer node.Close()

	net := mlp.New(seed, digits.Pixels, hidden, digits.Classes)
	var params []ddp.Param[float32]
	for i, l := range net.Layers {
		params = append(params, ddp.Param[float32]{Name: fmt.Sprint("layer ", i), Data: l.Params, Grad: l.Gradient})
	}
	var steps int64
	finished := false
	err = ddp.Run(ctx, node, &ddp.Job[float32]{
		Params: params, Sampler: sampler, Log: slog.Default(),
		World: func(_ context.Context, c *nexar.Comm, steps int64) error {
			fmt.Printf("rank %d of %d, process %d, begins with step %d\n", c.Rank(), c.Size(), os.Getpid(), steps)
			return nil
		},
		Gradients: func(_ context.Context, m *ddp.Model[float32], batch []int) error {
			time.Sleep(pause)
			mine := train.Pick(batch)
			net.Forward(mine.Images, mine.Labels)
			for i := range net.Backward(1 / float32(max(1, len(batch)))) {
				m.Ready(i)
			}
			return nil
		},
		Update: func(ddp.Result) error {
			rate := sgd.Falling(rate, int(sampler.Position().Epoch), epochs)
			for _, l := range net.Layers {
				for i, g := range l.Gradient {
					l.Params[i] -= float32(float32(rate) * (g + float32(decay*l.Params[i])))
				}
			}
			return nil
		},
		Until: func(done int64, next ddp.Position) bool {
			steps, finished = done, int(next.Epoch) == epochs
			return finished
		},
	})
	switch {
	case err != nil:
		return err
	case !finished:
		fmt.Printf("process %d has left after step %d\n", os.Getpid(), steps)
	case node.World().Rank() == 0:
		_, right := net.Forward(test.Images, test.Labels)
		fmt.Printf("%d ranks have finished: accuracy %.1f%%\n", node.World().Size(), 100*float64(right)/float64(test.Len()))
	}
	return nil
}
