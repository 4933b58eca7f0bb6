package device

import "math"

// A Region is a part of a buffer: Bytes bytes at Offset. If Rows is greater than one, it has
// that many rows of Bytes bytes, at a distance of Stride bytes, such as a column or a tile of a
// matrix.
type Region struct {
	Buffer Buffer
	Offset int // bytes
	Bytes  int // of one row
	Rows   int // 0 means 1
	Stride int // bytes between the beginnings of rows, at least Bytes; ignored for one row
}

// Whole returns the region of a complete buffer.
func Whole(b Buffer) Region { return Region{Buffer: b, Bytes: b.Len()} }

// Total returns the number of bytes in all rows of a region, which must be inside its buffer.
func (r Region) Total() int { return r.Bytes * r.RowCount() }

// RowCount returns the number of rows that are not empty: Rows, or 1 if that is 0, and 0 if
// Bytes is 0.
func (r Region) RowCount() int {
	if r.Bytes == 0 {
		return 0
	}
	return max(r.Rows, 1)
}

// RowAt returns the offset of a row in the buffer.
func (r Region) RowAt(row int) int { return r.Offset + row*r.Stride }

// Overlaps reports whether two regions, which must be inside their buffers, have common bytes
// of one buffer.
func (r Region) Overlaps(other Region) bool {
	if r.Buffer != other.Buffer {
		return false
	}
	for i, j := 0, 0; i < r.RowCount() && j < other.RowCount(); {
		a, b := r.RowAt(i), other.RowAt(j)
		switch {
		case a+r.Bytes <= b:
			i++
		case b+other.Bytes <= a:
			j++
		default:
			return true
		}
	}
	return false
}

// inside reports whether all rows are within size bytes and do not overlap. It cannot overflow.
func (r Region) inside(size int) bool {
	if r.Offset < 0 || r.Bytes < 0 || r.Rows < 0 || r.Bytes > size || r.Offset > size-r.Bytes {
		return false
	}
	if r.Rows <= 1 {
		return true
	}
	if r.Stride < r.Bytes {
		return false
	}
	return r.Stride == 0 || r.Rows-1 <= (size-r.Bytes-r.Offset)/r.Stride
}

// Check returns the total number of bytes of regions, or an error unless all are valid regions
// of buffers of d: ErrNoBuffer, a *ForeignError or a *RangeError, or a *LengthError if the total
// overflows.
func Check(d Device, regions ...Region) (bytes int, err error) {
	for _, r := range regions {
		if r.Buffer == nil {
			return 0, deviceError(d, ErrNoBuffer)
		}
		if owner := r.Buffer.Device(); owner != d {
			return 0, &ForeignError{Device: d.Name(), Owner: owner.Name(), What: "buffer"}
		}
		if size := r.Buffer.Len(); !r.inside(size) {
			return 0, &RangeError{
				Device: d.Name(), What: "buffer", Offset: r.Offset, Bytes: r.Bytes,
				Rows: r.Rows, Stride: r.Stride, Size: size,
			}
		}
		// A buffer may occur more than once, so the total can overflow.
		if bytes > math.MaxInt-r.Total() {
			return 0, &LengthError{Device: d.Name(), What: "list of regions", Got: math.MaxInt, Want: -1}
		}
		bytes += r.Total()
	}
	return bytes, nil
}

// CheckStaging checks that s is a staging of d with a number of bytes at offset at. It returns
// ErrNoBuffer, a *ForeignError or a *RangeError.
func CheckStaging(d Device, s Staging, at, bytes int) error {
	if s == nil {
		return deviceError(d, ErrNoBuffer)
	}
	if owner := s.Device(); owner != d {
		return &ForeignError{Device: d.Name(), Owner: owner.Name(), What: "staging"}
	}
	if !(Region{Offset: at, Bytes: bytes}).inside(s.Len()) {
		return &RangeError{Device: d.Name(), What: "staging", Offset: at, Bytes: bytes, Size: s.Len()}
	}
	return nil
}

// CheckPair checks the regions of a copy or reduction on d. It returns an error of [Check], a
// *LengthError if row lengths or numbers of rows differ, or ErrOverlap.
func CheckPair(d Device, dst, src Region) error {
	if _, err := Check(d, dst, src); err != nil {
		return err
	}
	switch {
	case dst.Bytes != src.Bytes:
		return &LengthError{Device: d.Name(), What: "row of src", Unit: "bytes", Got: src.Bytes, Want: dst.Bytes}
	case dst.RowCount() != src.RowCount():
		return &LengthError{Device: d.Name(), What: "src", Unit: "rows", Got: src.RowCount(), Want: dst.RowCount()}
	case dst.Overlaps(src):
		return deviceError(d, ErrOverlap)
	}
	return nil
}

// CheckLength returns a *LengthError unless the length of a slice, what ("src" or "dst"), equals
// that of the region of d that it is copied to or from.
func CheckLength(d Device, what string, got, want int) error {
	if got != want {
		return &LengthError{Device: d.Name(), What: what, Unit: "bytes", Got: got, Want: want}
	}
	return nil
}
