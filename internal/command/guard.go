package command

import (
	"os"
	"os/signal"
	"time"

	"github.com/nexar-go/nexar/internal/command/internal/launch"
)

// guarded calls f, which starts ranks, in a process that [launch.Guard] guards. That is this process if
// the guard started it; otherwise guarded starts the guarded process and waits for it.
func guarded(s streams, title string, grace time.Duration, f func(abandoned <-chan struct{}) error) error {
	stdout, outIsFile := s.out.(*os.File)
	stderr, errIsFile := s.err.(*os.File)
	line := launch.TakeLifeline()
	switch {
	case line != nil:
		defer line.Close()
		return f(line.Cut())
	case !outIsFile || !errIsFile:
		return f(nil)
	}
	signals := make(chan os.Signal, 8)
	launch.Notify(signals, launch.Forwarded()...)
	defer signal.Stop(signals)
	status, err := launch.Guard(launch.GuardConfig{
		Stdin: s.in, Stdout: stdout, Stderr: stderr, Signals: signals, Grace: grace, Title: title,
	})
	if err == nil && status != statusOK {
		return statusError(status)
	}
	return err
}
