package compress

import (
	"errors"
	"fmt"
)

// Conditions that errors of this package report. Test for them with errors.Is.
var (
	// ErrFormat says that bytes are not an encoding, or not one by this kind of
	// Compressor, or of a vector of another length; see FormatError.
	ErrFormat = errors.New("malformed encoding")
	// ErrConfig says that a field of a Compressor has a value that it must not
	// have.
	ErrConfig = errors.New("invalid configuration")
	// ErrLength says that a vector is of another length than those before it.
	ErrLength = errors.New("vector of another length")
)

// A FormatError says what is wrong with an encoding, and where. It is an
// ErrFormat.
type FormatError struct {
	Kind   string // of the Compressor that was to add it: "top-k"
	Offset int    // of the first byte that is wrong or missing
	Reason string
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("compress: malformed encoding for %s: byte %d: %s", e.Kind, e.Offset, e.Reason)
}

// Is reports that e is an ErrFormat.
func (e *FormatError) Is(target error) bool { return target == ErrFormat }
