//go:build unix

package recorder

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"
)

const (
	// dumpTimeout bounds a dump, which may hang.
	dumpTimeout = 2 * time.Second
	// quitStatus is the status that a shell reports for a process that SIGQUIT has ended.
	quitStatus = 128 + int(syscall.SIGQUIT)
	// stacksMax is the length of the longest text of goroutine stacks.
	stacksMax = 16 << 20
)

// OnQuit makes SIGQUIT call dump and then end the process with status 131. With stacks, the stacks of
// all goroutines are written to standard error before, so that the dump comes last. It waits at most
// 2 s for dump. A second SIGQUIT meanwhile ends the process in the way of the Go runtime, which
// prints all stacks. stop removes the handler.
//
// Several handlers may be installed, and each dumps. A process that ignores SIGQUIT continues to
// ignore it.
func OnQuit(stacks bool, dump func()) (stop func()) {
	if signal.Ignored(syscall.SIGQUIT) {
		return func() {}
	}
	got := make(chan os.Signal, 1)
	over := make(chan struct{})
	signal.Notify(got, syscall.SIGQUIT)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		defer signal.Stop(got)
		select {
		case <-over:
			return
		case <-got:
		}
		signal.Stop(got)
		if stacks {
			writeStacks(os.Stderr)
		} else {
			fmt.Fprintln(os.Stderr, "SIGQUIT: quit (NEXAR_STACKS=1 shows the stacks of goroutines too)")
		}
		within(dumpTimeout, dump)
		time.Sleep(dumpTimeout / 4) // Other handlers of the process may dump as well before one ends it.
		os.Exit(quitStatus)
	})
	return sync.OnceFunc(func() {
		close(over)
		waiting.Wait()
	})
}

// writeStacks writes the stacks of all goroutines.
func writeStacks(w io.Writer) {
	b := make([]byte, 64<<10)
	n := runtime.Stack(b, true)
	for n == len(b) && n < stacksMax {
		b = make([]byte, 2*len(b))
		n = runtime.Stack(b, true)
	}
	fmt.Fprintf(w, "SIGQUIT: quit\n\n%s\n", b[:n])
}

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
