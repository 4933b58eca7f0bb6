package ddp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nexar-go/nexar"
)

// A Job is a training that [Run] carries out.
type Job[T Float] struct {
	Params []Param[T]
	// State is the rest of the state that a step changes, such as the moments of an optimizer: values that [nexar.BroadcastValues] takes, with the same types and lengths on
	// all ranks. A node that joins gets them.
	State   []any
	Sampler *Sampler
	Config  Config // without Root
	// Gradients sets the gradients of the parameters to the mean over the samples of a batch, which may be empty, and calls [Model.Ready] for each.
	Gradients func(ctx context.Context, m *Model[T], batch []int) error
	// Update updates the parameters and the State by the gradients. It must do the same on all ranks, and make no call of package nexar. After an error of it
	// Run ends.
	Update func(r Result) error
	// Until reports whether the training has ended, given the number of complete steps and the position of the next batch. It must return the same on all ranks.
	Until func(steps int64, next Position) bool
	// Start, if not nil, is called on all ranks before the first step of all, as they call a collective: it may read a checkpoint into Params, State and Sampler. It
	// returns the number of complete steps. Nodes that join later do not call it.
	Start func(ctx context.Context, c *nexar.Comm) (steps int64, err error)
	// World, if not nil, is called before the first step in each world, as ranks call a collective.
	World func(ctx context.Context, c *nexar.Comm, steps int64) error
	// Complete, if not nil, is called after each step, as ranks call a collective: it may begin to write a checkpoint.
	Complete func(ctx context.Context, c *nexar.Comm, steps int64) error
	// Log gets a line for each change of the world. It may be nil.
	Log *slog.Logger
}

// Run trains on all nodes of a world. If nodes die in a step, the others repeat it, with the same samples, and go on. Nodes that join
// get the parameters, the State and the position of the Sampler, and take part from the next step on. A node that has called [nexar.Node.Leave] leaves
// after its step, and Run returns nil.
//
// If a node dies at the end of a step, others may have completed it. Then all go on after that step, with the state of one that has completed it.
// So each step is made once, by the updates of every surviving rank.
//
// Run returns errors of the functions of the job and of [nexar.Node.Epochs], but not failures of other nodes. After an error of a function of one node,
// the others learn it at once, wait until that node has left, and go on. If it does not leave, their Run returns its error, with its rank, after
// [nexar.Comm.HeartbeatTimeout] and a second.
func Run[T Float](ctx context.Context, node *nexar.Node, job *Job[T]) error {
	if job.Log == nil {
		job.Log = slog.New(slog.DiscardHandler)
	}
	r := &run[T]{Job: job, node: node}
	for c, err := range node.Epochs(ctx) {
		if err != nil {
			return err
		}
		done, err := r.train(ctx, c)
		if r.own {
			return err
		}
		if done {
			return nil
		}
		if err != nil {
			job.Log.Warn("training goes on without failed nodes", "steps", r.steps, "error", cmp.Or(c.Err(), err))
		}
	}
	return nil
}

// isOfOthers reports whether another rank has caused an error.
func isOfOthers(err error) bool {
	return errors.Is(err, nexar.ErrPeerFailed) || errors.Is(err, nexar.ErrRevoked)
}

// revoke ends a communicator on all ranks and tells them why.
func revoke(ctx context.Context, c *nexar.Comm, why error) {
	ctx, cancel := context.WithCancelCause(ctx)
	cancel(why)
	_ = c.Barrier(ctx)
}

// A run is a Job under way.
type run[T Float] struct {
	*Job[T]
	node     *nexar.Node
	steps    int64 // complete steps
	isSynced bool  // this rank has the state after these steps
	own      bool  // the error of train is one of this rank, and ends Run
}

