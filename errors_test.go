package nexar

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/collective"
	"github.com/nexar-go/nexar/internal/comm"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/wire"
)

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
				comms := localCluster(t, n, Config{})
				cancelOne(t, comms, test.end, test.want)
			})
		}
	}
}

// cancelOne cancels a send of the last rank, for a message that is not received.
func cancelOne(t *testing.T, comms []*Comm, end func(context.Context) (context.Context, context.CancelFunc), want error) {
	t.Helper()
	last := len(comms) - 1
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	onAll(t, comms, func(rank int, c *Comm) error {
		if err := c.Err(); err != nil {
			return fmt.Errorf("before: %w", err)
		}
		if rank != last {
			if err := c.Barrier(ctx); !errors.Is(err, ErrRevoked) {
				return fmt.Errorf("barrier: %w, want ErrRevoked", err)
			}
		} else {
			ctx, cancel := end(ctx)
			defer cancel()
			err := StartSend(ctx, c, make([]float32, 100_000), rank, 0).Wait()
			if !errors.Is(err, want) || !errors.Is(err, errEnough) || errors.Is(err, ErrRevoked) {
				return fmt.Errorf("cancelled call: %w, want %w and its cause", err, want)
			}
		}
		for i, err := range []error{c.Err(), c.Barrier(ctx), Send(ctx, c, []int8{1}, 0, 0), recvError(ctx, c, 0, 0)} {
			r, ok := errors.AsType[*RevokedError](err)
			switch {
			case !ok || r.Rank != last || !errors.Is(err, ErrRevoked):
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
	cause := &PeerError{Rank: 3, Err: errEnough}
	for name, call := range map[string]func(ctx context.Context, c *Comm) error{
		"barrier": func(ctx context.Context, c *Comm) error { return c.Barrier(ctx) },
		"recv":    func(ctx context.Context, c *Comm) error { return recvError(ctx, c, 1, 0) },
		"call": func(ctx context.Context, c *Comm) error {
			_, err := c.Call(ctx, 1, "wait", nil)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			comms := localCluster(t, 2, Config{})
			for _, c := range comms {
				c.Register("wait", func(ctx context.Context, _ int, _ []byte) ([]byte, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				})
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(20*time.Millisecond, func() { cancel(cause) })
			err := call(ctx, comms[0])
			if peer, ok := errors.AsType[*PeerError](err); !ok || peer != cause {
				t.Errorf("%v, want the cause of the context", err)
			}
		})
	}
}

// TestRevokedAtTheSameTime: a call concurrent with a cancelled one returns a RevokedError.
func TestRevokedAtTheSameTime(t *testing.T) {
	comms := localCluster(t, 2, Config{})
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	other := make(chan error)
	go func() { other <- recvError(ctx, comms[0], 1, 3) }()
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := comms[0].Barrier(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the cancelled call: %v", err)
	}
	err := <-other
	if r, ok := errors.AsType[*RevokedError](err); !ok || r.Rank != 0 || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the other call: %v, want a RevokedError of rank 0", err)
	}
}

// TestCancelledBeforeAlone: a communicator of one rank handles an ended context as others do.
func TestCancelledBeforeAlone(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, n := range []int{1, 2} {
		for name, op := range map[string]func(c *Comm) error{
			"barrier":    func(c *Comm) error { return c.Barrier(ended) },
			"all_reduce": func(c *Comm) error { return AllReduce(ended, c, []int8{1}, Sum) },
			"all_gather": func(c *Comm) error { return AllGather(ended, c, make([]int8, c.Size()), []int8{1}) },
		} {
			c := localCluster(t, n, Config{})[0]
			if err := op(c); !errors.Is(err, context.Canceled) {
				t.Errorf("%s of %d ranks: %v, want context.Canceled", name, n, err)
			}
			if err := c.Err(); !errors.Is(err, ErrRevoked) {
				t.Errorf("%s of %d ranks: later %v, want ErrRevoked", name, n, err)
			}
		}
		c := localCluster(t, n, Config{})[0]
		for name, err := range map[string]error{"send": Send(ended, c, []int8{1}, 0, 0), "recv": recvError(ended, c, 0, 0)} {
			if !errors.Is(err, context.Canceled) || c.Err() != nil {
				t.Errorf("%s of %d ranks: %v, and later %v", name, n, err, c.Err())
			}
		}
	}
}

// TestErr: Err returns the reason for the end of a communicator, or nil.
func TestErr(t *testing.T) {
	comms := localCluster(t, 3, Config{})
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	if err := comms[2].Close(); err != nil {
		t.Fatal(err)
	}
	if err := comms[2].Err(); !errors.Is(err, ErrClosed) || errors.Is(err, ErrRevoked) {
		t.Errorf("closed: %v", err)
	}
	// Messages between the remaining ranks work.
	if err := recvError(ctx, comms[1], 2, 0); !errors.Is(err, ErrPeerFailed) {
		t.Errorf("recv from the rank that has left: %v", err)
	}
	if err := comms[1].Err(); err != nil {
		t.Errorf("Err after an unneeded rank has left: %v, want nil", err)
	}
	onAll(t, comms[:2], func(rank int, c *Comm) error {
		if err := c.Barrier(ctx); !errors.Is(err, ErrPeerFailed) {
			return fmt.Errorf("barrier without rank 2: %w", err)
		}
		err := c.Err()
		r, ok := errors.AsType[*RevokedError](err)
		p, of := errors.AsType[*PeerError](err)
		if !ok || !of || r.Rank != 2 || p.Rank != 2 || strings.Contains(err.Error(), "by rank") {
			return fmt.Errorf("%w, want a RevokedError because rank 2 has left", err)
		}
		return nil
	})
}

func TestLateRank(t *testing.T) {
	call := Call{Op: "barrier", Seq: 4, Root: -1}
	for want, l := range map[string]LateRank{
		"rank 1 (not heard of)":                                     {Rank: 1},
		"rank 2 (last called barrier #4)":                           {Rank: 2, Answered: true, Call: call},
		"rank 3 (in barrier #4)":                                    {Rank: 3, Answered: true, Active: true, Call: call},
		"rank 3 (in barrier #4 for 31s)":                            {Rank: 3, Answered: true, Active: true, Call: call, Elapsed: 31*time.Second + 40*time.Millisecond, Silent: time.Second},
		"rank 2 (last called barrier #4, which ended 1.3s ago)":     {Rank: 2, Answered: true, Call: call, Elapsed: 1310 * time.Millisecond},
		"rank 3 (in barrier #4 for 2m1s, and not heard of for 29s)": {Rank: 3, Answered: true, Active: true, Call: call, Elapsed: 121 * time.Second, Silent: 29 * time.Second},
		"rank 4 (last called no collective)":                        {Rank: 4, Answered: true},
		"rank 5 (in gather #1 (3 × int8, root 2))":                  {Rank: 5, Answered: true, Active: true, Call: Call{Op: "gather", Seq: 1, Type: "int8", Length: 3, Root: 2}},
	} {
		if got := l.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestCallOfUnknown: unknown values from a newer peer are shown as numbers.
func TestCallOfUnknown(t *testing.T) {
	for want, call := range map[string]wire.Call{
		"barrier #2":                                {Kind: uint8(plan.Barrier), Seq: 2},
		"collective 99 #3 (5 × type 77, op 88)":     {Kind: 99, Type: 77, Op: 88, Seq: 3, Count: 5},
		"all_reduce #4 (0 × float32, sum)":          {Kind: uint8(plan.AllReduce), Type: 9, Op: 1, Seq: 4},
		"all_reduce_func #5 (1 × int8, a function)": {Kind: uint8(plan.AllReduce), Type: 1, Op: collective.FuncOp, Seq: 5, Count: 1},
	} {
		if got := describe(call).String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := describe(wire.Call{Kind: 99, Plan: 12}).Plan; got != "algorithm 12" {
		t.Errorf("plan %q", got)
	}
}

// TestVastFingerprint: lengths in fingerprints and errors have 64 bits, or 39 bits for the total
// of blocks of different lengths.
func TestVastFingerprint(t *testing.T) {
	for _, count := range []uint64{1<<32 + 1000, 1<<32 + 1, 1 << 62} {
		if got := describe(wire.Call{Kind: uint8(plan.AllReduce), Seq: 1, Count: count}); got.Length != int(count) || got.Counts != 0 {
			t.Errorf("%d elements: got %+v", count, got)
		}
	}
	for _, total := range []uint64{1<<32 + 1000, 1<<32 + 1, 1<<39 - 1} {
		const digest = 0xabcdef
		if got := describe(wire.Call{Kind: uint8(plan.Gather), Seq: 1, Count: wire.Uneven(total, digest)}); got.Length != int(total) || got.Counts != digest {
			t.Errorf("%d elements of uneven blocks: got %+v", total, got)
		}
	}
}

// TestRemovedErrors: a removed node gets ErrRemoved, and ErrExcluded only if others have excluded it.
func TestRemovedErrors(t *testing.T) {
	for _, excluded := range []bool{false, true} {
		err := epochError(t.Context(), &comm.LostError{Err: &client.RemovedError{Seed: "s:1", Text: "rank 2 has …", Excluded: excluded}})
		if !errors.Is(err, ErrNoQuorum) || !errors.Is(err, ErrRemoved) || errors.Is(err, ErrExcluded) != excluded || !strings.Contains(err.Error(), "rank 2 has …") {
			t.Errorf("excluded %v: got error %v", excluded, err)
		}
	}
	err := epochError(t.Context(), &comm.LostError{Err: client.ErrSeedGone})
	if !errors.Is(err, ErrNoQuorum) || errors.Is(err, ErrRemoved) {
		t.Errorf("without a seed: got error %v", err)
	}
}
