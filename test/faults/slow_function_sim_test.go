package faults

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/testlog"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestSlowFunctionAndMessages: the time that a rank spends in the function of a reduction does not count for the MessageTimeout
// of its messages over the same connection: nothing reads that meanwhile. Without such a function the time counts.
func TestSlowFunctionAndMessages(t *testing.T) {
	const limit, slow = 5 * time.Second, 30 * time.Second
	sum := func(took time.Duration) func(dst, src []int32) {
		return func(dst, src []int32) {
			time.Sleep(took)
			for i := range dst {
				dst[i] += src[i]
			}
		}
	}
	cfg := nexar.Config{MessageTimeout: limit, DeadlockTimeout: -1}
	stalled(t, 2, cfg, func(t *testing.T, comms world, _ *testlog.Buffer) {
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			vector := []int32{int32(rank + 1)}
			reducing := nexar.StartAllReduceFunc(t.Context(), c, vector, sum(slow))
			received := make(chan error, 1)
			go func() { received <- recvInt(t.Context(), c, 1-rank, 1) }()
			time.Sleep(time.Second) // Both ranks are in the function.
			err := errors.Join(nexar.Send(t.Context(), c, []int32{1}, 1-rank, 1), <-received, reducing.Wait())
			if err == nil && vector[0] != 3 {
				err = fmt.Errorf("the sum is %d, want 3", vector[0])
			}
			return err
		})
	})
	stalled(t, 2, cfg, func(t *testing.T, comms world, _ *testlog.Buffer) {
		began := time.Now()
		err := recvInt(context.Background(), comms[0], 1, 1)
		if took := time.Since(began); !isTimeout(err) || took < limit || took > limit+2*time.Second {
			t.Errorf("after %v: %v, want a timeout after %v", took, err, limit)
		}
	})
}

func isTimeout(err error) bool {
	_, is := errors.AsType[*nexar.TimeoutError](err)
	return is
}