// train trains in one world. done says that the training has ended.
func (r *run[T]) train(ctx context.Context, c *nexar.Comm) (done bool, err error) {
	var m *Model[T]
	defer func() {
		switch {
		case err == nil || c.Err() != nil:
		case r.own || isOfOthers(err):
			revoke(ctx, c, fmt.Errorf("ddp.Run after %d steps: %w", r.steps, err)) // before others learn that the Model is closed
		default:
			r.own = true // All ranks have it, or the Model has ended.
		}
		if m != nil {
			m.Close()
		}
	}()
	if err := r.sync(ctx, c); err != nil {
		return false, err
	}
	cfg := r.Config
	cfg.Root = 0 // A world may have one rank.
	if m, err = newModel(ctx, c, r.Params, cfg); err != nil {
		return false, err
	}
	if err := r.call(ctx, c, r.World); err != nil {
		return false, err
	}
	for !r.Until(r.steps, r.Sampler.Position()) {
		if err := r.step(ctx, m); err != nil {
			return false, err
		}
		if err := r.call(ctx, c, r.Complete); err != nil {
			return false, err
		}
		if changed, err := r.node.Reconfigure(ctx); changed || err != nil {
			return false, err
		}
	}
	return true, nil
}

// call calls a function of the program that may make collectives.
func (r *run[T]) call(ctx context.Context, c *nexar.Comm, f func(context.Context, *nexar.Comm, int64) error) error {
	if f == nil {
		return nil
	}
	err := f(ctx, c, r.steps)
	r.own = err != nil && !isOfOthers(err)
	return err
}

// step makes one step.
func (r *run[T]) step(ctx context.Context, m *Model[T]) error {
	batch := r.Sampler.Batch(m.comm.Rank(), m.comm.Size())
	if _, err := m.Begin(ctx, len(batch)); err != nil {
		return err
	}
	if err := r.Gradients(ctx, m, batch); err != nil {
		r.own = !isOfOthers(err)
		return err
	}
	result, err := m.Finish(ctx)
	if err != nil {
		return err
	}
	if err := r.Update(result); err != nil {
		r.own = !isOfOthers(err)
		return err
	}
	r.Sampler.Advance()
	r.steps++
	return nil
}

// sync gives all ranks the state of the first one with the most complete steps.
func (r *run[T]) sync(ctx context.Context, c *nexar.Comm) error {
	own := int64(0) // no state
	if r.isSynced {
		own = r.steps + 1
	}
	gathered, err := nexar.AllGatherOne(ctx, c, [4]int64{own, int64(r.Sampler.samples), int64(r.Sampler.batch), int64(r.Sampler.seed)})
	if err != nil {
		return err
	}
	var all []int64
	var samplers []string
	for _, g := range gathered {
		all, samplers = append(all, g[0]), append(samplers, fmt.Sprintf("%d samples in batches of %d with seed %d", g[1], g[2], uint64(g[3])))
	}
	if differs(samplers) {
		return &DifferenceError{What: "the Sampler", Texts: samplers}
	}
	root, alike := 0, true
	for rank, n := range all {
		if n > all[root] {
			root = rank
		}
		alike = alike && n == all[0]
	}
	if alike && own > 0 {
		return nil
	}
	if all[root] == 0 && r.Start != nil {
		steps, err := r.Start(ctx, c)
		if err != nil {
			r.own = !isOfOthers(err)
			return err
		}
		r.steps = steps
	}
	at := r.Sampler.Position()
	steps := r.steps
	values := []any{&steps, &at}
	for _, p := range r.Params {
		values = append(values, p.Data)
	}
	if err := nexar.BroadcastValues(ctx, c, root, append(values, r.State...)...); err != nil {
		return fmt.Errorf("state of rank %d after %d steps: %w", root, max(0, all[root]-1), err)
	}
	r.Sampler.Seek(at)
	r.steps, r.isSynced = steps, true
	if root != c.Rank() {
		r.Log.Info("training begins with the state of another rank", "rank", root, "steps", steps)
	}
	return nil
}
