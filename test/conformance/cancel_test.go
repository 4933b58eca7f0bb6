package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestCancelledMessage: a Send or Recv with a context that has ended sends or receives nothing,
// and has no other effect.
func TestCancelledMessage(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 3, nexar.Config{})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(worldtest.ErrCancelled)
	for _, c := range comms {
		for name, err := range map[string]error{
			"send": nexar.Send(ctx, c, make([]float32, 300_000), 1, 0),
			"recv": worldtest.RecvError(ctx, c, 1, 0),
		} {
			if !errors.Is(err, worldtest.ErrCancelled) || !strings.HasPrefix(err.Error(), "nexar: "+name+": ") {
				t.Errorf("%s: %v, want its cause: %v", name, err, worldtest.ErrCancelled)
			}
		}
	}
	worldtest.CheckWorks(t, comms)
}

// TestCancelledBefore: a rank that calls a collective with a context that has ended takes
// no part in it, and the other ranks get an error that names it.
func TestCancelledBefore(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.Sim(), worldtest.QUIC()) {
		for _, count := range []int{1, 300_000} {
			t.Run(fmt.Sprintf("%s/%d", m.Name, count), func(t *testing.T) {
				comms := m.Cluster(t, 3, nexar.Config{})
				ended, cancel := context.WithCancelCause(t.Context())
				cancel(worldtest.ErrCancelled)
				worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
					ctx, want := t.Context(), nexar.ErrRevoked
					if rank == 1 {
						ctx, want = ended, worldtest.ErrCancelled
					}
					err := nexar.AllReduce(ctx, c, make([]float32, count), nexar.Sum)
					if !errors.Is(err, want) || rank != 1 && !strings.Contains(err.Error(), "rank 1") {
						return fmt.Errorf("%v, want %v of rank 1", err, want)
					}
					if err := c.Barrier(t.Context()); !errors.Is(err, nexar.ErrRevoked) {
						return fmt.Errorf("a later barrier: %v, want %v", err, nexar.ErrRevoked)
					}
					return nil
				})
			})
		}
	}
}

// TestCancelledDuring: the first operation that is cancelled while other ranks take part
// in it revokes the communicator. Its own rank gets the cause, the others an error that
// names the rank.
func TestCancelledDuring(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.Sim(), worldtest.QUIC()) {
		for _, count := range []int{1, 300_000} {
			for name, op := range map[string]func(ctx context.Context, c *nexar.Comm) error{
				"barrier": func(ctx context.Context, c *nexar.Comm) error { return c.Barrier(ctx) },
				"all_reduce": func(ctx context.Context, c *nexar.Comm) error {
					return nexar.AllReduce(ctx, c, make([]float32, count), nexar.Sum)
				},
				"all_gather": func(ctx context.Context, c *nexar.Comm) error {
					return nexar.AllGather(ctx, c, make([]float32, c.Size()*count), make([]float32, count))
				},
			} {
				t.Run(fmt.Sprintf("%s/%s/%d", m.Name, name, count), func(t *testing.T) {
					cancelDuring(t, m, op)
				})
			}
		}
	}
}

// cancelDuring starts op on ranks 0 and 1 of three, and cancels it on rank 1.
func cancelDuring(t *testing.T, m worldtest.Medium, op func(ctx context.Context, c *nexar.Comm) error) {
	comms := m.Cluster(t, 3, nexar.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
	defer cancel()
	ended := make(chan struct{}, 2)
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		switch rank {
		case 1:
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(50*time.Millisecond, func() { cancel(worldtest.ErrCancelled) })
			err := op(ctx, c)
			ended <- struct{}{}
			if !errors.Is(err, worldtest.ErrCancelled) {
				return fmt.Errorf("the cancelled call: %v, want %v", err, worldtest.ErrCancelled)
			}
		case 0:
			err := op(ctx, c)
			ended <- struct{}{}
			r, ok := errors.AsType[*nexar.RevokedError](err)
			if !ok || r.Rank != 1 || !strings.Contains(err.Error(), "revoked by rank 1: its call was cancelled: "+worldtest.ErrCancelled.Error()) {
				return fmt.Errorf("the call of another rank: %v", err)
			}
		case 2:
			// This rank calls after the cancellation. It may still succeed if it has
			// not heard of the revocation.
			<-ended
			<-ended
			if err := op(ctx, c); err != nil && (!errors.Is(err, nexar.ErrRevoked) || !strings.Contains(err.Error(), worldtest.ErrCancelled.Error())) {
				return fmt.Errorf("the late call: %v, want ErrRevoked with %q", err, worldtest.ErrCancelled)
			}
		}
		for i, err := range []error{c.Barrier(ctx), nexar.Send(ctx, c, []int8{1}, 0, 0), worldtest.RecvError(ctx, c, 0, 0)} {
			if !errors.Is(err, nexar.ErrRevoked) || !strings.Contains(err.Error(), worldtest.ErrCancelled.Error()) {
				return fmt.Errorf("later call %d: %v, want ErrRevoked with %q", i, err, worldtest.ErrCancelled)
			}
		}
		return nil
	})
}

