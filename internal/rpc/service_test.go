package rpc

import (
	"context"
	"testing"
)

// Wait on a Service that has ended returns nil, even if its context has ended.
func TestWaitEnded(t *testing.T) {
	w := newWorld(t, 2, Config{})
	s := w.services[0]
	s.Close(errTestClosed)
	if err := s.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 200 {
		if err := s.Wait(ctx); err != nil {
			t.Fatalf("error %v, although nothing runs", err)
		}
	}
}
