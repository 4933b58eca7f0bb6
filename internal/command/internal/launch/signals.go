package launch

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Notify relays signals to c, as [signal.Notify] does, except those that this process ignores. A shell makes
// a process ignore SIGHUP by nohup, and SIGINT in the background of a script; its children inherit that unless it catches
// the signal. Go does not know whether SIGQUIT or SIGTERM was ignored when the process started.
func Notify(c chan<- os.Signal, signals ...os.Signal) {
	for _, sig := range signals {
		if !signal.Ignored(sig) {
			signal.Notify(c, sig)
		}
	}
}

// A SignalError is the cause of the end of a context of [UntilSignal].
type SignalError struct{ Signal os.Signal }

func (e *SignalError) Error() string { return "ended by a signal: " + e.Signal.String() }

// Code returns the exit status that a shell reports for a process ended by the signal.
func (e *SignalError) Code() int {
	n, _ := e.Signal.(syscall.Signal)
	return statusSignal + int(n)
}

// UntilSignal returns a context that the first of the signals ends, except one that this process ignores; see [Notify]. The
// second ends the process, if that is its default action.
func UntilSignal(ctx context.Context, signals ...os.Signal) (_ context.Context, stop context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := make(chan os.Signal, 1)
	Notify(c, signals...)
	go func() {
		defer signal.Stop(c)
		select {
		case sig := <-c:
			cancel(&SignalError{sig})
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}
