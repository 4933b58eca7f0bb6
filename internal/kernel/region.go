package kernel

import (
	"fmt"
	"reflect"
	"unsafe"
)

// A Region is memory of a value that its bytes represent in another process.
type Region struct {
	v     reflect.Value // a slice, or the target of a pointer
	grows bool
}

// RegionOf returns the region of a slice of [Plain] elements, of a pointer to such a slice, or
// of a pointer to one such element. It reports false for anything else.
func RegionOf(state any) (r Region, ok bool) {
	r.v = reflect.ValueOf(state)
	if r.v.Kind() == reflect.Pointer && !r.v.IsNil() {
		r.v = r.v.Elem()
		r.grows = r.v.Kind() == reflect.Slice
		ok = !r.grows && Plain(r.v.Type())
	}
	if r.v.Kind() == reflect.Slice {
		ok = Plain(r.v.Type().Elem())
	}
	return r, ok
}

// Grows reports whether the region may have another length on another rank.
func (r Region) Grows() bool { return r.grows }

// Set replaces the bytes of the region, and its length if it grows.
func (r Region) Set(b []byte) error {
	if r.grows {
		size := int(r.v.Type().Elem().Size())
		if len(b)%size != 0 {
			return fmt.Errorf("%d bytes are not a multiple of the element size %d", len(b), size)
		}
		if n := len(b) / size; n != r.v.Len() {
			r.v.Set(reflect.MakeSlice(r.v.Type(), n, n))
		}
	}
	if own := r.Bytes(); copy(own, b) != len(own) || len(own) != len(b) {
		return fmt.Errorf("%d bytes, expected %d", len(b), len(own))
	}
	return nil
}

// Bytes returns the current memory.
func (r Region) Bytes() []byte {
	if r.v.Kind() == reflect.Slice {
		return unsafe.Slice((*byte)(r.v.UnsafePointer()), r.v.Len()*int(r.v.Type().Elem().Size()))
	}
	return unsafe.Slice((*byte)(r.v.Addr().UnsafePointer()), r.v.Type().Size())
}
