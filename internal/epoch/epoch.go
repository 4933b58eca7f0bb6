// Package epoch follows a world from one view to the next.
//
// Most callers make a Follower and call Next with the communicator they have,
// whenever that is of no use any more, or they want to know of a change. It
// waits for a newer view, and makes its communicator; if another node fails
// meanwhile it is that of a still newer one. What a communicator is, and how it
// is made, is the caller's affair.
package epoch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
)

// Views are where views come from.
type Views interface {
	// Next waits for a view that is newer than epoch.
	Next(ctx context.Context, epoch uint64) (membership.View, error)
}

// A Comm is what this package has to know of a communicator.
type Comm interface {
	Epoch() uint64
	// Stopped is closed when no operation may begin any more, and Err says why.
	Stopped() <-chan struct{}
	Err() error
}

// A Follower follows the views of one world.
type Follower[C Comm] struct {
	Views Views
	// Timeout is how long there may be no new view after a failure. 0 is for
	// ever.
	Timeout time.Duration
	// Grace is that time after a communicator has ended for a reason that is no
	// failure of a node, if it is the shorter one. This may be what a failure has
	// led to that nobody has noticed yet, such as a call that took too long, so it
	// is meant to be as long as that takes, and a view to come. If none does, the
	// reason is the error.
	Grace time.Duration
	// Failure reports whether a communicator has ended by the failure of a node.
	Failure func(err error) bool
	// Make makes the communicator of a view in place of another one.
	Make func(ctx context.Context, old C, v membership.View) (C, error)
	// Again reports whether another view may mend an error of Make.
	Again func(err error) bool
	// Abort has Next return why a communicator has failed, in place of waiting for
	// another.
	Abort bool
	// Over reports whether an error of Views ends a world whose communicator still
	// works.
	Over func(err error) bool
	// Calm reports whether a communicator has ended for a reason that is no
	// failure, so that there may be no other view for any time.
	Calm func(err error) bool
}

// A LostError says that a communicator has ended, and no view takes its place.
type LostError struct {
	Err   error // why there is none
	Cause error // why the communicator has ended, nil if it had not
}

func (e *LostError) Error() string {
	if e.Cause == nil {
		return e.Err.Error()
	}
	return fmt.Sprintf("%v, after this failure: %v", e.Err, e.Cause)
}

// Unwrap is both.
func (e *LostError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.Cause}
}

// errOutdated says that there is a newer view.
var errOutdated = errors.New("there is a newer view")

// Next returns the communicator of a view after that of old. Its error is a
// LostError, that of Make, the reason for which old has ended, or the cause of ctx.
func (f *Follower[C]) Next(ctx context.Context, old C) (c C, err error) {
	v, err := f.await(ctx, old)
	if err != nil {
		return c, err
	}
	return f.follow(ctx, old, v)
}

// From returns the communicator of a view, or of one after it, for a node that has
// none yet: Make gets the zero value in its place.
func (f *Follower[C]) From(ctx context.Context, v membership.View) (c C, err error) {
	return f.follow(ctx, c, v)
}

// Without returns the communicator of a view after that of old that lacks some nodes,
// whatever has become of old. It waits so long for each view; 0 is for ever. Its
// errors are those of Next.
func (f *Follower[C]) Without(ctx context.Context, old C, out []membership.NodeID, within time.Duration) (c C, err error) {
	waiting := *f
	waiting.Timeout = within
	v := membership.View{Epoch: old.Epoch()}
	for {
		if v, err = waiting.view(ctx, v.Epoch, old.Err()); err != nil {
			return c, err
		}
		if !slices.ContainsFunc(out, func(id membership.NodeID) bool { _, in := v.Rank(id); return in }) {
			return f.follow(ctx, old, v)
		}
	}
}

