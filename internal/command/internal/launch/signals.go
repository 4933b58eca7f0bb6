package launch

import (
	"context"
	"os"
	"os/signal"
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

// Interruptible returns a context that Ctrl-C cancels, unless this process ignores SIGINT. See [Notify].
func Interruptible(ctx context.Context) (_ context.Context, stop context.CancelFunc) {
	if signal.Ignored(os.Interrupt) {
		return context.WithCancel(ctx)
	}
	return signal.NotifyContext(ctx, os.Interrupt)
}
