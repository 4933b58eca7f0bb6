package engine

// Regions are memory in one or more places, the first and more behind it, that
// is taken for one payload.
type Regions struct {
	First []byte
	More  [][]byte
	// Elem is the size of an element. A message that is received here has a
	// whole number of them, unless Elem is 0.
	Elem int
}

// Bytes is memory in one place.
func Bytes(b []byte) *Regions { return &Regions{First: b} }

// Len is the length of all of it.
func (r *Regions) Len() int {
	n := len(r.First)
	for _, m := range r.More {
		n += len(m)
	}
	return n
}

// cut is where the first n bytes are.
func (r *Regions) cut(n int) (first []byte, more [][]byte) {
	if n <= len(r.First) {
		return r.First[:n], nil
	}
	n -= len(r.First)
	for i, m := range r.More {
		if n <= len(m) {
			more := append([][]byte(nil), r.More[:i]...)
			return r.First, append(more, m[:n])
		}
		n -= len(m)
	}
	return r.First, r.More
}

// fill copies b to the first of it.
func (r *Regions) fill(b []byte) {
	b = b[copy(r.First, b):]
	for _, m := range r.More {
		b = b[copy(m, b):]
	}
}
