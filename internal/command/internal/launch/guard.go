package launch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// GuardConfig is the configuration of [Guard].
type GuardConfig struct {
	Stdin, Stdout, Stderr *os.File

	// Signals are forwarded. The third request to end also ends the grace time.
	Signals <-chan os.Signal

	// Grace is the Config.Grace for processes that the second process has left behind.
	Grace time.Duration

	// Title begins the lines that Guard itself writes to Stderr.
	Title string
}

// Self returns the path of this program. Without /proc it is looked up as a shell does.
func Self() (string, error) {
	path, err := os.Executable()
	if err == nil {
		return path, nil
	}
	if path, found := exec.LookPath(os.Args[0]); found == nil {
		return path, nil
	}
	return "", fmt.Errorf("the path of this program is unknown (%w), and %q is not in $PATH: mount /proc, or call it by its path", err, os.Args[0])
}

// lifelineVariable holds the file descriptor of a [Lifeline].
const lifelineVariable = "_NEXAR_LIFELINE"

// IsGuarded reports whether [Guard] has started this process and TakeLifeline has
// not been called yet.
func IsGuarded() bool { return os.Getenv(lifelineVariable) != "" }

// A Lifeline reports the end of the guard to a process that was started by [Guard].
type Lifeline struct {
	file *os.File
	cut  chan struct{}
	done chan struct{}
}

// Cut returns a channel that is closed when the guard has ended. It is nil without a guard.
func (l *Lifeline) Cut() <-chan struct{} { return l.cut }

// Close stops watching the guard.
func (l *Lifeline) Close() {
	if l.file != nil {
		l.file.Close()
		<-l.done
	}
}

// watch closes Cut when the other end of the pipe is closed. The kernel closes it when
// the guard is killed.
func (l *Lifeline) watch() {
	defer close(l.done)
	var b [1]byte
	if _, err := l.file.Read(b[:]); !errors.Is(err, os.ErrClosed) {
		close(l.cut)
	}
}
