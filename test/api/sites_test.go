package api

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/trace"
)

// next returns the line after that of its caller, as a snapshot names it.
func next() string {
	_, _, line, _ := runtime.Caller(1)
	return fmt.Sprintf("api/sites_test.go:%d", line+1)
}

// A waiter is a type with a method that waits, which the compiler puts into its caller.
type waiter struct{ h *nexar.Handle }

func (w waiter) wait() (site string) {
	site = next()
	_ = w.h.Wait()
	return site
}

// receive is a generic function that waits.
func receive[T any](ctx context.Context, c *nexar.Comm, site *string) {
	*site = next()
	_, _ = nexar.Recv(ctx, c, make([]T, 1), 1, 1)
}

// TestSites: a snapshot has the lines of the program that wait: in a method, in a generic function, below a function of the standard
// library, and in the Wait of a handle. A rank in no call has no line of a call.
func TestSites(t *testing.T) {
	_, nodes := statusWorld(t)
	c := nodes[0].World()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var received, probed, sent, barrier string
	var once sync.Once
	ready := make(chan struct{}, 2)
	running.Go(func() { ready <- struct{}{}; receive[float32](ctx, c, &received) })
	running.Go(func() {
		once.Do(func() {
			ready <- struct{}{}
			probed = next()
			_, _ = c.MatchedProbe(ctx, 1, 2)
		})
	})
	h := nexar.StartSend(ctx, c, make([]byte, 8<<20), 1, 3)
	running.Go(func() { sent = waiter{h}.wait() })
	running.Go(func() {
		barrier = next()
		_ = c.Barrier(ctx)
	})
	got := make(map[string]string)
	for end := time.Now().Add(time.Minute); len(got) < 4 && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		for _, o := range c.Trace().Operations {
			if o.Running() && o.Site != "" {
				got[o.Op] = o.Site
			}
		}
	}
	var idle trace.Snapshot
	for end := time.Now().Add(time.Minute); idle.Time.IsZero() && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		idle = nodes[1].Trace()
	}
	if strings.Contains(idle.Site, "sites_test.go") { // It is that of the main goroutine, which runs the tests.
		t.Errorf("a rank in no call is at %q", idle.Site)
	}
	cancel()
	running.Wait()
	want := map[string]string{"recv": received, "probe": probed, "send": sent, "barrier": barrier}
	for op, site := range want {
		if got[op] != site || site == "" {
			t.Errorf("%s waits at %q, want %q", op, got[op], site)
		}
	}
}

// TestSiteOfNextCall: a call that follows another one has its own line, and a call that nobody waits for has none, even if
// another call and a Handle wait.
func TestSiteOfNextCall(t *testing.T) {
	_, nodes := statusWorld(t)
	c := nodes[0].World()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	site := func(op string) (site string) {
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			for _, o := range c.Trace().Operations {
				if o.Op == op && o.Tag != 4 && o.Running() && o.Duration > 1100*time.Millisecond { // Receives may begin at the same time.
					return o.Site
				}
			}
		}
		t.Fatalf("%s does not run", op)
		return ""
	}
	nexar.StartRecv(ctx, c, make([]byte, 1), 1, 2)
	h := nexar.StartRecv(ctx, c, make([]byte, 1), 1, 4)
	running.Go(func() { _ = h.Wait() })
	var barrier, sent string
	running.Go(func() {
		barrier = next()
		_ = c.Barrier(ctx)
		sent = next()
		_ = nexar.Send(ctx, c, make([]byte, 8<<20), 1, 1)
	})
	inRecv, inBarrier := site("recv"), site("barrier")
	if err := nodes[1].World().Barrier(ctx); err != nil {
		t.Fatal(err)
	}
	inSend := site("send")
	cancel()
	running.Wait()
	if inRecv != "" || inBarrier != barrier || inSend != sent {
		t.Errorf("recv, barrier and send wait at %q, %q and %q, want no line, %q and %q", inRecv, inBarrier, inSend, barrier, sent)
	}
}
