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
	"github.com/nexar-go/nexar/internal/mesh"
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
	// Timeout limits the wait for the next view after a failure, and then the wait for its
	// ranks. 0 means no limit.
	Timeout time.Duration
	// Grace limits the wait instead, if it is shorter, after a communicator has ended for a
	// reason other than the failure of a node. An undetected failure may have caused that
	// reason, for example a timeout of a call. So Grace should be the detection time plus the
	// time for a view to arrive. If no view arrives, Next returns the reason.
	Grace time.Duration
	// LeaveGrace is added to Grace if a node has left. It is the longest time from the goodbyes of a node to its report to the seed.
	LeaveGrace time.Duration
	// Abort makes Next return the error of a failed communicator instead of waiting for another
	// view.
	Abort bool

	// quiesced is the epoch that has ended with a reconfiguration, or 0.
	quiesced atomic.Uint64
	// excluded are the nodes that the program of this node has excluded last.
	excluded            atomic.Pointer[[]membership.NodeID]
	recovered, recovery atomic.Int64 // see Recoveries
	// build is Factory.next, replaced in tests.
	build func(ctx context.Context, v membership.View, timeout time.Duration) (*Comm, error)
}

// A LostError says that a communicator has ended and no view replaces it.
type LostError struct {
	Err   error // why there is no view
	Cause error // why the communicator has ended; nil if it has not
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

// errOutdated cancels the build of a communicator when a newer view arrives.
var errOutdated = errors.New("superseded by a newer view")

// Quiesce records that all ranks have ended an epoch by a reconfiguration.
func (f *Follower) Quiesce(epoch uint64) { f.quiesced.Store(epoch) }

// IsQuiesced reports whether epoch has ended with a reconfiguration and has no successor yet.
func (f *Follower) IsQuiesced(epoch uint64) bool { return f.quiesced.Load() == epoch }

// Next returns the communicator of a view after that of old. It fails with a
// [LostError], an error of building, the error with which old has ended, or the cause
// of ctx.
func (f *Follower) Next(ctx context.Context, old *Comm) (*Comm, error) {
	v, err := f.await(ctx, old)
	if err != nil {
		return nil, err
	}
	return f.follow(ctx, old, v)
}

// From returns the communicator of view v or of a later one, for a node that has none
// yet.
func (f *Follower) From(ctx context.Context, v membership.View) (*Comm, error) {
	return f.follow(ctx, nil, v)
}

// Without returns the communicator of a view later than that of old and without the nodes out,
// whether or not old has ended. It waits at most timeout for each view; 0 means no limit.
// Errors are those of [Follower.Next].
func (f *Follower) Without(ctx context.Context, old *Comm, out []membership.NodeID, timeout time.Duration) (*Comm, error) {
	f.excluded.Store(&out)
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

// ended returns the error of operations on a communicator that has ended, or nil.
func (c *Comm) ended() error {
	if cause := c.Cause(); cause != nil {
		AwaitCause(cause)
		return c.View.errors.Ended(c, cause)
	}
	return nil
}

// Recoveries returns the number of communicators that have replaced one that had failed, and the time from the failures to them.
func (f *Follower) Recoveries() (n uint64, took time.Duration) {
	return uint64(f.recovered.Load()), time.Duration(f.recovery.Load())
}

// follow builds the communicator of a view, or of a later one if that fails.
func (f *Follower) follow(ctx context.Context, old *Comm, v membership.View) (*Comm, error) {
	isQuiesced := old != nil && f.IsQuiesced(old.Epoch())
	for {
		c, err := f.adopt(ctx, old, v)
		if err == nil && old != nil && !isQuiesced && old.Cause() != nil && !errors.Is(old.Cause(), engine.ErrClosed) {
			f.recovered.Add(1)
			f.recovery.Add(int64(time.Since(old.endedAt)))
		}
		if err == nil || err != errOutdated && !isRecoverable(err) {
			return c, translated(err)
		}
		if v, err = f.view(ctx, v.Epoch, translated(err), f.Timeout); err != nil {
			return nil, err
		}
	}
}

// await waits for the view after that of old, without limit while old works.
func (f *Follower) await(ctx context.Context, old *Comm) (v membership.View, err error) {
	working, stop := Until(ctx, old.Stopped(), old.Cause)
	defer stop()
	v, err = f.Views.Next(working, old.Epoch())
	if cause := old.Cause(); f.Abort && cause != nil && !errors.Is(cause, engine.ErrClosed) {
		return v, f.failure(ctx, old) // even if a view has arrived meanwhile
	}
	if err == nil {
		return v, nil
	}
	if working.Err() == nil && f.isOver(old, err) {
		return v, &LostError{Err: err}
	}
	// Old has ended, or no more views will come, which matters only once old ends.
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
		return v, f.failure(ctx, old)
	case !engine.IsFailure(cause):
		return f.awaitUnlikely(ctx, old)
	default:
		return f.view(ctx, old.Epoch(), old.ended(), f.Timeout)
	}
}

// isRecoverable reports whether a later view may help after an error of build.
func isRecoverable(err error) bool {
	_, late := errors.AsType[*engine.TimeoutError](err)
	_, failed := errors.AsType[*engine.PeerError](err)
	_, revoked := errors.AsType[*engine.RevokedError](err)
	_, unlinked := errors.AsType[*mesh.UnreachableError](err)
	return late || failed || revoked || unlinked
}

// isOver reports whether an error of Views ends the world although its communicator
// works.
func (f *Follower) isOver(old *Comm, err error) bool {
	_, removed := errors.AsType[*client.RemovedError](err)
	return removed || errors.Is(err, handshake.ErrClosed) || errors.Is(err, client.ErrLeft) ||
		errors.Is(err, client.ErrSeedGone) && old != nil && f.IsQuiesced(old.Epoch())
}

// view waits for a view after epoch, following a failure.
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

// NoticeTimeout bounds the time from the end of links, or of the session with the seed, until this node knows the decision of the seed about it:
// a view, or its removal.
const NoticeTimeout = time.Second

// failure returns the error of a world after its communicator has ended by a failure: that this
// node was removed, if that is known.
func (f *Follower) failure(ctx context.Context, old *Comm) error {
	within, cancel := context.WithTimeout(ctx, NoticeTimeout)
	defer cancel()
	if _, err := f.Views.Next(within, old.Epoch()); err != nil && within.Err() == nil && f.isOver(old, err) {
		return &LostError{Err: err, Cause: old.ended()}
	}
	return old.ended()
}

// awaitUnlikely waits for a view after old has ended for a reason other than a known
// failure of a node.
func (f *Follower) awaitUnlikely(ctx context.Context, old *Comm) (membership.View, error) {
	grace := f.Grace
	if engine.IsLeave(old.Cause()) {
		grace += f.LeaveGrace
	}
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
	return v, fmt.Errorf("%w (and no new view will come: %w)", old.ended(), err)
}

// adopt replaces old by the communicator of view v, unless a newer view arrives. Its
// error may be a buildError.
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
	if _, lost := errors.AsType[*LostError](context.Cause(building)); err != nil && (lost || context.Cause(building) == errOutdated) {
		err = context.Cause(building)
	}
	return c, err
}

