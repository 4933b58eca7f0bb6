//go:build unix

package node

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// OnTerm calls f when the process gets its first SIGTERM, until stop is called. A second one
// ends the process, unless the program handles it.
func OnTerm(f func()) (stop func()) {
	got := make(chan os.Signal, 1)
	stopped := make(chan struct{})
	signal.Notify(got, syscall.SIGTERM)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		defer signal.Stop(got)
		select {
		case <-got:
			f()
		case <-stopped:
		}
	})
	return sync.OnceFunc(func() {
		close(stopped)
		waiting.Wait()
	})
}
