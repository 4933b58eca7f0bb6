package objects

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// ErrMismatch says that ranks have made different calls, or use different types or codecs.
var ErrMismatch = errors.New("calls do not match")

// An EncodeError says that the objects of a rank could not be sent: its codec has failed or panicked, or it has passed a wrong number of objects. All
// ranks of a collective get it, with the same text, and both ranks of a message.
type EncodeError struct {
	Op   string // "all_gather"
	Rank int    // whose objects they are
	Type string // of the objects
	Err  error  // on that rank it wraps the error of the codec; its text has at most 1 KiB
}

func (e *EncodeError) Error() string {
	return fmt.Sprintf("objects: %s: rank %d cannot encode its %s: %v", e.Op, e.Rank, e.Type, e.Err)
}

func (e *EncodeError) Unwrap() error { return e.Err }

// A DecodeError says that this rank cannot decode an object of a rank.
type DecodeError struct {
	Op   string // "all_gather"
	Rank int    // that has sent the object
	Type string // as which this rank decodes it
	Err  error  // of the codec, an ErrMismatch, or an ErrTooLarge of package nexar
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("objects: %s: the %s of rank %d cannot be decoded: %v", e.Op, e.Type, e.Rank, e.Err)
}

func (e *DecodeError) Unwrap() error { return e.Err }

func (k *call) decodeError(from int, err error) error {
	return &DecodeError{Op: k.op, Rank: from, Type: k.typ, Err: err}
}

// wrap adds the operation to an error.
func (k *call) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("objects: %s: %w", k.op, err)
}

// textMax bounds the text that a rank tells another of a call and its error, in bytes.
const textMax = 1 << 10

// errExited is the error of a codec that does not return.
var errExited = errors.New("its codec has panicked or has ended its goroutine")

// text describes a call, and its error if it has failed, as other ranks are told.
func (k *call) text(failure error) string {
	text := printable(k.String())
	if failure != nil {
		text += "\n" + printable(failure.Error())
	}
	return strings.ToValidUTF8(text[:min(len(text), textMax)], "")
}

// encodeError is the error of a rank that has told text, on all ranks. On that rank cause is its error.
func (k *call) encodeError(rank int, text string, cause error) error {
	_, why, _ := strings.Cut(text, "\n")
	return &EncodeError{Op: k.op, Rank: rank, Type: k.typ, Err: &told{printable(why), cause}}
}

// A told error has the same text on all ranks, and its cause on one.
type told struct {
	text  string
	cause error // or nil
}

func (e *told) Error() string { return e.text }
func (e *told) Unwrap() error { return e.cause }

// printable replaces characters that a terminal would not show.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}
