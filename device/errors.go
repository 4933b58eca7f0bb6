package device

import (
	"errors"
	"fmt"
)

// Conditions that errors of devices report. Test for them with errors.Is; the
// errors that have them name the device.
var (
	// ErrFreed says that a buffer or staging was freed before.
	ErrFreed = errors.New("was freed before")
	// ErrClosed says that a stream, or its device, was closed before.
	ErrClosed = errors.New("was closed before")
	// ErrNoMemory says that memory is not to be had; see MemoryError.
	ErrNoMemory = errors.New("out of memory")
	// ErrNoBuffer says that a region has no buffer, or that a staging is nil.
	ErrNoBuffer = errors.New("a region without a buffer, or no staging")
	// ErrOverlap says that dst and src share memory.
	ErrOverlap = errors.New("dst and src overlap")
	// ErrInvalidOp says that an Op is not defined for a Type, or one of them
	// is unknown.
	ErrInvalidOp = errors.New("invalid op")
)

// deviceError says on which device a condition was met.
func deviceError(d Device, err error) error { return fmt.Errorf("device %s: %w", d.Name(), err) }

// A ForeignError says that something of one device was given to another.
type ForeignError struct {
	Device string // which got it
	Owner  string // which it is of
	What   string // "buffer", "staging"
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("device %s: the %s is of device %s", e.Device, e.What, e.Owner)
}

// A RangeError says that bytes are asked for that are not inside a buffer or a
// staging, or that do not divide into elements.
type RangeError struct {
	Device        string
	What          string // "buffer", "staging"
	Offset, Bytes int
	Rows, Stride  int // as in Region
	Size          int // bytes of the whole
	// Multiple is the size of an element, of which all others here but Rows and
	// Size must be multiples. It is 0 if that is not what is wrong.
	Multiple int
}

func (e *RangeError) Error() string {
	what := fmt.Sprintf("%d bytes at offset %d", e.Bytes, e.Offset)
	if e.Rows > 1 || e.Rows < 0 {
		what = fmt.Sprintf("%d rows of %d bytes at offset %d and every %d bytes", e.Rows, e.Bytes, e.Offset, e.Stride)
	}
	if e.Multiple > 0 {
		return fmt.Sprintf("device %s: %s of a %s do not divide into elements of %d bytes", e.Device, what, e.What, e.Multiple)
	}
	if e.Rows > 1 && e.Stride < e.Bytes {
		return fmt.Sprintf("device %s: %s of a %s overlap", e.Device, what, e.What)
	}
	return fmt.Sprintf("device %s: %s are not inside a %s of %d bytes", e.Device, what, e.What, e.Size)
}

// A LengthError says that something has another length than it must have.
type LengthError struct {
	Device string
	What   string // "src", "dst"
	Unit   string // "bytes", "rows"
	Got    int
	Want   int // -1 if there is no length that it must have, but Got is no good
}

func (e *LengthError) Error() string {
	if e.Want < 0 {
		return fmt.Sprintf("device %s: invalid length of %s: %d %s", e.Device, e.What, e.Got, e.Unit)
	}
	return fmt.Sprintf("device %s: %s has %d %s, not %d", e.Device, e.What, e.Got, e.Unit, e.Want)
}

// A MemoryError says how much memory was asked for and is not to be had. It is
// an ErrNoMemory.
type MemoryError struct {
	Device string
	What   string // "buffer", "staging"
	Asked  int    // bytes
	Free   int64  // bytes that the device has left; -1 if it cannot tell
	Total  int64  // bytes that it has altogether; -1 if it cannot tell
}

func (e *MemoryError) Error() string {
	left := ""
	if e.Free >= 0 {
		left = fmt.Sprintf(", %d are free", e.Free)
		if e.Total >= 0 {
			left = fmt.Sprintf(", %d of %d are free", e.Free, e.Total)
		}
	}
	return fmt.Sprintf("device %s: %v: a %s of %d bytes was asked for%s", e.Device, ErrNoMemory, e.What, e.Asked, left)
}

// Is reports that e is an ErrNoMemory.
func (e *MemoryError) Is(target error) bool { return target == ErrNoMemory }

// A StreamError says which work of a stream has failed, and with it the stream.
type StreamError struct {
	Device string
	Work   string // what was queued: "StageSend of 4096 bytes"
	Err    error  // why it failed
}

func (e *StreamError) Error() string {
	return fmt.Sprintf("device %s: %s: %v", e.Device, e.Work, e.Err)
}

func (e *StreamError) Unwrap() error { return e.Err }
