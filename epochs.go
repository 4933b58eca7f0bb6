package nexar

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/member"
	"github.com/nexar-go/nexar/internal/seed"
)

// epochs is how far a node has followed the changes of its world.
type epochs struct {
	policy  RecoveryPolicy
	timeout time.Duration // 0 is none

	mu    sync.Mutex
	world *Comm
}

func (e *epochs) current() *Comm {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.world
}

func (e *epochs) set(c *Comm) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.world = c
}

// Epochs yields the communicator of the world, and after each change of the world
// the one that takes its place:
//
//	for comm, err := range node.Epochs(ctx) {
//		if err != nil {
//			return err
//		}
//		if err = train(ctx, comm, state); err == nil {
//			break
//		}
//		log.Print(err) // rank 2 has failed, say; go on with those that are left
//	}
//
// When a node has failed or left, the seed decides who is in the next view:
// all that are linked to each other. They keep their order, so that ranks close
// up. Operations on the old communicator, which end with a PeerError or
// RevokedError, may have been completed on some ranks and not on others: the ranks
// have to agree on where they go on, as by an AllReduce with Min of their steps.
// The old communicator, and those split from it, are of no use any more; Epochs
// closes the former when the loop comes round.
//
// A body that comes round while nothing has changed waits for a change. The loop
// ends with an error if ctx ends, if the node is closed, and with an ErrNoQuorum if
// a node has failed and there is no next view within Config.RecoveryTimeout,
// because the seed is gone, or if the others go on without this node. With
// Config.Recovery Abort a failure ends it with the PeerError.
//
// Only one goroutine at a time follows the epochs of a node.
func (n *Node) Epochs(ctx context.Context) iter.Seq2[*Comm, error] {
	return func(yield func(*Comm, error) bool) {
		for c := n.World(); yield(c, nil); {
			next, err := n.nextEpoch(ctx, c)
			if err != nil {
				yield(nil, opError("epochs", err))
				return
			}
			c = next
		}
	}
}

// nextEpoch waits for the view after that of a communicator, and makes the
// communicator of that. If another node fails meanwhile, it is that of a still
// later view.
func (n *Node) nextEpoch(ctx context.Context, old *Comm) (*Comm, error) {
	r := &recovery{node: n, old: old, epoch: old.Epoch()}
	v, err := r.await(ctx)
	for err == nil {
		var c *Comm
		if c, err = r.adopt(ctx, v); err == nil {
			n.epochs.set(c)
			return c, nil
		}
		if !errors.Is(err, errOutdated) && !errors.Is(err, ErrPeerFailed) && !errors.Is(err, ErrRevoked) {
			break
		}
		r.cause = err
		v, err = r.view(ctx)
	}
	return nil, err
}

// errOutdated says that there is a newer view.
var errOutdated = errors.New("there is a newer view")

// A recovery is the way from one epoch to the next.
type recovery struct {
	node  *Node
	old   *Comm  // of the epoch before
	epoch uint64 // the last one whose view is known
	cause error  // the failure that began it, nil if there was none
}

// await waits until the world has changed. If the old communicator has ended, or
// ends meanwhile, that is not to take for ever.
func (r *recovery) await(ctx context.Context) (member.View, error) {
	calm, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-r.old.stopped:
			cancel()
		case <-calm.Done():
		}
	}()
	v, err := r.node.session.Next(calm, r.epoch)
	if removed, ok := errors.AsType[*seed.RemovedError](err); ok {
		return v, fmt.Errorf("%w: %w", ErrNoQuorum, removed)
	}
	if err != nil && ctx.Err() == nil {
		// The seed is gone, or the communicator has ended.
		select {
		case <-r.old.stopped:
			return r.recover(ctx)
		case <-ctx.Done():
		}
	}
	return r.known(ctx, v, err)
}

// recover waits for the view that follows the end of the old communicator.
func (r *recovery) recover(ctx context.Context) (member.View, error) {
	r.cause = r.old.Err()
	if errors.Is(r.cause, ErrClosed) {
		v, err := r.node.session.Next(ctx, r.epoch)
		return r.known(ctx, v, err)
	}
	if r.node.epochs.policy == Abort {
		return member.View{}, r.cause
	}
	return r.view(ctx)
}

// view waits for the next view, for as long as a recovery may take.
func (r *recovery) view(ctx context.Context) (member.View, error) {
	within := ctx
	if t := r.node.epochs.timeout; t > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeoutCause(ctx, t, fmt.Errorf("no new view within %v", t))
		defer cancel()
	}
	v, err := r.node.session.Next(within, r.epoch)
	if err != nil && ctx.Err() == nil && !errors.Is(err, seed.ErrClosed) {
		return v, fmt.Errorf("%w: %w, after this failure: %w", ErrNoQuorum, err, r.cause)
	}
	return r.known(ctx, v, err)
}

// known notes that a view is known.
func (r *recovery) known(ctx context.Context, v member.View, err error) (member.View, error) {
	switch {
	case err == nil:
		r.epoch = v.Epoch
	case ctx.Err() != nil:
		err = cancelled(ctx)
	case errors.Is(err, seed.ErrClosed):
		err = ErrClosed
	}
	return v, err
}

// adopt makes the communicator of a view, together with all others in it, unless
// there is a newer one by then.
func (r *recovery) adopt(ctx context.Context, v member.View) (*Comm, error) {
	r.old.Close()
	making, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		if _, err := r.node.session.Next(making, v.Epoch); err == nil {
			cancel(errOutdated)
		}
	})
	defer watching.Wait()
	defer cancel(nil)
	c, err := r.old.home.next(making, r.node.mesh, v, max(0, r.node.epochs.timeout))
	if err != nil && context.Cause(making) == errOutdated {
		err = errOutdated
	}
	return c, err
}
