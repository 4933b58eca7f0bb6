package nexar

import (
	"fmt"
	"math"
	"reflect"
	"unsafe"

	"github.com/nexar-go/nexar/internal/collective"
	"github.com/nexar-go/nexar/internal/kernel"
)

// The terms of package collective for calls and their vectors.
type (
	task     = collective.Task
	elements = collective.Elements
	element  = collective.Element
)

// elementsOf describes a vector of elements without pointers.
func elementsOf[T any](s []T) elements {
	of, err := elementOf[T]()
	e := elements{At: (*byte)(unsafe.Pointer(unsafe.SliceData(s))), N: len(s), Of: of}
	if err != nil {
		bad := err
		e.Bad = &bad
	}
	return e
}

// numbersOf is elementsOf for vectors that an Op reduces.
func numbersOf[T Number](s []T) elements {
	e := elementsOf(s)
	if e.Of.Type == collective.Opaque {
		t := reflect.TypeFor[T]()
		err := fmt.Errorf("%w: %v has %d bits on this platform: use int64 or uint64", ErrInvalidType, t, t.Bits())
		if t.Bits() == 16 {
			err = fmt.Errorf("%w: %v may be an integer or a float: convert the vector by nexar.View[nexar.BFloat16], nexar.View[nexar.Float16] or nexar.View[%v]",
				ErrInvalidType, t, t.Kind())
		}
		e.Bad = &err
	}
	return e
}

// elementOf describes the elements of type T.
func elementOf[T any]() (element, error) {
	if t, ok := numberOf[T](); ok {
		return element{Type: uint8(t), Size: uint32(unsafe.Sizeof(*new(T)))}, nil
	}
	t := reflect.TypeOf((*T)(nil)).Elem() // TypeFor would box a T.
	if number, ok := numberOfKind(t.Kind()); ok {
		return element{Type: uint8(number), Size: uint32(unsafe.Sizeof(*new(T)))}, nil
	}
	return opaqueElement(t)
}

// opaqueElement describes the elements of a type that is not reduced as a number.
func opaqueElement(t reflect.Type) (element, error) {
	switch {
	case t.Size() == 0:
		return element{}, fmt.Errorf("%w: %v has no bytes to send: use elements of type byte", ErrInvalidType, t)
	case !kernel.Plain(t):
		return element{}, fmt.Errorf("%w: %v contains pointers or uintptrs, which have no meaning in another process: encode the values, such as by encoding/gob, and use the []byte", ErrInvalidType, t)
	case t.Size() > math.MaxUint32:
		return element{}, fmt.Errorf("%w: %v has more than %d bytes", ErrInvalidType, t, uint32(math.MaxUint32))
	}
	return element{Type: collective.Opaque, Size: uint32(t.Size())}, nil
}
