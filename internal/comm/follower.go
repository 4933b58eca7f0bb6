package comm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
)

// Views is the part of the session with the seed that a Follower uses.
type Views interface {
	// Next waits for a view that is newer than epoch.
	Next(ctx context.Context, epoch uint64) (membership.View, error)
	// Lost reports a node that this one has lost.
	Lost(id membership.NodeID, err error)
}

// A Follower follows the views of a node's world. One goroutine at a time calls
// Next, From or Without.
type Follower struct {
	Views   Views
	Factory *Factory
	// Timeout limits the wait for the next view after a failure, and then the wait for
	// its ranks. 0 is for ever.
	Timeout time.Duration
	// Grace limits that time, if it is shorter, after a communicator has ended for
	// a reason that is no failure of a node. An undetected failure may be behind
	// it, such as a call that took too long, so Grace is meant to be as long as the
	// detection takes, plus the time for a view to arrive. If none does, the reason
	// is the error.
	Grace time.Duration
	// Abort has Next return the error of a failed communicator, in place of
	// waiting for another view.
	Abort bool

	// quiesced is the epoch that has ended with a checkpoint, or 0.
	quiesced atomic.Uint64
	// build is Factory.next, replaced in tests.
	build func(ctx context.Context, v membership.View, patience time.Duration) (*Comm, error)
}

// A LostError says that a communicator has ended and no view replaces it.
type LostError struct {
	Err   error // why there is no view
	Cause error // why the communicator has ended; nil if it had not
}

func (e *LostError) Error() string {
	if e.Cause == nil {
		return e.Err.Error()
	}
	return fmt.Sprintf("%v, after this failure: %v", e.Err, e.Cause)
}

// Unwrap returns Err and, if there is one, Cause.
func (e *LostError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.Cause}
}

// errOutdated cancels the building of a communicator when there is a newer view.
var errOutdated = errors.New("there is a newer view")

// Quiesce notes that all ranks have ended an epoch with a checkpoint.
func (f *Follower) Quiesce(epoch uint64) { f.quiesced.Store(epoch) }

// IsQuiesced reports whether epoch has ended with a checkpoint, and there is no
// view after it yet.
func (f *Follower) IsQuiesced(epoch uint64) bool { return f.quiesced.Load() == epoch }

// Next returns the communicator of a view after that of old. Its error is a
// LostError, that of building, the error with which old has ended, or the cause of
// ctx.
func (f *Follower) Next(ctx context.Context, old *Comm) (*Comm, error) {
	v, err := f.await(ctx, old)
	if err != nil {
		return nil, err
	}
	return f.follow(ctx, old, v)
}

// From returns the communicator of a view, or of one after it, for a node that
// has none yet.
func (f *Follower) From(ctx context.Context, v membership.View) (*Comm, error) {
	return f.follow(ctx, nil, v)
}

// Without returns the communicator of a view after that of old that lacks some
// nodes, whether or not old has ended. It waits at most timeout for each view; 0
// is for ever. Its errors are those of Next.
func (f *Follower) Without(ctx context.Context, old *Comm, out []membership.NodeID, timeout time.Duration) (*Comm, error) {
	v := membership.View{Epoch: old.Epoch()}
	for {
		var err error
		if v, err = f.view(ctx, v.Epoch, old.ended(), timeout); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(out, func(id membership.NodeID) bool { _, in := v.Rank(id); return in }) {
			return f.follow(ctx, old, v)
		}
	}
}

// ended is the error of operations on a communicator that has ended, or nil.
func (c *Comm) ended() error {
	if cause := c.Cause(); cause != nil {
		return c.View.errors.Ended(c, cause)
	}
	return nil
}

// follow builds the communicator of a view, and if that fails of one after it.
func (f *Follower) follow(ctx context.Context, old *Comm, v membership.View) (*Comm, error) {
	for {
		c, err := f.adopt(ctx, old, v)
		if err == nil || err != errOutdated && !isRecoverable(err) {
			return c, translated(err)
		}
		if v, err = f.view(ctx, v.Epoch, translated(err), f.Timeout); err != nil {
			return nil, err
		}
	}
}

