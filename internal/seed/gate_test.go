package seed

import (
	"context"
	"errors"
	"testing"
	"time"
)

func testConn() *tlsConn { return &tlsConn{remote: "stranger", done: make(chan struct{})} }

func TestGateLetsIn(t *testing.T) {
	g := newGate(2, time.Hour)
	a, _, err := g.enter(t.Context(), testConn())
	if err != nil {
		t.Fatal(err)
	}
	if _, pushed, err := g.enter(t.Context(), testConn()); err != nil || pushed != nil {
		t.Fatal(pushed, err)
	}
	// Full, and nobody is old enough to be pushed out.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, pushed, err := g.enter(ctx, testConn()); !errors.Is(err, context.DeadlineExceeded) || pushed != nil {
		t.Errorf("pushed %v, error %v", pushed, err)
	}
	time.AfterFunc(10*time.Millisecond, func() {
		g.leave(a)
		g.leave(a) // gives no second place free
	})
	if _, pushed, err := g.enter(t.Context(), testConn()); err != nil || pushed != nil {
		t.Errorf("pushed %v, error %v, want the place that was left", pushed, err)
	}
	if len(g.inside) != 2 {
		t.Errorf("%d inside, want 2", len(g.inside))
	}
}
