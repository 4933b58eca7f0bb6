//go:build linux

package rdma

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestNoEvents: if the library returns no events of completions, or of the device, conns go on over TCP, and the reason says so.
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
			if err := stream(ctx, a, b, 5, func(int) {}); err != nil {
				t.Error(err)
			}
			for a.Fallback() == nil && b.Fallback() == nil && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			if err := stream(ctx, b, a, 5, func(int) {}); err != nil {
				t.Error(err)
			}
			var reasons []string
			for _, c := range []*conn{a, b} {
				if f := c.Fallback(); f != nil {
					reasons = append(reasons, f.Reason)
				}
			}
			if all := strings.Join(reasons, "; "); !strings.Contains(all, want) {
				t.Errorf("reasons %q, want %q", all, want)
			}
		})
	}
}
