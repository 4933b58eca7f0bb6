package cluster

import (
	"context"
	"errors"
	"sync"

	"github.com/nexar-go/nexar"
)

// formInProcess forms a world in the process of the worker: a seed and N nodes with their own
// sockets and default heartbeats.
func formInProcess(ctx context.Context, s *workerState, o command, _ *result) (err error) {
	if s.seed, err = nexar.StartSeed(ctx, nexar.SeedConfig{Listen: "127.0.0.1:0", World: o.N, AllowWeakToken: true}); err != nil {
		return err
	}
	nodes, errs := make([]*nexar.Node, o.N), make([]error, o.N)
	var joining sync.WaitGroup
	for i := range nodes {
		joining.Go(func() {
			nodes[i], errs[i] = nexar.Join(ctx, nexar.Config{Seeds: []string{s.seed.Addr()}, Listen: "127.0.0.1:0"})
		})
	}
	joining.Wait()
	for _, n := range nodes {
		if n != nil {
			s.nodes = append(s.nodes, n)
		}
	}
	return errors.Join(errs...)
}
