package nccl

import "context"

// WithSameGPU lets ranks of one host have the same GPU.
func (c Config) WithSameGPU() Config {
	c.sameGPU = true
	return c
}

// OnQueued calls f each time that this rank has queued transfers among the ranks of the host, before it waits for them.
// It is for groups that use NCCL.
func (g *Group) OnQueued(f func()) { g.inside = observed{g.inside, f} }

type observed struct {
	inside
	queued func()
}

func (o observed) run(ctx context.Context, transfers []transfer) error {
	err := o.inside.run(ctx, transfers)
	if err == nil {
		o.queued()
	}
	return err
}
