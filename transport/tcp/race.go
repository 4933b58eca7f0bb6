package tcp

import (
	"context"
	"time"
)

// race dials the socket of a pipe. It calls dial at once, and again after each of the
// delays, since a socket that lost its first packets stalls for longer than a new one
// takes. It returns the first result and passes later ones to discard. An error ends it
// unless another call is running. dial must return when ctx ends, which the caller
// cancels when it has used the result.
func race[T any](ctx context.Context, c *conn, delays []time.Duration, dial func() (T, error), discard func(T)) (T, error) {
	type outcome struct {
		result T
		err    error
	}
	outcomes := make(chan outcome)
	over := make(chan struct{})
	defer close(over)
	call := func() {
		result, err := dial()
		select {
		case outcomes <- outcome{result, err}:
		case <-over:
			if err == nil {
				discard(result)
			}
		}
	}
	var none T
	timer := time.NewTimer(0)
	defer timer.Stop()
	for running := 0; ; {
		select {
		case <-timer.C:
			if !c.spawn(call) {
				return none, errConnClosed
			}
			running++
			if len(delays) > 0 {
				timer.Reset(delays[0])
				delays = delays[1:]
			}
		case o := <-outcomes:
			if running--; o.err == nil || running == 0 {
				return o.result, o.err
			}
		case <-ctx.Done():
			return none, context.Cause(ctx)
		}
	}
}
