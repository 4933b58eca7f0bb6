//go:build unix

package recorder

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// OnQuit calls dump when the process receives SIGQUIT, before the Go runtime prints all
// goroutines and ends the process. It waits at most dumpTimeout for dump. stop removes
// the handler.
//
// Several handlers may be installed, and each dumps. A handler of the program gets the
// signal as well, and again after all dumps.
func OnQuit(dump func()) (stop func()) {
	if signal.Ignored(syscall.SIGQUIT) {
		return func() {} // the program ignores the signal
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
		// Now the signal goes to other handlers, or to the runtime if none is left.
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGQUIT)
	})
	return sync.OnceFunc(func() {
		close(over)
		waiting.Wait()
	})
}

// dumpTimeout bounds a dump, which may hang.
const dumpTimeout = 2 * time.Second

// within calls f, and waits for it up to d.
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
