package callsite_test

import (
	"sync"
	"testing"

	"github.com/nexar-go/nexar/internal/callsite"
	"github.com/nexar-go/nexar/trace"
)

// A stuck Writer sends a value when it begins to block, until it is closed.
type stuck chan struct{}

func (s stuck) Write(b []byte) (int, error) {
	s <- struct{}{}
	<-s
	return len(b), nil
}

// TestNoWait: a function of the program that nexar calls and that blocks makes no call that waits.
func TestNoWait(t *testing.T) {
	w := make(stuck)
	var running sync.WaitGroup
	running.Go(func() { _, _ = trace.Snapshot{}.WriteTo(w) })
	defer running.Wait()
	defer close(w)
	<-w
	var r callsite.Reader
	if site := r.Call("write_to"); site != "" {
		t.Errorf("it waits at %q", site)
	}
	if site := r.Main(); site != "" { // It runs the tests.
		t.Errorf("the main goroutine is at %q", site)
	}
}
