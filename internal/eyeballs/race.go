// Package eyeballs dials a peer in several ways at a time, as in version 2 of "Happy Eyeballs" (RFC 8305): over several
// transports, at several addresses, and over several sockets. [Race] says when each attempt starts and which one wins, and [Resolve]
// lists the addresses of a name in the order of attempts.
package eyeballs

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Delay is the time for an attempt to succeed before the next one starts beside it. RFC 8305 recommends it as the Connection Attempt Delay.
const Delay = 250 * time.Millisecond

// An Attempt dials. It may call answered when the peer has answered, before the result is complete. It must return soon after ctx
// has ended. If it loses, ctx ends at once. If it wins, ctx ends only with the context of the race, which the caller has to end: so the result
// may depend on ctx.
type Attempt[T any] func(ctx context.Context, answered func()) (T, error)

// A Race starts attempts one after another until one of them wins.
type Race[T any] struct {
	// Attempts start in this order: one after the delay, or as soon as an attempt has failed.
	Attempts []Attempt[T]

	// Delays are the times between the starts of attempts. The last one repeats. If there is none, it is [Delay].
	Delays []time.Duration

	// Discard releases the result of an attempt that has lost.
	Discard func(T)

	// Grace returns the additional time for attempts before the first successful one, which took the given time. One that
	// succeeds in this time, or that has got an answer in it and succeeds later, wins. If Grace is nil, the first success wins.
	Grace func(took time.Duration) time.Duration

	// IsRefusal reports whether an error is final: if the attempts before have failed or are late, no other attempt wins. If IsRefusal
	// is nil, no error is final.
	IsRefusal func(error) bool
}

// An outcome is the result of an attempt.
type outcome[T any] struct {
	index  int // of the attempt
	result T
	err    error
	took   time.Duration
}

// A running is a race in progress.
type running[T any] struct {
	race     *Race[T]
	outcomes chan outcome[T]
	attempts sync.WaitGroup

	started  int                  // attempts that have started
	cancels  []context.CancelFunc // by attempt
	answered []atomic.Bool        // by attempt
	errs     []error              // by attempt; nil: it has not failed
	best     *outcome[T]          // of the first attempt in the list that has succeeded
	late     bool                 // the time of attempts before best is over
}

// Run returns the result of the winner and its index in Attempts. If no attempt wins, the index is negative, and errs has the
// errors of the attempts that have failed; that of the first one is not nil, unless another one was refused. Run returns after all attempts
// have. When ctx ends, no further attempt starts.
func (r Race[T]) Run(ctx context.Context) (winner int, result T, errs []error) {
	n := len(r.Attempts)
	u := &running[T]{
		race: &r, outcomes: make(chan outcome[T], n),
		cancels: make([]context.CancelFunc, n), answered: make([]atomic.Bool, n), errs: make([]error, n),
	}
	next := time.NewTimer(r.delay(0))
	defer next.Stop()
	var graceOver <-chan time.Time // after the first success
	if u.startNext(ctx); u.started == 0 {
		u.errs[0] = context.Cause(ctx)
		return -1, result, u.errs
	}
	for {
		startsNext := false
		select {
		case o := <-u.outcomes:
			if u.take(o) && r.Grace != nil {
				grace := time.NewTimer(r.Grace(o.took))
				defer grace.Stop()
				graceOver = grace.C
			}
			startsNext = o.err != nil
		case <-next.C:
			startsNext = true
		case <-graceOver:
			u.late = true
		}
		if startsNext && u.best == nil {
			u.startNext(ctx)
			next.Reset(r.delay(u.started - 1))
		}
		if over, won := u.over(ctx); over {
			return u.end(won)
		}
	}
}

// delay returns the time from the start of attempt i to that of the next.
func (r *Race[T]) delay(i int) time.Duration {
	if len(r.Delays) == 0 {
		return Delay
	}
	return r.Delays[min(i, len(r.Delays)-1)]
}

// startNext starts the next attempt, if there is one and ctx has not ended.
func (u *running[T]) startNext(ctx context.Context) {
	if u.started == len(u.race.Attempts) || ctx.Err() != nil {
		return
	}
	i := u.started
	u.started++
	ctx, u.cancels[i] = context.WithCancel(ctx)
	u.attempts.Go(func() {
		began := time.Now()
		result, err := u.race.Attempts[i](ctx, func() { u.answered[i].Store(true) })
		u.outcomes <- outcome[T]{index: i, result: result, err: err, took: time.Since(began)}
	})
}

// take records an outcome, and reports whether it is the first success.
func (u *running[T]) take(o outcome[T]) (first bool) {
	switch {
	case o.err != nil:
		u.errs[o.index] = o.err
	case u.best == nil:
		u.best = &o
		return true
	case o.index < u.best.index:
		u.race.Discard(u.best.result)
		u.best = &o
	default:
		u.race.Discard(o.result)
	}
	return false
}

// over reports whether the race is over, and whether best has won.
func (u *running[T]) over(ctx context.Context) (over, won bool) {
	for i := range u.started {
		switch {
		case u.best != nil && (i == u.best.index || u.race.Grace == nil):
			return true, true
		case u.errs[i] == nil && (!u.late || u.answered[i].Load()):
			return false, false // It may still succeed.
		case u.race.IsRefusal != nil && u.errs[i] != nil && u.race.IsRefusal(u.errs[i]):
			return true, false
		}
	}
	return u.started == len(u.race.Attempts) || ctx.Err() != nil, false
}

// end ends all attempts but the winner, and returns the values of Run.
func (u *running[T]) end(won bool) (winner int, result T, errs []error) {
	winner = -1
	if won {
		winner, result = u.best.index, u.best.result
	} else if u.best != nil {
		u.race.Discard(u.best.result)
	}
	for i, cancel := range u.cancels[:u.started] {
		if i != winner {
			cancel()
		}
	}
	u.attempts.Wait()
	close(u.outcomes)
	for o := range u.outcomes {
		if o.err == nil {
			u.race.Discard(o.result)
		}
	}
	return winner, result, u.errs
}

// Repeat returns n attempts that dial in the same way: a socket whose first packets are lost stalls for longer than another one
// takes. When one of them has failed, those that start later fail with its error.
func Repeat[T any](n int, dial Attempt[T]) []Attempt[T] {
	var failed atomic.Pointer[error]
	return slices.Repeat([]Attempt[T]{func(ctx context.Context, answered func()) (result T, err error) {
		if err := failed.Load(); err != nil {
			return result, *err
		}
		if result, err = dial(ctx, answered); err != nil {
			failed.Store(&err)
		}
		return result, err
	}}, n)
}
