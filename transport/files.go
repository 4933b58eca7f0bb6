package transport

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"
)

// filesTime is how long a Files remembers a failure.
const filesTime = time.Minute

// A Files remembers that the process could open no more files. The zero value is
// ready to use, by several goroutines.
type Files struct{ last atomic.Pointer[shortage] }

type shortage struct {
	at  time.Time
	err error
}

// Note remembers why a socket could not be opened. It ignores nil, and errors that
// have another cause.
func (f *Files) Note(err error) {
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		f.last.Store(&shortage{time.Now(), err})
	}
}

// OutOfFiles implements [FileUser].
func (f *Files) OutOfFiles() error {
	s := f.last.Load()
	if s == nil || time.Since(s.at) > filesTime {
		return nil
	}
	if errors.Is(s.err, syscall.ENFILE) {
		return errors.New("this system has too many open files")
	}
	text := "this process has too many open files"
	if most, ok := filesMax(); ok {
		text += fmt.Sprintf(": it may have %d (ulimit -n)", most)
	}
	return errors.New(text)
}
