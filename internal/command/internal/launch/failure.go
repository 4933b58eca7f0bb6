package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// Exit statuses, as in a shell.
const (
	statusNotExecutable = 126
	statusNotFound      = 127
	statusSignal        = 128 // plus the number of the signal
)

// A Failure is the failure of a child.
type Failure struct {
	Child      int // the index of the child; -1 if writing the output failed
	Name       string
	Pid        int
	Status     int    // the exit status
	Signal     int    // the signal that killed the child; 0 if it exited
	SignalName string // "killed"
	Err        error  // the reason if Status and Signal are 0

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

// Code returns the exit status for the command: the status of the child, or 128 plus
// the number of the signal that killed it, or 1.
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

// A StartError is returned if a program could not be started.
type StartError struct {
	Program string
	Err     error
}

func (e *StartError) Error() string {
	switch err := e.Err; {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		info, missing := os.Stat(e.Program)
		isFile := missing == nil && info.Mode().IsRegular()
		switch {
		case !isFile:
			return fmt.Sprintf("program %q was not found", e.Program)
		case filepath.Base(e.Program) == e.Program:
			return fmt.Sprintf("program %q was not found in $PATH; for the file in this directory, say ./%s", e.Program, e.Program)
		}
		return fmt.Sprintf("program %q exists, but its interpreter or dynamic loader does not (%v): build a Go program with CGO_ENABLED=0", e.Program, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("program %q may not be executed: %v", e.Program, fs.ErrPermission)
	default:
		return fmt.Sprintf("program %q cannot be started: %v", e.Program, err)
	}
}

// Unwrap returns Err.
func (e *StartError) Unwrap() error { return e.Err }

// Code returns 127 if the program was not found and 126 otherwise, as in a shell.
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

// earliest returns the most likely cause of the other failures. A death by a signal
// goes before an exit: it is not a consequence of one, since only Run kills children, and
// Run has not killed any yet.
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