// await waits for the view after that of old: without limit as long as old works.
func (f *Follower) await(ctx context.Context, old *Comm) (v membership.View, err error) {
	working, stop := Until(ctx, old.Stopped(), old.Cause)
	defer stop()
	v, err = f.Views.Next(working, old.Epoch())
	if cause := old.Cause(); f.Abort && cause != nil && !errors.Is(cause, engine.ErrClosed) {
		return v, f.verdict(ctx, old) // even if there is a view by now
	}
	if err == nil {
		return v, nil
	}
	if working.Err() == nil && f.isOver(old, err) {
		return v, &LostError{Err: err}
	}
	// Old has ended, or there are no more views, which matters when old ends.
	select {
	case <-old.Stopped():
	case <-ctx.Done():
		return v, context.Cause(ctx)
	}
	switch cause := old.Cause(); {
	case errors.Is(cause, engine.ErrClosed):
		if v, err = f.Views.Next(ctx, old.Epoch()); err != nil && ctx.Err() == nil {
			err = &LostError{Err: err}
		}
		return v, err
	case f.Abort:
		return v, f.verdict(ctx, old)
	case !isFailure(cause):
		return f.awaitUnlikely(ctx, old)
	default:
		return f.view(ctx, old.Epoch(), old.ended(), f.Timeout)
	}
}

// isFailure reports whether a communicator has ended by the failure of a node.
func isFailure(cause error) bool {
	p, ok := errors.AsType[*engine.PeerError](cause)
	return ok && !p.Left
}

// isRecoverable reports whether another view may help after an error of build.
func isRecoverable(err error) bool {
	_, late := errors.AsType[*engine.TimeoutError](err)
	_, failed := errors.AsType[*engine.PeerError](err)
	_, revoked := errors.AsType[*engine.RevokedError](err)
	return late || failed || revoked
}

// isOver reports whether an error of Views ends the world although its communicator
// still works.
func (f *Follower) isOver(old *Comm, err error) bool {
	_, removed := errors.AsType[*client.RemovedError](err)
	return removed || errors.Is(err, handshake.ErrClosed) || errors.Is(err, client.ErrLeft) ||
		errors.Is(err, client.ErrSeedGone) && old != nil && f.IsQuiesced(old.Epoch())
}

// view waits for a view that is newer than epoch, after a failure.
func (f *Follower) view(ctx context.Context, epoch uint64, cause error, timeout time.Duration) (membership.View, error) {
	within := ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no new view within %v", timeout))
		defer cancel()
	}
	v, err := f.Views.Next(within, epoch)
	if err != nil && ctx.Err() == nil {
		err = &LostError{Err: err, Cause: cause}
	}
	return v, err
}

// verdictTimeout is how long it may take until a node hears that it has been
// removed, after others have ended their links to it.
const verdictTimeout = time.Second

// verdict is the error of a world after its communicator has ended by a failure. It
// tells if the others have removed this node.
func (f *Follower) verdict(ctx context.Context, old *Comm) error {
	within, cancel := context.WithTimeout(ctx, verdictTimeout)
	defer cancel()
	if _, err := f.Views.Next(within, old.Epoch()); err != nil && within.Err() == nil && f.isOver(old, err) {
		return &LostError{Err: err, Cause: old.ended()}
	}
	return old.ended()
}

// awaitUnlikely waits for a view after old has ended, most likely not by a failure of
// a node.
func (f *Follower) awaitUnlikely(ctx context.Context, old *Comm) (membership.View, error) {
	grace := f.Grace
	if f.Timeout > 0 {
		grace = min(grace, f.Timeout)
	}
	within, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	v, err := f.Views.Next(within, old.Epoch())
	switch {
	case err == nil || ctx.Err() != nil:
		return v, err
	case f.isOver(old, err):
		return v, &LostError{Err: err, Cause: old.ended()}
	case within.Err() != nil:
		return v, old.ended()
	}
	return v, fmt.Errorf("%w (and there will be no new view: %w)", old.ended(), err)
}

// adopt replaces old by the communicator of a view, unless there is a newer one
// by then. Its error may be a buildError.
func (f *Follower) adopt(ctx context.Context, old *Comm, v membership.View) (*Comm, error) {
	building, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		if _, err := f.Views.Next(building, v.Epoch); err == nil {
			cancel(errOutdated)
		} else if building.Err() == nil && f.isOver(old, err) {
			cancel(&LostError{Err: err})
		}
	})
	defer watching.Wait()
	defer cancel(nil)
	c, err := f.replace(building, old, v)
	if _, lost := context.Cause(building).(*LostError); err != nil && (lost || context.Cause(building) == errOutdated) {
		err = context.Cause(building)
	}
	return c, err
}

// replace closes old and builds the communicator of a view. Ranks that do not
// take part are reported to the seed.
func (f *Follower) replace(ctx context.Context, old *Comm, v membership.View) (*Comm, error) {
	f.Quiesce(0) // There is a view, so the seed is not needed any more.
	if old != nil {
		old.Close()
	}
	build := f.build
	if build == nil {
		build = f.Factory.next
	}
	c, err := build(ctx, v, f.Timeout)
	if late, ok := errors.AsType[*engine.TimeoutError](err); ok {
		for _, w := range late.Waiting {
			f.Views.Lost(v.Nodes[w.Rank].ID, translated(err))
		}
	}
	return c, err
}
