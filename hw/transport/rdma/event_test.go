//go:build linux

package rdma

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestNoEvents: if the library returns no events of completions, or of the device, conns end, and the reason says so.
func TestNoEvents(t *testing.T) {
	needFake(t)
	for call, want := range map[string]string{
		"ibv_get_cq_event":    "events of completions: verbs: ibv_get_cq_event: input/output error",
		"ibv_get_async_event": "the events of device fake0: verbs: ibv_get_async_event: input/output error",
	} {
		t.Run(call, func(t *testing.T) {
			defer fake.Error("", 0)
			a, b := connect(t, newBreakable(t, 2))
			fake.Error(call, syscall.EIO)
			fake.PortDown(2) // an event of another port
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if err := stream(ctx, a, b, 5, func(int) {}); err != nil && !errors.Is(err, errFailed) {
				t.Error(err)
			}
			<-a.Done()
			<-b.Done()
			if err := errors.Join(a.Err(), b.Err()); !errors.Is(err, errFailed) || !strings.Contains(err.Error(), want) {
				t.Errorf("conns have ended with %v, want %q", err, want)
			}
		})
	}
}
