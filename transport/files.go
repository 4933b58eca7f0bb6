package transport

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"
)

// fileShortageTime is how long a FileShortage remembers a failure.
const fileShortageTime = time.Minute

// A FileShortage remembers that the process could not open a file or socket because
// of a limit. Transports use it to implement [FileUser]. The zero value is ready for
// use, and its methods may be called concurrently.
type FileShortage struct{ last atomic.Pointer[fileError] }

type fileError struct {
	at  time.Time
	err error
}

// Note remembers err if it wraps EMFILE or ENFILE, and ignores it otherwise.
func (f *FileShortage) Note(err error) {
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		f.last.Store(&fileError{time.Now(), err})
	}
}

// OutOfFiles implements [FileUser].
func (f *FileShortage) OutOfFiles() error {
	last := f.last.Load()
	if last == nil || time.Since(last.at) > fileShortageTime {
		return nil
	}
	if errors.Is(last.err, syscall.ENFILE) {
		return errors.New("this system has too many open files")
	}
	text := "this process has too many open files"
	if limit := MaxFiles(); limit > 0 {
		text += fmt.Sprintf(": its limit is %d (ulimit -n)", limit)
	}
	return errors.New(text)
}
