package collective

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/nexar-go/nexar/internal/callback"
	"github.com/nexar-go/nexar/internal/kernel"
)

// A Notice describes the call and the encoding of a rank in an AllReduceCompressed. The ranks
// exchange notices before the encodings.
type Notice struct {
	Elements    int // length of the vector
	Bytes, Room int // length of the encoding, and its limit by MaxBytes
	Type, Op    uint8
	Outcome     Outcome
	Kind        [24]byte // name of the compressor, padded with zeros; all zeros if unknown
}

// An Outcome is the result of the compression on a rank.
type Outcome uint8

const (
	Encoded Outcome = iota
	NotEncoded
	TooLarge // the encoding exceeds a limit of the rank
	Panicked
)

// OutcomeOf returns the outcome of a compression with error err, which may be a [callback.Panic].
func OutcomeOf(err error) Outcome {
	_, isPanic := errors.AsType[*callback.Panic](err)
	switch {
	case err == nil:
		return Encoded
	case isPanic:
		return Panicked
	case errors.Is(err, ErrTooLarge):
		return TooLarge
	}
	return NotEncoded
}

// Refused returns why the encoding of a rank cannot be used, or nil. first is the notice of rank 0,
// with which the call must agree.
func (n *Notice) Refused(first *Notice) error {
	switch {
	case n.Op != first.Op:
		return fmt.Errorf("%w: its op is %v, and that of rank 0 is %v", ErrOp, kernel.Op(n.Op), kernel.Op(first.Op))
	case n.Type != first.Type:
		return fmt.Errorf("%w: its vector is of %s, and that of rank 0 of %s", ErrType, TypeName(n.Type), TypeName(first.Type))
	case n.Elements != first.Elements:
		return fmt.Errorf("%w: its vector has %d elements, and that of rank 0 has %d", ErrLength, n.Elements, first.Elements)
	case n.Outcome == NotEncoded:
		return errors.New("its vector could not be compressed there")
	case n.Outcome == TooLarge:
		return fmt.Errorf("%w: its encoding would exceed the limit of that rank", ErrTooLarge)
	case n.Outcome == Panicked:
		return errors.New("its compressor has panicked")
	case n.Kind != first.Kind && n.Kind[0] != 0 && first.Kind[0] != 0:
		kind := func(k [24]byte) []byte { return bytes.TrimRight(k[:], "\x00") }
		return fmt.Errorf("%w: its compressor is %q, and that of rank 0 is %q", ErrOp, kind(n.Kind), kind(first.Kind))
	case n.Bytes < 0 || n.Bytes > n.Room:
		return fmt.Errorf("%w: its encoding has %d bytes, and MaxBytes allows %d", ErrTooLarge, n.Bytes, n.Room)
	}
	return nil
}
