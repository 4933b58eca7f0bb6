package compress

import (
	"errors"
	"fmt"

	"github.com/nexar-go/nexar/device"
)

// Errors of this package, for errors.Is.
var (
	// ErrFormat: the bytes are not a valid encoding of this kind for a vector of this type
	// and length; see [FormatError].
	ErrFormat = errors.New("malformed encoding")
	// ErrConfig: a field of a compressor has an invalid value.
	ErrConfig = errors.New("invalid configuration")
	// ErrLength: the length of a vector differs from that of the earlier vectors.
	ErrLength = errors.New("vector length has changed")
	// ErrType: the compressor does not allow the element type, or the type of a vector
	// differs from that of the earlier vectors.
	ErrType = errors.New("invalid element type")
)

// typeError returns the error of a compressor that does not allow vectors of a type.
func typeError(name string, t device.Type) error {
	return fmt.Errorf("compress: %s: %w: %v, want float32 or float64", name, ErrType, t)
}

// A FormatError describes an invalid encoding. It is an [ErrFormat].
type FormatError struct {
	Kind   string // of the decoding compressor: "top-k"
	Offset int    // of the first invalid or missing byte
	Reason string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("compress: malformed encoding for %s: byte %d: %s", e.Kind, e.Offset, e.Reason)
}

// Is reports whether target is ErrFormat.
func (e *FormatError) Is(target error) bool { return target == ErrFormat }
