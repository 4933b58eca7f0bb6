package kernel

import (
	"reflect"
	"unsafe"
)

// A Region is the memory of a value that is whole when its bytes are copied to
// another process.
type Region struct {
	v     reflect.Value // of a slice, or what a pointer leads to
	grows bool
}

// RegionOf is that of a slice of Plain elements, of such a slice that a pointer leads
// to, or of the one element that it leads to. It reports false for anything else.
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

// Len is the number of elements of a slice.
func (r Region) Len() int { return r.v.Len() }

// SetLen gives a region that grows another length. What was in it is lost.
func (r Region) SetLen(n int) {
	if n != r.v.Len() {
		r.v.Set(reflect.MakeSlice(r.v.Type(), n, n))
	}
}

// Bytes is the memory as it is now.
func (r Region) Bytes() []byte {
	if r.v.Kind() == reflect.Slice {
		return unsafe.Slice((*byte)(r.v.UnsafePointer()), r.v.Len()*int(r.v.Type().Elem().Size()))
	}
	return unsafe.Slice((*byte)(r.v.Addr().UnsafePointer()), r.v.Type().Size())
}
