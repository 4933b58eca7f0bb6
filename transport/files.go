package transport

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"
)

// A FileUser is a Transport that needs files of the system, as each socket is one.
type FileUser interface {
	// OutOfFiles says that the process could not open another one of late, and so
	// neither take conns nor make any; nil: it could.
	OutOfFiles() error
}

// filesTime is for how long a Files remembers.
const filesTime = time.Minute

// A Files takes note that a process may open no more files. The zero value is ready
// to use, by several goroutines.
type Files struct{ last atomic.Pointer[shortage] }

type shortage struct {
	at  time.Time
	err error
}

// Note takes note of why a socket could not be opened. Nil is no reason.
func (f *Files) Note(err error) {
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		f.last.Store(&shortage{time.Now(), err})
	}
}

// OutOfFiles is what a FileUser says.
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