// TestCancelledRecv: a Recv that is cancelled before its message has arrived changes
// nothing.
func TestCancelledRecv(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.Sim(), worldtest.QUIC()) {
		for _, count := range []int{0, 3, 200_000} {
			t.Run(fmt.Sprintf("%s/%d", m.Name, count), func(t *testing.T) {
				comms := m.Cluster(t, 2, nexar.Config{})
				s := stream{0, 1, 7}
				worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
					ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
					defer cancel()
					if rank == 0 {
						if err := c.Barrier(ctx); err != nil {
							return err
						}
						return nexar.Send(ctx, c, make([]float32, count), 1, s.tag)
					}
					for i, from := range []int{0, 0, nexar.AnyRank, 1} {
						short, cancel := context.WithTimeoutCause(ctx, 3*time.Millisecond, worldtest.ErrCancelled)
						buf := slices.Repeat([]float32{1}, count)
						_, err := nexar.Recv(short, c, buf, from, []nexar.Tag{s.tag, nexar.AnyTag, s.tag, 7}[i])
						cancel()
						if !errors.Is(err, worldtest.ErrCancelled) || errors.Is(err, nexar.ErrRevoked) {
							return fmt.Errorf("recv: %v, want %v", err, worldtest.ErrCancelled)
						}
						if slices.Contains(buf, 0) {
							return errors.New("a failed Recv has changed its buffer")
						}
					}
					if err := c.Barrier(ctx); err != nil {
						return err
					}
					got, err := nexar.Recv(ctx, c, make([]float32, count), 0, s.tag)
					if err == nil && got.Count != count {
						err = fmt.Errorf("received %d elements, want %d", got.Count, count)
					}
					return err
				})
				worldtest.CheckWorks(t, comms)
			})
		}
	}
}

// cancelledByMessage returns a context that is cancelled, with ErrCancelled, when rank 0 has sent a message to c.
func cancelledByMessage(t *testing.T, c *nexar.Comm, tag nexar.Tag) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		_, err := nexar.Probe[int32](t.Context(), c, 0, tag)
		cancel(errors.Join(worldtest.ErrCancelled, err))
	}()
	return ctx
}

// TestCancelledSend: a Send that is cancelled while it waits for its receiver revokes the
// communicator.
func TestCancelledSend(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{})
	ctx := cancelledByMessage(t, comms[1], 0)
	if err := nexar.Send(ctx, comms[0], make([]float32, 100_000), 1, 0); !errors.Is(err, worldtest.ErrCancelled) {
		t.Errorf("send: %v, want %v", err, worldtest.ErrCancelled)
	}
	for _, c := range comms {
		later, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
		if err := c.Barrier(later); !errors.Is(err, nexar.ErrRevoked) || !strings.Contains(err.Error(), worldtest.ErrCancelled.Error()) {
			t.Errorf("rank %d: %v, want ErrRevoked", c.Rank(), err)
		}
		cancel()
	}
}

// TestCollectiveTimeout: the error of a collective that times out names the ranks that
// have not called it and their current calls, even if ranks wait for each other in a
// chain.
func TestCollectiveTimeout(t *testing.T) {
	x := make([]float32, 100_000)
	for _, test := range []struct {
		name    string
		missing int
		op      func(ctx context.Context, c *nexar.Comm) error
	}{
		{"barrier", 0, func(ctx context.Context, c *nexar.Comm) error { return c.Barrier(ctx) }},
		{"barrier", 7, func(ctx context.Context, c *nexar.Comm) error { return c.Barrier(ctx) }},
		{"all_reduce", 7, func(ctx context.Context, c *nexar.Comm) error {
			return nexar.AllReduce(ctx, c, make([]float32, len(x)), nexar.Sum)
		}},
		{"reduce", 7, func(ctx context.Context, c *nexar.Comm) error {
			return nexar.Reduce(ctx, c, make([]int8, 1), nexar.Sum, 0)
		}},
		{"broadcast", 0, func(ctx context.Context, c *nexar.Comm) error {
			return nexar.Broadcast(ctx, c, make([]float32, len(x)), 7)
		}},
		{"scan", 7, func(ctx context.Context, c *nexar.Comm) error { return nexar.Scan(ctx, c, make([]int8, 1), nexar.Sum) }},
	} {
		t.Run(fmt.Sprintf("%s without %d", test.name, test.missing), func(t *testing.T) {
			t.Parallel()
			timeOut(t, test.name, test.missing, test.op)
		})
	}
}

func timeOut(t *testing.T, name string, missing int, op func(ctx context.Context, c *nexar.Comm) error) {
	const limit = 2 * time.Second
	comms := worldtest.Mem().Cluster(t, 8, nexar.Config{CollectiveTimeout: limit, BarrierTimeout: limit})
	began := time.Now()
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
		defer cancel()
		if err := nexar.AllReduce(ctx, c, []uint8{1, 2, 3}, nexar.Max); err != nil {
			return err
		}
		if rank == missing {
			return nil
		}
		err := op(ctx, c)
		if err == nil {
			err = c.Barrier(ctx) // its part of the first barrier may have ended
		}
		late, timedOut := errors.AsType[*nexar.TimeoutError](err)
		revoked, told := errors.AsType[*nexar.RevokedError](err)
		want := fmt.Sprintf("timed out after %v: Rank", limit)
		switch {
		case !timedOut && !told || told && revoked.Rank == missing:
			return fmt.Errorf("%w, want a timeout", err)
		case timedOut && (late.Op != name && late.Op != "barrier" || late.After != limit || late.Waiting[0] != missing):
			return fmt.Errorf("%w: Waiting is %v, want rank %d first", err, late.Waiting, missing)
		case !strings.Contains(err.Error(), fmt.Sprintf(" for rank %d, which has been in no call", missing)):
			return fmt.Errorf("%w, want that rank %d has been in no call", err, missing)
		case timedOut && !errors.Is(err, context.DeadlineExceeded):
			return fmt.Errorf("%w: want context.DeadlineExceeded", err)
		case !strings.Contains(err.Error(), want):
			return fmt.Errorf("%w, want the text %q", err, want)
		}
		return nil
	})
	if took := time.Since(began); took > limit+worldtest.Patience {
		t.Errorf("the timeout took %v", took)
	}
}
