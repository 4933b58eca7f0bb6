package p2p

// Regions are the memory of one payload: First, followed by More.
type Regions struct {
	First []byte
	More  [][]byte
	// Elem, if not 0, is the size of an element in bytes. A received message must be a whole
	// number of elements.
	Elem int
}

// Bytes returns contiguous memory as Regions.
func Bytes(b []byte) *Regions { return &Regions{First: b} }

// Len returns the length of all regions together.
func (r *Regions) Len() int {
	n := len(r.First)
	for _, m := range r.More {
		n += len(m)
	}
	return n
}

// cut returns the regions of the first n bytes.
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

// fill copies b to the first bytes.
func (r *Regions) fill(b []byte) {
	b = b[copy(r.First, b):]
	for _, m := range r.More {
		b = b[copy(m, b):]
	}
}
