// Package state takes the state of a program apart, so that it can be sent to other ranks, and
// puts it together there.
//
// Most callers call [Parts] on all ranks, Encode the parts on the sender, and Set them
// on the receivers once all bytes have arrived.
package state

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"

	"github.com/nexar-go/nexar/internal/kernel"
)

// A Marshaler is a value that encodes itself.
type Marshaler interface {
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

// A Part is a value of a state: a region of memory, or a Marshaler.
type Part struct {
	region    kernel.Region
	marshaler Marshaler // nil for a region
}

// ErrType says that a value cannot be part of a state.
var ErrType = errors.New("not a slice of elements without pointers, a pointer to such a slice or element, a binary marshaler and unmarshaler, or a slice of these")

// depthMax bounds the nesting of lists, one of which may contain itself.
const depthMax = 16

// Parts returns the parts of a state, in order: those of its elements if it is a list.
func Parts(state any) ([]Part, error) { return appendParts(nil, 0, state) }

func appendParts(parts []Part, depth int, v any) (_ []Part, err error) {
	if m, ok := v.(Marshaler); ok {
		return append(parts, Part{marshaler: m}), nil
	}
	if r, ok := kernel.RegionOf(v); ok {
		return append(parts, Part{region: r}), nil
	}
	list := reflect.ValueOf(v)
	if list.Kind() != reflect.Slice || depth == depthMax {
		return nil, fmt.Errorf("%T is %w", v, ErrType)
	}
	for i := range list.Len() {
		if parts, err = appendParts(parts, depth+1, list.Index(i).Interface()); err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
	}
	return parts, nil
}

// Varies reports whether the length of the encoding may differ between ranks.
func (p Part) Varies() bool { return p.marshaler != nil || p.region.Grows() }

// Len returns the length of the encoding in bytes, if it does not vary.
func (p Part) Len() int { return len(p.region.Bytes()) }

// Encode returns the encoding, which is the memory itself for a region.
func (p Part) Encode() ([]byte, error) {
	if p.marshaler != nil {
		return p.marshaler.MarshalBinary()
	}
	return p.region.Bytes(), nil
}

// Set replaces the value by the one with the given encoding.
func (p Part) Set(b []byte) error {
	if p.marshaler != nil {
		return p.marshaler.UnmarshalBinary(b)
	}
	return p.region.Set(b)
}
