package faults

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/testlog"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestMessageTimeout: a receive and a probe of a named rank end after 30 minutes, and leave the
// communicator usable. A send ends after 30 minutes, with the communicator. The errors have the
// calls of the other rank.
func TestMessageTimeout(t *testing.T) {
	require.NoRace(t, "an hour of fake time is millions of timers, and other tests have the same goroutines")
	stalledLocal(t, 2, nexar.Config{}, func(t *testing.T, comms world, _ *testlog.Buffer) {
		c := comms[0]
		check := func(op string, begun time.Time, err error) {
			t.Helper()
			late, ok := errors.AsType[*nexar.TimeoutError](err)
			if !ok || late.Op != op || late.After != 30*time.Minute || len(late.Waiting) != 1 || late.Waiting[0] != 1 || !strings.HasSuffix(plain(err.Error()), " rank 1, which has made no call") {
				t.Errorf("%s: %v, want a timeout that says that rank 1 has made no call", op, err)
			}
			if took := time.Since(begun); took < 30*time.Minute || took > 30*time.Minute+5*time.Second {
				t.Errorf("%s ended after %v, want 30 minutes", op, took)
			}
		}
		begun := time.Now()
		_, err := nexar.Recv(t.Context(), c, make([]int32, 1), 1, 1)
		check("recv", begun, err)
		begun = time.Now()
		_, err = nexar.Probe[int32](t.Context(), c, 1, 1)
		check("probe", begun, err)
		if err := c.Err(); err != nil {
			t.Errorf("the communicator has ended: %v", err)
		}
		begun = time.Now()
		err = nexar.Send(t.Context(), c, make([]byte, large), 1, 1)
		check("send", begun, err)
		if err := comms[1].Barrier(t.Context()); !errors.Is(err, nexar.ErrRevoked) {
			t.Errorf("the other rank: %v, want %v", err, nexar.ErrRevoked)
		}
	})
}

// TestNoMessageTimeout: with a negative timeout messages wait for ever, and deadlocks do not end.
func TestNoMessageTimeout(t *testing.T) {
	require.NoRace(t, "hours of fake time are millions of timers, after which the detector has crashed")
	stalledLocal(t, 2, nexar.Config{MessageTimeout: -1, DeadlockTimeout: -1}, func(t *testing.T, comms world, _ *testlog.Buffer) {
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			if rank == 1 {
				go func() {
					time.Sleep(3 * time.Hour)
					_ = nexar.Send(t.Context(), c, make([]int32, 1), 0, 1)
				}()
			}
			_, err := nexar.Recv(t.Context(), c, make([]int32, 1), 1-rank, 1)
			return errors.Join(err, nexar.Send(t.Context(), c, make([]int32, 1), 1-rank, 1))
		})
	})
}

// TestSendToItself: a blocking send of a rank to itself that nothing receives is logged at once and fails after DeadlockTimeout. It names
// this rank alone, and the communicator goes on. It succeeds if another goroutine receives before.
func TestSendToItself(t *testing.T) {
	const limit = 20 * time.Second
	stalled(t, 2, nexar.Config{DeadlockTimeout: limit}, func(t *testing.T, comms world, log *testlog.Buffer) {
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			if rank == 1 {
				return c.Barrier(t.Context())
			}
			start := time.Now()
			time.AfterFunc(2*time.Second, func() {
				if !strings.Contains(log.String(), "this rank waits for itself") {
					t.Errorf("no warning after two seconds: %s", log)
				}
			})
			err := nexar.Send(t.Context(), c, make([]byte, large), 0, 7)
			d, ok := errors.AsType[*nexar.DeadlockError](err)
			if !ok || d.Ranks != 1 || len(d.Waits) != 1 || d.Waits[0].Rank != 0 || d.Waits[0].WaitsFor != 0 {
				t.Errorf("got error %v, want a deadlock of rank 0 alone", err)
			}
			const want = "Rank 0 has waited for itself in send to rank 0 for 20 s: a deadlock: begin the receive before"
			if err == nil || !strings.Contains(plain(err.Error()), want) {
				t.Errorf("got error %v, want one with %q", err, want)
			}
			if took := time.Since(start); took < limit || took > limit+5*time.Second {
				t.Errorf("took %v, want %v", took, limit)
			}
			sent := make(chan error, 1)
			go func() { sent <- nexar.Send(t.Context(), c, make([]byte, large), 0, 8) }()
			time.Sleep(limit / 2)
			_, err = nexar.Recv(t.Context(), c, make([]byte, large), 0, 8)
			return errors.Join(err, <-sent, c.Barrier(t.Context()))
		})
	})
}

// TestSendToItselfTimesOut: without a DeadlockTimeout, a blocking send of a rank to itself fails after MessageTimeout.
func TestSendToItselfTimesOut(t *testing.T) {
	const limit = 20 * time.Second
	stalled(t, 2, nexar.Config{DeadlockTimeout: -1, MessageTimeout: limit}, func(t *testing.T, comms world, _ *testlog.Buffer) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		err := nexar.Send(ctx, comms[0], make([]byte, large), 0, 7)
		if took := time.Since(start); !errors.Is(err, nexar.ErrDeadlock) || took < limit || took > limit+5*time.Second {
			t.Errorf("%v after %v, want a deadlock after %v", err, took, limit)
		}
	})
}
