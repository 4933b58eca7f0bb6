//go:build unix

package node

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// OnTerm calls f when the process gets a SIGTERM, the first time; a second one ends
// it, unless it has a handler of its own. It goes on until stop.
func OnTerm(f func()) (stop func()) {
	got := make(chan os.Signal, 1)
	over := make(chan struct{})
	signal.Notify(got, syscall.SIGTERM)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		defer signal.Stop(got)
		select {
		case <-got:
			f()
		case <-over:
		}
	})
	return sync.OnceFunc(func() {
		close(over)
		waiting.Wait()
	})
}