// replace closes old and builds the communicator of view v. It reports the ranks that
// do not take part to the seed.
func (f *Follower) replace(ctx context.Context, old *Comm, v membership.View) (*Comm, error) {
	quiesced := f.quiesced.Swap(0) // The view has arrived.
	build := f.build
	if build == nil {
		var excluded []membership.NodeID
		if out := f.excluded.Load(); out != nil {
			excluded = *out
		}
		f.Factory.mesh.Remove(v, excluded, old != nil && quiesced == old.Epoch())
		build = f.Factory.next
	}
	if old != nil {
		old.Close()
	}
	c, err := build(ctx, v, f.Timeout)
	for _, id := range missing(err) {
		f.Views.Lost(id, translated(err))
	}
	return c, err
}

// missing returns the nodes that a communicator has waited for until its timeout while it was built.
func missing(err error) (nodes []membership.NodeID) {
	b, isBuild := errors.AsType[*buildError](err)
	late, isLate := errors.AsType[*engine.TimeoutError](err)
	if !isBuild || !isLate {
		return nil
	}
	for _, w := range late.Waiting {
		if rank, ok := b.comm.Engine.RankOf(w.Rank); ok {
			nodes = append(nodes, b.comm.Nodes[rank].ID)
		}
	}
	return nodes
}
