package kernel

import "reflect"

// Plain reports whether the bytes of a value of type t represent it in another process: whether
// t contains no pointers.
func Plain(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return t.Len() > 0 && Plain(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i).Type; f.Size() > 0 && !Plain(f) {
				return false
			}
		}
		return t.Size() > 0
	case reflect.Pointer, reflect.UnsafePointer, reflect.Uintptr, reflect.Chan, reflect.Func,
		reflect.Interface, reflect.Map, reflect.Slice, reflect.String:
		return false
	}
	return true
}
