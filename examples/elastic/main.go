// Command elastic trains the network of examples/train, and continues when ranks die or join:
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
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/examples/train/digits"
	"github.com/nexar-go/nexar/examples/train/mlp"
	"github.com/nexar-go/nexar/examples/train/sgd"
)

const (
	seed   = 1
	batch  = 32
	hidden = 64
	rate   = 0.2
	held   = 0.2 // fraction of the images in the test set
)

func main() {
	log.SetFlags(0)
	epochs := flag.Int("epochs", 30, "number of passes over the images")
	pause := flag.Duration("pause", 0, "`time` to wait after each step, so that processes can be killed and started meanwhile")
	flag.Parse()
	if err := run(context.Background(), *epochs, *pause); err != nil {
		log.Fatal(err)
	}
}

// A job is the state of the training on one rank.
type job struct {
	train, test *digits.Set
	epochs      int
	pause       time.Duration
	net         *mlp.Network
	steps       int // completed steps of net
}

func run(ctx context.Context, epochs int, pause time.Duration) error {
	all, err := digits.Load()
	if err != nil {
		return err
	}
	j := &job{epochs: epochs, pause: pause, net: mlp.New(seed, digits.Pixels, hidden, digits.Classes)}
	j.train, j.test = all.Split(seed, held)
	node, err := nexar.Join(ctx, nexar.Config{})
	if err != nil {
		return err
	}
	defer node.Close()
	for comm, err := range node.Epochs(ctx) {
		if err != nil {
			return err
		}
		switch err := j.learn(ctx, node, comm); {
		case err == nil:
			return nil
		case err == errChanges:
		case errors.Is(err, nexar.ErrPeerFailed), errors.Is(err, nexar.ErrRevoked):
			fmt.Printf("in step %d: %v\n", j.steps, comm.Err())
		default:
			return err
		}
	}
	fmt.Printf("process %d has left after step %d\n", os.Getpid(), j.steps)
	return nil
}

// errChanges ends the work on a communicator, which the next one replaces.
var errChanges = errors.New("nodes join or leave")

// learn continues the training on a communicator.
func (j *job) learn(ctx context.Context, node *nexar.Node, c *nexar.Comm) error {
	trainer, err := j.sync(ctx, c)
	if err != nil {
		return err
	}
	fmt.Printf("rank %d of %d, process %d, begins with step %d\n", c.Rank(), c.Size(), os.Getpid(), j.steps)
	for perEpoch := (j.train.Len() + batch - 1) / batch; j.steps < j.epochs*perEpoch; {
		epoch, i := j.steps/perEpoch, j.steps%perEpoch
		order := rand.New(rand.NewPCG(seed, uint64(epoch))).Perm(j.train.Len())
		samples := order[i*batch : min((i+1)*batch, len(order))]
		if err := trainer.Step(ctx, j.train, samples, sgd.Falling(rate, epoch, j.epochs)); err != nil {
			return err
		}
		j.steps++
		if changed, err := node.Reconfigure(ctx); err != nil {
			return err
		} else if changed {
			return errChanges
		}
		time.Sleep(j.pause)
	}
	score, err := trainer.Test(ctx, j.test)
	if err == nil && c.Rank() == 0 {
		fmt.Printf("%d ranks have finished: accuracy %.1f%%\n", c.Size(), 100*score.Accuracy)
	}
	return err
}

// sync gives all ranks the state of the rank with the most steps. If a rank died during a step, some
// of the others may have completed it.
func (j *job) sync(ctx context.Context, c *nexar.Comm) (*sgd.Trainer, error) {
	steps, rank := []int64{int64(j.steps)}, []int32{0}
	if err := nexar.MaxLoc(ctx, c, steps, rank); err != nil {
		return nil, err
	}
	net := j.net
	if j.steps < int(steps[0]) {
		net = mlp.New(seed, digits.Pixels, hidden, digits.Classes) // the old weights remain until the new ones are received
	}
	trainer, err := sgd.New(ctx, c, net, sgd.Config{Batch: batch, Decay: 1e-3, Seed: seed, Root: int(rank[0])})
	if err != nil {
		return nil, err
	}
	j.net, j.steps = net, int(steps[0])
	return trainer, nil
}
