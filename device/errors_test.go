package device

import (
	"errors"
	"testing"
)

func TestErrors(t *testing.T) {
	broken := errors.New("broken")
	for _, test := range []struct {
		err  error
		text string
		is   error
	}{
		{&MemoryError{"d", "buffer", 100, 10, 50}, "device d: out of memory: cannot allocate a buffer of 100 bytes, 10 of 50 bytes are free", ErrNoMemory},
		{&MemoryError{"d", "staging", 100, 10, -1}, "device d: out of memory: cannot allocate a staging of 100 bytes, 10 bytes are free", ErrNoMemory},
		{&MemoryError{"d", "buffer", 100, -1, -1}, "device d: out of memory: cannot allocate a buffer of 100 bytes", ErrNoMemory},
		{&StreamError{"d", "Copy of 5 bytes", broken}, "device d: Copy of 5 bytes: broken", broken},
		{&LengthError{"d", "buffer", "bytes", -5, -1}, "device d: invalid length of buffer: -5 bytes", nil},
		{&RangeError{Device: "d", What: "buffer", Offset: 2, Bytes: 6, Size: 100, Multiple: 4}, "device d: 6 bytes at offset 2 of a buffer: not multiples of the element size 4", nil},
	} {
		if got := test.err.Error(); got != test.text {
			t.Errorf("got %q, want %q", got, test.text)
		}
		if test.is != nil && !errors.Is(test.err, test.is) {
			t.Errorf("%v is not %v", test.err, test.is)
		}
		for _, other := range []error{ErrFreed, ErrClosed, ErrNoBuffer, ErrOverlap, ErrInvalidOp} {
			if errors.Is(test.err, other) {
				t.Errorf("%v is %v", test.err, other)
			}
		}
	}
}
