package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"time"
)

// Exit statuses as shells have them.
const (
	statusNotExecutable = 126
	statusNotFound      = 127
	statusSignal        = 128 // and the number of the signal
)

// A Failure says how a child has failed.
type Failure struct {
	Child      int // its index; -1 if it was no child, but the output
	Name       string
	Pid        int
	Status     int    // what it exited with
	Signal     int    // what killed it; 0 if it exited
	SignalName string // "killed"
	Err        error  // why it has failed though its status is 0

	when time.Time
}

func (f *Failure) Error() string {
	switch {
	case f.Child < 0:
		return "the output could not be written"
	case f.Err != nil:
		return fmt.Sprintf("%s (pid %d) %v", f.Name, f.Pid, f.Err)
	case f.Signal != 0:
		return fmt.Sprintf("%s (pid %d) was killed by signal %d (%s)", f.Name, f.Pid, f.Signal, f.SignalName)
	default:
		return fmt.Sprintf("%s (pid %d) exited with status %d", f.Name, f.Pid, f.Status)
	}
}

// Unwrap returns Err.
func (f *Failure) Unwrap() error { return f.Err }

// Code is the exit status that passes the failure on: that of the child, or
// 128 and the number of the signal that killed it, or 1.
func (f *Failure) Code() int {
	switch {
	case f.Signal != 0:
		return statusSignal + f.Signal
	case f.Status != 0:
		return f.Status
	default:
		return 1
	}
}

// A StartError says that a program could not be started.
type StartError struct {
	Program string
	Err     error
}

func (e *StartError) Error() string {
	switch err := e.Err; {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		text := fmt.Sprintf("program %q was not found", e.Program)
		if info, err := os.Stat(e.Program); err == nil && info.Mode().IsRegular() {
			text += fmt.Sprintf(" in $PATH; for the file in this directory, say ./%s", e.Program)
		}
		return text
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("program %q may not be executed: %v", e.Program, fs.ErrPermission)
	default:
		return fmt.Sprintf("program %q cannot be started: %v", e.Program, err)
	}
}

// Unwrap returns Err.
func (e *StartError) Unwrap() error { return e.Err }

// Code is 127 if there is no such program, else 126, as in a shell.
func (e *StartError) Code() int {
	if errors.Is(e.Err, exec.ErrNotFound) || errors.Is(e.Err, fs.ErrNotExist) {
		return statusNotFound
	}
	return statusNotExecutable
}

// LookPath finds a program as a shell does. The error is a *StartError.
func LookPath(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", &StartError{Program: program, Err: err}
	}
	return path, nil
}

// earliest is the failure that the others are the consequence of, as far as
// can be told: one killed by a signal cannot be the consequence of an exit a
// moment before, since nobody but Run kills, and Run has not yet.
func earliest(failures []*Failure) *Failure {
	return slices.MinFunc(failures, func(a, b *Failure) int {
		if a.Signal != 0 && b.Signal == 0 {
			return -1
		}
		if a.Signal == 0 && b.Signal != 0 {
			return 1
		}
		return a.when.Compare(b.when)
	})
}
