package device

import (
	"errors"
	"fmt"
)

// Errors of devices, for errors.Is. The errors that wrap them name the device.
var (
	// ErrFreed: the buffer or staging is already freed.
	ErrFreed = errors.New("already freed")
	// ErrClosed: the stream or its device is already closed.
	ErrClosed = errors.New("already closed")
	// ErrNoMemory: there is not enough memory; see [MemoryError].
	ErrNoMemory = errors.New("out of memory")
	// ErrNoBuffer: a region has no buffer, or a staging is nil.
	ErrNoBuffer = errors.New("region without a buffer, or nil staging")
	// ErrOverlap: dst and src share memory.
	ErrOverlap = errors.New("dst and src overlap")
	// ErrInvalidOp: an Op is not defined for a Type, or one of them is unknown.
	ErrInvalidOp = errors.New("invalid op")
)

// deviceError adds the name of the device to an error.
func deviceError(d Device, err error) error { return fmt.Errorf("device %s: %w", d.Name(), err) }

// A ForeignError reports a buffer or staging of another device.
type ForeignError struct {
	Device string // the device of the call
	Owner  string // the device of the buffer or staging
	What   string // "buffer", "staging"
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("device %s: the %s is of device %s", e.Device, e.What, e.Owner)
}

// A RangeError reports a region that is not inside a buffer or a staging, or that does not
// consist of complete elements.
type RangeError struct {
	Device        string
	What          string // "buffer", "staging"
	Offset, Bytes int
	Rows, Stride  int // as in Region
	Size          int // of the buffer or staging, in bytes
	// Multiple is the element size, if Offset, Bytes or Stride is not a multiple of it, and
	// otherwise 0.
	Multiple int
}

func (e *RangeError) Error() string {
	region := fmt.Sprintf("%d bytes at offset %d", e.Bytes, e.Offset)
	if e.Rows > 1 || e.Rows < 0 {
		region = fmt.Sprintf("%d rows of %d bytes at offset %d with stride %d", e.Rows, e.Bytes, e.Offset, e.Stride)
	}
	if e.Multiple > 0 {
		return fmt.Sprintf("device %s: %s of a %s: not multiples of the element size %d", e.Device, region, e.What, e.Multiple)
	}
	if e.Rows > 1 && e.Stride < e.Bytes {
		return fmt.Sprintf("device %s: %s of a %s: rows overlap", e.Device, region, e.What)
	}
	return fmt.Sprintf("device %s: %s are not inside a %s of %d bytes", e.Device, region, e.What, e.Size)
}

// A LengthError reports an invalid length.
type LengthError struct {
	Device string
	What   string // "src", "dst"
	Unit   string // "bytes", "rows"
	Got    int
	Want   int // -1 if other lengths than Got are valid
}

func (e *LengthError) Error() string {
	if e.Want < 0 {
		return fmt.Sprintf("device %s: invalid length of %s: %d %s", e.Device, e.What, e.Got, e.Unit)
	}
	return fmt.Sprintf("device %s: %s has %d %s, want %d", e.Device, e.What, e.Got, e.Unit, e.Want)
}

// A MemoryError reports an allocation that failed. It is an [ErrNoMemory].
type MemoryError struct {
	Device    string
	What      string // "buffer", "staging"
	Requested int    // bytes
	Free      int64  // free bytes of the device, or -1 if unknown
	Total     int64  // bytes of the device, or -1 if unknown
}

func (e *MemoryError) Error() string {
	free := ""
	if e.Free >= 0 {
		free = fmt.Sprintf(", %d bytes are free", e.Free)
		if e.Total >= 0 {
			free = fmt.Sprintf(", %d of %d bytes are free", e.Free, e.Total)
		}
	}
	return fmt.Sprintf("device %s: %v: cannot allocate a %s of %d bytes%s", e.Device, ErrNoMemory, e.What, e.Requested, free)
}

// Is reports whether target is ErrNoMemory.
func (e *MemoryError) Is(target error) bool { return target == ErrNoMemory }

// A StreamError reports work that failed, and that ended its stream.
type StreamError struct {
	Device string
	Work   string // "StageSend of 4096 bytes"
	Err    error  // the cause
}

func (e *StreamError) Error() string {
	return fmt.Sprintf("device %s: %s: %v", e.Device, e.Work, e.Err)
}

func (e *StreamError) Unwrap() error { return e.Err }
