package cluster

import (
	"context"
	"errors"
	"sync"

	"github.com/nexar-go/nexar"
)

// assemble has a world form in the process of the worker: a seed, and N nodes with
// sockets of their own, and with settings for heartbeats that are the defaults.
func assemble(ctx context.Context, d *desk, o order, _ *report) (err error) {
	if d.seed, err = nexar.StartSeed(ctx, nexar.SeedConfig{Listen: "127.0.0.1:0", World: o.N}); err != nil {
		return err
	}
	nodes, errs := make([]*nexar.Node, o.N), make([]error, o.N)
	var joining sync.WaitGroup
	for i := range nodes {
		joining.Go(func() {
			nodes[i], errs[i] = nexar.Join(ctx, nexar.Config{Seeds: []string{d.seed.Addr()}, Listen: "127.0.0.1:0"})
		})
	}
	joining.Wait()
	for _, n := range nodes {
		if n != nil {
			d.crowd = append(d.crowd, n)
		}
	}
	return errors.Join(errs...)
}