// follow makes the communicator of a view, and if that fails of one after it.
func (f *Follower[C]) follow(ctx context.Context, old C, v membership.View) (c C, err error) {
	for err == nil {
		if c, err = f.adopt(ctx, old, v); err == nil || err != errOutdated && !f.Again(err) {
			return c, err
		}
		v, err = f.view(ctx, v.Epoch, err)
	}
	return c, err
}

// await waits for the view after that of old: for any time as long as that works.
func (f *Follower[C]) await(ctx context.Context, old C) (v membership.View, err error) {
	calm, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-old.Stopped():
			cancel()
		case <-stop:
		}
	}()
	v, err = f.Views.Next(calm, old.Epoch())
	if f.Abort && isClosed(old.Stopped()) && !f.Calm(old.Err()) {
		return v, f.verdict(ctx, old.Epoch(), old.Err()) // even if there is a view by now
	}
	if err == nil {
		return v, nil
	}
	if calm.Err() == nil && f.Over(err) {
		return v, &LostError{Err: err}
	}
	// Old has ended, or there are no more views, which matters when it does.
	select {
	case <-old.Stopped():
	case <-ctx.Done():
		return v, context.Cause(ctx)
	}
	switch cause := old.Err(); {
	case f.Calm(cause):
		if v, err = f.Views.Next(ctx, old.Epoch()); err != nil && ctx.Err() == nil {
			err = &LostError{Err: err}
		}
		return v, err
	case f.Abort:
		return v, f.verdict(ctx, old.Epoch(), cause)
	case !f.Failure(cause):
		return f.linger(ctx, old.Epoch(), cause)
	default:
		return f.view(ctx, old.Epoch(), cause)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// view waits for a view that is newer than epoch, after a failure.
func (f *Follower[C]) view(ctx context.Context, epoch uint64, cause error) (membership.View, error) {
	within := ctx
	if f.Timeout > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeoutCause(ctx, f.Timeout, fmt.Errorf("no new view within %v", f.Timeout))
		defer cancel()
	}
	v, err := f.Views.Next(within, epoch)
	if err != nil && ctx.Err() == nil {
		err = &LostError{Err: err, Cause: cause}
	}
	return v, err
}

// verdictTimeout is how long it may take until a node hears that it is not in the
// world any more, after others have ended their links to it.
const verdictTimeout = time.Second

// verdict is why a world is over whose communicator has ended by a failure: that
// may be because the others have removed this node.
func (f *Follower[C]) verdict(ctx context.Context, epoch uint64, cause error) error {
	within, cancel := context.WithTimeout(ctx, verdictTimeout)
	defer cancel()
	if _, err := f.Views.Next(within, epoch); err != nil && within.Err() == nil && f.Over(err) {
		return &LostError{Err: err, Cause: cause}
	}
	return cause
}

// linger waits for a view that is newer than epoch, after what is most likely no
// failure.
func (f *Follower[C]) linger(ctx context.Context, epoch uint64, cause error) (membership.View, error) {
	grace := f.Grace
	if f.Timeout > 0 {
		grace = min(grace, f.Timeout)
	}
	within, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	v, err := f.Views.Next(within, epoch)
	switch {
	case err == nil || ctx.Err() != nil:
		return v, err
	case f.Over(err):
		return v, &LostError{Err: err, Cause: cause}
	case within.Err() != nil:
		return v, cause
	}
	return v, fmt.Errorf("%w (and there will be no new view: %w)", cause, err)
}

// adopt makes the communicator of a view, unless there is a newer one by then.
func (f *Follower[C]) adopt(ctx context.Context, old C, v membership.View) (C, error) {
	making, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		if _, err := f.Views.Next(making, v.Epoch); err == nil {
			cancel(errOutdated)
		} else if making.Err() == nil && f.Over(err) {
			cancel(&LostError{Err: err})
		}
	})
	defer watching.Wait()
	defer cancel(nil)
	c, err := f.Make(making, old, v)
	if _, lost := context.Cause(making).(*LostError); err != nil && (lost || context.Cause(making) == errOutdated) {
		err = context.Cause(making)
	}
	return c, err
}
