package mesh

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
)

// TestDialsOfHosts: the nodes of a host with few processors have fewer dials in progress, which count for longer.
func TestDialsOfHosts(t *testing.T) {
	for _, c := range []struct {
		near, far, processors, want int
		holds                       time.Duration
	}{
		{1, 0, 1, 4, time.Second}, {4, 0, 2, 4, time.Second}, {16, 0, 2, 2, time.Second}, {32, 0, 2, 1, time.Second},
		{128, 0, 2, 1, 4 * time.Second}, {4, 1000, 2, 4, time.Second}, {128, 0, 64, 4, time.Second}, {1024, 0, 2, 1, 10 * time.Second},
	} {
		if c.processors == 2 && c.near == 1024 {
			l := newDialLimit(4, membership.View{Nodes: make([]membership.Node, c.near)}, "", c.processors, nil)
			if got := l.patience(time.Second); got != 4*time.Second {
				t.Errorf("patience of %v for 1 s, want 4 s", got)
			}
		}
		v := membership.View{Nodes: make([]membership.Node, c.near+c.far)}
		for i := range c.near {
			v.Nodes[i].Host = "a"
		}
		l := newDialLimit(4, v, "a", c.processors, nil)
		if got := cap(l.tokens); got != c.want || l.holds != c.holds {
			t.Errorf("%d nodes on %d processors, %d elsewhere: %d dials that hold tokens for %v, want %d for %v",
				c.near, c.processors, c.far, got, l.holds, c.want, c.holds)
		}
	}
}

// TestDialLimit: an attempt begins when another one has ended, or after attemptMax.
func TestDialLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &dialLimit{make(chan struct{}, 1), attemptMax}
		began := time.Now()
		acquire := func() (release func(), waited time.Duration) {
			release, err := l.acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return release, time.Since(began)
		}
		first, waited := acquire()
		if waited != 0 {
			t.Errorf("the first attempt waits for %v", waited)
		}
		second, waited := acquire()
		if waited != attemptMax {
			t.Errorf("an attempt beside one without an end begins after %v, want %v", waited, attemptMax)
		}
		first() // It does not count any more, so this lets no other attempt begin.
		ctx, cancel := context.WithTimeout(t.Context(), attemptMax/2)
		defer cancel()
		if _, err := l.acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v of an attempt beyond the limit, want the end of its context", err)
		}
		second()
		third, waited := acquire()
		if want := attemptMax + attemptMax/2; waited != want {
			t.Errorf("an attempt after the end of another one begins after %v, want %v", waited, want)
		}
		third()
		third()
	})
}
