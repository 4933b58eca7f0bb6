// Command train trains a small network on handwritten digits. The ranks divide the images of each
// step, so the result does not depend on their number:
//
//	go run ./cmd/nexar run -n 4 -- go run ./examples/train
//
// Without a cluster it runs as one rank, or as several ranks of one process:
//
//	go run ./examples/train --local 4 --compress topk
//
// The command of the same name in the folder hw/examples reduces the gradients in the memory of GPUs.
//
// With NEXAR_DETERMINISTIC=1 all runs with the same number of ranks print the same digest of
// the weights, over every transport.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"sync"

	"github.com/nexar-go/nexar"
)

func main() {
	log.SetFlags(0)
	o, err := parse(os.Args[1:], os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = run(context.Background(), o, os.Stdout)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// run runs all ranks of this process: one if it is a node of a cluster.
func run(ctx context.Context, o options, out io.Writer) error {
	sets, err := o.load()
	if err != nil {
		return err
	}
	comms, leave, err := o.join(ctx)
	if err != nil {
		return err
	}
	errs := make([]error, len(comms))
	var ranks sync.WaitGroup
	for i, c := range comms {
		ranks.Go(func() {
			// Close ends the wait of other ranks for a failed one.
			errs[i] = errors.Join(o.train(ctx, c, sets, out), c.Close())
		})
	}
	ranks.Wait()
	return errors.Join(slices.Concat(errs, []error{leave()})...)
}

// join returns the communicators of the ranks of this process, and a function to call after they
// are closed.
func (o options) join(ctx context.Context) (comms []*nexar.Comm, leave func() error, err error) {
	cfg, err := nexar.ConfigFromEnv()
	if err != nil {
		return nil, nil, err
	}
	inCluster := len(cfg.Seeds) > 0
	switch {
	case inCluster && o.local > 0:
		return nil, nil, fmt.Errorf("--local %d: must not be used with NEXAR_SEEDS, which makes this process a node of a cluster", o.local)
	case inCluster:
		node, err := nexar.Join(ctx, cfg)
		if err != nil {
			return nil, nil, err
		}
		return []*nexar.Comm{node.World()}, node.Close, nil
	default:
		comms, err := nexar.Local(ctx, max(1, o.local), cfg)
		return comms, func() error { return nil }, err
	}
}
