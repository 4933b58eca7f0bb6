package faults

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/testlog"
	"github.com/nexar-go/nexar/test/worldtest"
)

// noDeadlock reports an error if log has a deadlock.
func noDeadlock(t *testing.T, log *testlog.Buffer) {
	t.Helper()
	if text := log.String(); strings.Contains(text, "each other") {
		t.Errorf("a deadlock is logged:\n%s", text)
	}
}

func recvInt(ctx context.Context, c *nexar.Comm, from int, tag nexar.Tag) error {
	_, err := nexar.Recv(ctx, c, make([]int32, 1), from, tag)
	return err
}

// TestListeners: a goroutine of each rank receives from any rank while the programs compute for ten
// minutes. The ranks are idle, and in no deadlock.
func TestListeners(t *testing.T) {
	stalledLocal(t, 3, nexar.Config{}, func(t *testing.T, comms world, log *testlog.Buffer) {
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			heard := make(chan error, 1)
			go func() { heard <- recvInt(t.Context(), c, nexar.AnyRank, 1) }()
			time.Sleep(10 * time.Minute)
			return errors.Join(nexar.Send(t.Context(), c, []int32{1}, (rank+1)%3, 1), <-heard)
		})
		noDeadlock(t, log)
	})
}

// TestDoneIsNoDeadlock: ranks 0 and 1 receive from each other. Another goroutine of rank 0 waits by
// Handle.Done for a message of rank 2, and then sends the missing one.
func TestDoneIsNoDeadlock(t *testing.T) {
	stalledLocal(t, 3, nexar.Config{}, func(t *testing.T, comms world, log *testlog.Buffer) {
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			switch rank {
			case 0:
				ended := make(chan error, 1)
				go func() { ended <- recvInt(t.Context(), c, 1, 1) }()
				h := nexar.StartRecv(t.Context(), c, make([]int32, 1), 2, 2)
				<-h.Done()
				return errors.Join(h.Wait(), nexar.Send(t.Context(), c, []int32{1}, 1, 3), <-ended)
			case 1:
				return errors.Join(recvInt(t.Context(), c, 0, 3), nexar.Send(t.Context(), c, []int32{1}, 0, 1))
			}
			time.Sleep(10 * time.Minute)
			return nexar.Send(t.Context(), c, []int32{1}, 0, 2)
		})
		noDeadlock(t, log)
	})
}

// TestDeadlineIsNoDeadlock: two ranks receive from each other with a deadline of two minutes, do
// something else, and use the communicator again.
func TestDeadlineIsNoDeadlock(t *testing.T) {
	stalledLocal(t, 2, nexar.Config{}, func(t *testing.T, comms world, log *testlog.Buffer) {
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			if err := recvInt(ctx, c, 1-rank, 1); !errors.Is(err, context.DeadlineExceeded) {
				return err
			}
			_, err := nexar.Exchange(t.Context(), c, make([]int32, 1), []int32{1}, 1-rank, 1-rank, 2)
			return err
		})
		noDeadlock(t, log)
	})
}

// TestDeadlockAfterLeave: rank 3 has closed the communicator. Ranks 0 to 2 wait for each other, and
// rank 0 would take a message of any rank.
func TestDeadlockAfterLeave(t *testing.T) {
	stalledLocal(t, 4, nexar.Config{}, func(t *testing.T, comms world, _ *testlog.Buffer) {
		ctx, cancel := context.WithCancel(t.Context()) // A deadline would prevent the deadlock.
		defer cancel()
		time.AfterFunc(time.Hour, cancel)
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			from := rank - 1
			switch rank {
			case 0:
				from = nexar.AnyRank
			case 3:
				c.Close()
				return nil
			}
			if err := recvInt(ctx, c, from, 1); !errors.Is(err, nexar.ErrDeadlock) {
				return errors.Join(errors.New("want a deadlock"), err)
			}
			return nil
		})
	})
}
