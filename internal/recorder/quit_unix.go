//go:build unix

package recorder

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// OnQuit calls dump when the process gets a SIGQUIT, before the runtime of Go
// prints all goroutines and ends it. A dump that takes longer than dumpTimeout is
// not waited for. It goes on until stop.
//
// Several may be in force; each dumps. A handler of the program gets the signal
// as well, and again when all have dumped.
func OnQuit(dump func()) (stop func()) {
	if signal.Ignored(syscall.SIGQUIT) {
		return func() {} // as the program wants it
	}
	got := make(chan os.Signal, 1)
	over := make(chan struct{})
	signal.Notify(got, syscall.SIGQUIT)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-over:
			signal.Stop(got)
			return
		case <-got:
		}
		within(dumpTimeout, dump)
		signal.Stop(got)
		// Now it goes to whoever else waits for it, or else to the runtime.
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGQUIT)
	})
	return sync.OnceFunc(func() {
		close(over)
		waiting.Wait()
	})
}

// dumpTimeout is how long a dump may take: what it looks at may hang.
const dumpTimeout = 2 * time.Second

// within calls f, and waits for it for a while.
func within(d time.Duration, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(d):
	}
}
