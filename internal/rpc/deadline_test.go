package rpc

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
)

// late returns the option of a fabric with a delay for each message.
func late(d time.Duration) func(*fabric) {
	return func(f *fabric) { f.delay = func() time.Duration { return d } }
}

// remaining returns a handler that stores the remaining time of its context.
func remaining(t *testing.T, got *time.Duration) Handler {
	return func(ctx context.Context, _ int, _ []byte) ([]byte, error) {
		deadline, ok := ctx.Deadline()
		if !ok {
			*got = 0
			return nil, nil
		}
		*got = time.Until(deadline)
		if *got <= 0 || ctx.Err() != nil {
			t.Errorf("the handler has %v left: %v", *got, ctx.Err())
		}
		return nil, nil
	}
}

// The handler gets the remaining time of the caller. Config.Timeout applies to calls
// without a deadline.
func TestDeadlineTravels(t *testing.T) {
	for name, test := range map[string]struct {
		timeout time.Duration // of the Service
		limit   time.Duration // of the call; 0: none
		want    time.Duration
	}{
		"none":                 {0, 0, 0},
		"of the call":          {0, time.Second, time.Second},
		"of the service":       {3 * time.Second, 0, 3 * time.Second},
		"the call's is longer": {time.Second, time.Minute, time.Minute},
		"very long":            {0, 1 << 62, 1 << 62},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 2, Config{Timeout: test.timeout}, late(30*time.Millisecond))
				var got time.Duration
				w.register(t, "remaining", remaining(t, &got))
				ctx := context.Background()
				if test.limit > 0 {
					limited, cancel := context.WithTimeout(ctx, test.limit)
					defer cancel()
					ctx = limited
				}
				for to := range w.services {
					if _, err := w.services[0].Call(ctx, to, "remaining", nil); err != nil {
						t.Fatal(err)
					}
					if got != test.want {
						t.Errorf("the handler of rank %d has %v, want %v", to, got, test.want)
					}
				}
			})
		})
	}
}

// The caller returns at its deadline, and the handler's context ends soon afterwards,
// by its own clock or by the cancellation of the caller.
func TestDeadlinePasses(t *testing.T) {
	for name, delay := range map[string]time.Duration{"near": 0, "far": 2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 2, Config{}, late(delay))
				type end struct {
					after time.Duration
					cause error
				}
				ended := make(chan end, 1)
				began := time.Now()
				w.register(t, "wait", func(ctx context.Context, _ int, _ []byte) ([]byte, error) {
					<-ctx.Done()
					ended <- end{time.Since(began), context.Cause(ctx)}
					return nil, ctx.Err()
				})
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				_, err := w.services[0].Call(ctx, 1, "wait", nil)
				var given *CancelledError
				if !errors.As(err, &given) || !errors.Is(err, context.DeadlineExceeded) || !given.Begun {
					t.Errorf("error %#v, want a CancelledError by the deadline", err)
				}
				if got := time.Since(began); got != 3*time.Second {
					t.Errorf("Call returned after %v, want 3s", got)
				}
				e := <-ended
				if !errors.Is(e.cause, context.DeadlineExceeded) {
					t.Errorf("the handler's context ended by %v", e.cause)
				}
				if want := 3*time.Second + delay; e.after != want {
					t.Errorf("the handler's context ended after %v, want %v", e.after, want)
				}
			})
		})
	}
}

// A call that arrives after its caller's deadline is ended by the cancellation, since
// the clock of the handler has just started.
func TestDeadlinePassesInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Bool
		w := newWorld(t, 2, Config{}, func(f *fabric) {
			f.delay = func() time.Duration {
				if sent.Swap(true) {
					return 0
				}
				return 5 * time.Second // of the call; later messages take as long
			}
		})
		causes := make(chan error, 1)
		w.register(t, "wait", func(ctx context.Context, _ int, _ []byte) ([]byte, error) {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil, nil
		})
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := w.services[0].Call(ctx, 1, "wait", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if got := time.Since(began); got != 3*time.Second {
			t.Errorf("Call returned after %v, want 3s", got)
		}
		cause := <-causes
		if got := time.Since(began); got != 5*time.Second || !errors.Is(cause, context.DeadlineExceeded) {
			t.Errorf("the handler's context ended after %v by %v, want 5s by the deadline", got, cause)
		}
	})
}

// A result that is ready after the deadline is not sent.
func TestResultAfterDeadline(t *testing.T) {
	w, x := newRawPeer(t, Config{})
	err := w.Register("wait", func(ctx context.Context, _ int, args []byte) ([]byte, error) {
		<-ctx.Done()
		return args, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	x.callWithin(7, time.Millisecond, "wait", []byte("result"))
	if a, rest := x.answer(); a.ID != 7 || a.Status != wire.RemoteEnded || len(rest) > 0 {
		t.Errorf("answer %+v %q", a, rest)
	}
}

// A call with an ended context is not made.
func TestEndedContext(t *testing.T) {
	w := newWorld(t, 2, Config{})
	w.register(t, "never", func(context.Context, int, []byte) ([]byte, error) {
		t.Error("the call was made")
		return nil, nil
	})
	because := errors.New("a reason")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(because)
	_, err := w.services[0].Call(ctx, 1, "never", nil)
	var given *CancelledError
	if !errors.As(err, &given) || given.Begun || !errors.Is(err, because) {
		t.Errorf("error %#v, want a CancelledError by %q, not begun", err, because)
	}
}
