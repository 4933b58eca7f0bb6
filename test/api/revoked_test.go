package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

var errEnough = errors.New("the user has had enough")

// TestRevokedIsNotCancelled: a cancelled call returns the error of its context and the cause. Later
// calls return a RevokedError that names the same rank on all ranks, and not context.Canceled.
func TestRevokedIsNotCancelled(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(ctx context.Context) (context.Context, context.CancelFunc)
		want error
	}{
		"cancelled": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(20*time.Millisecond, func() { cancel(errEnough) })
			return ctx, func() { cancel(nil) }
		}, context.Canceled},
		"too late": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(ctx, 20*time.Millisecond, errEnough)
		}, context.DeadlineExceeded},
	} {
		for _, n := range []int{1, 2, 3} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				comms := worldtest.Local(t, n, nexar.Config{})
				cancelOne(t, comms, test.end, test.want)
			})
		}
	}
}

// cancelOne cancels a send of the last rank, for a message that is not received.
func cancelOne(t *testing.T, comms []*nexar.Comm, end func(context.Context) (context.Context, context.CancelFunc), want error) {
	t.Helper()
	last := len(comms) - 1
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		if err := c.Err(); err != nil {
			return fmt.Errorf("before: %w", err)
		}
		if rank != last {
			if err := c.Barrier(ctx); !errors.Is(err, nexar.ErrRevoked) {
				return fmt.Errorf("barrier: %w, want ErrRevoked", err)
			}
		} else {
			ctx, cancel := end(ctx)
			defer cancel()
			err := nexar.StartSend(ctx, c, make([]float32, 100_000), rank, 0).Wait()
			if !errors.Is(err, want) || !errors.Is(err, errEnough) || errors.Is(err, nexar.ErrRevoked) {
				return fmt.Errorf("cancelled call: %w, want %w and its cause", err, want)
			}
		}
		for i, err := range []error{c.Err(), c.Barrier(ctx), nexar.Send(ctx, c, []int8{1}, 0, 0), worldtest.RecvError(ctx, c, 0, 0)} {
			r, ok := errors.AsType[*nexar.RevokedError](err)
			switch {
			case !ok || r.Rank != last || !errors.Is(err, nexar.ErrRevoked):
				return fmt.Errorf("call %d after it: %w, want a RevokedError of rank %d", i, err, last)
			case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errEnough):
				return fmt.Errorf("call %d after it is context.Canceled: %w", i, err)
			case !strings.Contains(err.Error(), fmt.Sprintf("communicator revoked by rank %d: its call ", last)):
				return fmt.Errorf("call %d after it: %w, want the rank in the text", i, err)
			}
		}
		return nil
	})
}

// TestCauseOfAnotherCommunicator: the cause of a context may be an error of another communicator, with more
// ranks. The call returns it, and blames no rank of its own communicator.
func TestCauseOfAnotherCommunicator(t *testing.T) {
	cause := &nexar.PeerError{Rank: 3, Err: errEnough}
	for name, call := range map[string]func(ctx context.Context, c *nexar.Comm) error{
		"barrier": func(ctx context.Context, c *nexar.Comm) error { return c.Barrier(ctx) },
		"recv":    func(ctx context.Context, c *nexar.Comm) error { return worldtest.RecvError(ctx, c, 1, 0) },
		"call": func(ctx context.Context, c *nexar.Comm) error {
			_, err := c.Call(ctx, 1, "wait", nil)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			comms := worldtest.Local(t, 2, nexar.Config{})
			for _, c := range comms {
				c.Register("wait", func(ctx context.Context, _ int, _ []byte) ([]byte, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				})
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(20*time.Millisecond, func() { cancel(cause) })
			err := call(ctx, comms[0])
			if peer, ok := errors.AsType[*nexar.PeerError](err); !ok || peer != cause {
				t.Errorf("%v, want the cause of the context", err)
			}
		})
	}
}

// TestRevokedAtTheSameTime: a call concurrent with a cancelled one returns a RevokedError.
func TestRevokedAtTheSameTime(t *testing.T) {
	comms := worldtest.Local(t, 2, nexar.Config{})
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	other := make(chan error)
	go func() { other <- worldtest.RecvError(ctx, comms[0], 1, 3) }()
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := comms[0].Barrier(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the cancelled call: %v", err)
	}
	err := <-other
	if r, ok := errors.AsType[*nexar.RevokedError](err); !ok || r.Rank != 0 || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the other call: %v, want a RevokedError of rank 0", err)
	}
}

// TestCancelledBeforeAlone: a communicator of one rank handles an ended context as others do.
func TestCancelledBeforeAlone(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, n := range []int{1, 2} {
		for name, op := range map[string]func(c *nexar.Comm) error{
			"barrier":    func(c *nexar.Comm) error { return c.Barrier(ended) },
			"all_reduce": func(c *nexar.Comm) error { return nexar.AllReduce(ended, c, []int8{1}, nexar.Sum) },
			"all_gather": func(c *nexar.Comm) error { return nexar.AllGather(ended, c, make([]int8, c.Size()), []int8{1}) },
		} {
			c := worldtest.Local(t, n, nexar.Config{})[0]
			if err := op(c); !errors.Is(err, context.Canceled) {
				t.Errorf("%s of %d ranks: %v, want context.Canceled", name, n, err)
			}
			if err := c.Err(); !errors.Is(err, nexar.ErrRevoked) {
				t.Errorf("%s of %d ranks: later %v, want ErrRevoked", name, n, err)
			}
		}
		c := worldtest.Local(t, n, nexar.Config{})[0]
		for name, err := range map[string]error{"send": nexar.Send(ended, c, []int8{1}, 0, 0), "recv": worldtest.RecvError(ended, c, 0, 0)} {
			if !errors.Is(err, context.Canceled) || c.Err() != nil {
				t.Errorf("%s of %d ranks: %v, and later %v", name, n, err, c.Err())
			}
		}
	}
}

// TestErr: Err returns the reason for the end of a communicator, or nil.
func TestErr(t *testing.T) {
	comms := worldtest.Local(t, 3, nexar.Config{})
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if err := comms[2].Close(); err != nil {
		t.Fatal(err)
	}
	if err := comms[2].Err(); !errors.Is(err, nexar.ErrClosed) || errors.Is(err, nexar.ErrRevoked) {
		t.Errorf("closed: %v", err)
	}
	// Messages between the remaining ranks work.
	if err := worldtest.RecvError(ctx, comms[1], 2, 0); !errors.Is(err, nexar.ErrPeerFailed) {
		t.Errorf("recv from the rank that has left: %v", err)
	}
	if err := comms[1].Err(); err != nil {
		t.Errorf("Err after an unneeded rank has left: %v, want nil", err)
	}
	worldtest.OnAll(t, comms[:2], func(rank int, c *nexar.Comm) error {
		if err := c.Barrier(ctx); !errors.Is(err, nexar.ErrPeerFailed) {
			return fmt.Errorf("barrier without rank 2: %w", err)
		}
		err := c.Err()
		r, ok := errors.AsType[*nexar.RevokedError](err)
		p, of := errors.AsType[*nexar.PeerError](err)
		if !ok || !of || r.Rank != 2 || p.Rank != 2 || strings.Contains(err.Error(), "by rank") {
			return fmt.Errorf("%w, want a RevokedError because rank 2 has left", err)
		}
		return nil
	})
}
