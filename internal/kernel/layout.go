package kernel

import "reflect"

// A Layout describes the memory of the elements of a Plain type.
type Layout struct {
	// Fields has the kind, offset and size in bytes of each number, and the size of the
	// element. An array of numbers is one entry, with its kind negated.
	Fields []int

	size    int
	padding [][2]int // offset and length in bytes
}

// LayoutOf returns the layout of a type.
func LayoutOf(t reflect.Type) *Layout {
	l := &Layout{size: int(t.Size())}
	end := l.add(t, 0, 0)
	l.pad(end, l.size)
	l.Fields = append(l.Fields, l.size)
	return l
}

// add adds the fields of a value of type t at an offset. Memory before end is used. It returns
// the new end.
func (l *Layout) add(t reflect.Type, at, end int) int {
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if f.Type.Size() == 0 {
				continue
			}
			if f.Name == "_" { // Assignments need not copy it.
				continue
			}
			end = l.add(f.Type, at+int(f.Offset), end)
		}
		return end
	case reflect.Array:
		if k := t.Elem().Kind(); k != reflect.Struct && k != reflect.Array {
			l.pad(end, at)
			l.Fields = append(l.Fields, -int(k), at, int(t.Size()))
			return at + int(t.Size())
		}
		for i := range t.Len() {
			end = l.add(t.Elem(), at+i*int(t.Elem().Size()), end)
		}
		return end
	}
	l.pad(end, at)
	l.Fields = append(l.Fields, int(t.Kind()), at, int(t.Size()))
	return at + int(t.Size())
}

// pad records padding between two offsets.
func (l *Layout) pad(from, to int) {
	if to > from {
		l.padding = append(l.padding, [2]int{from, to - from})
	}
}

// ClearPadding sets the padding of all elements in mem to zero.
func (l *Layout) ClearPadding(mem []byte) {
	if len(l.padding) == 0 {
		return
	}
	for ; len(mem) > 0; mem = mem[l.size:] {
		for _, p := range l.padding {
			clear(mem[p[0]:][:p[1]])
		}
	}
}
