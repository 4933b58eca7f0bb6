package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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
	Err        error  // the reason if Status and Signal are 0, and of a failed write
	LastWords  string // its message on standard error, if it exited

	when  time.Time
	byRun bool // after a signal that Run has sent
}

func (f *Failure) Error() string {
	if f.Child < 0 {
		return fmt.Sprintf("the output could not be written: %v", f.Err)
	}
	text := fmt.Sprintf("%s (pid %d) %s", f.Name, f.Pid, f.end())
	if f.LastWords != "" {
		text += fmt.Sprintf(", after %q", f.LastWords)
	}
	return text
}

// end describes the end of the child, as in "exited with status 3".
func (f *Failure) end() string {
	switch {
	case f.Err != nil:
		return f.Err.Error()
	case f.Signal != 0:
		return fmt.Sprintf("was killed by signal %d (%s)", f.Signal, f.SignalName)
	default:
		return fmt.Sprintf("exited with status %d", f.Status)
	}
}

// describeEnds describes the ends of children after another failure, equal ends together: "ranks 0, 1 exited with status 1".
func describeEnds(failures []*Failure) string {
	names, order := make(map[string][]string), []string(nil)
	for _, f := range failures {
		end := f.end()
		if names[end] == nil {
			order = append(order, end)
		}
		names[end] = append(names[end], f.Name)
	}
	var parts []string
	for _, end := range order {
		if len(names[end]) > 1 {
			parts = append(parts, list(names[end])+" "+strings.Replace(end, "was", "were", 1))
		} else {
			parts = append(parts, names[end][0]+" "+end)
		}
	}
	return strings.Join(parts, "; ")
}

// list lists the names of children: "ranks 0, 2, 4 to 9, process 3".
func list(names []string) string {
	numbers, order := make(map[string][]int), []string(nil)
	for _, name := range names {
		kind, number, _ := strings.Cut(name, " ")
		n, err := strconv.Atoi(number)
		if err != nil {
			return strings.Join(names, ", ")
		}
		if numbers[kind] == nil {
			order = append(order, kind)
		}
		numbers[kind] = append(numbers[kind], n)
	}
	var parts []string
	for _, kind := range order {
		of := numbers[kind]
		slices.Sort(of)
		if len(of) > 1 {
			kind = map[string]string{"rank": "ranks", "process": "processes"}[kind]
		}
		for i := 0; i < len(of); {
			last := i
			for last+1 < len(of) && of[last+1] == of[last]+1 {
				last++
			}
			part := strconv.Itoa(of[i])
			if last > i+1 {
				part += " to " + strconv.Itoa(of[last])
			} else {
				last = i
			}
			if i == 0 {
				part = kind + " " + part
			}
			parts = append(parts, part)
			i = last + 1
		}
	}
	return strings.Join(parts, ", ")
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
