package device

import "math"

// A Region is a part of a buffer: Bytes bytes from Offset on. If Rows is more
// than one, it is that many rows of Bytes bytes each, and each begins Stride
// bytes after the one before: a column of a matrix, or a tile of it.
type Region struct {
	Buffer Buffer
	Offset int // bytes
	Bytes  int // of one row
	Rows   int // 0 means 1
	Stride int // bytes, at least Bytes; without meaning if there is one row
}

// Whole is all of a buffer.
func Whole(b Buffer) Region { return Region{Buffer: b, Bytes: b.Len()} }

// Total is how many bytes a region has in all rows. It must be inside its
// buffer.
func (r Region) Total() int { return r.Bytes * r.RowCount() }

// RowCount is how many rows with bytes in them a region has: Rows, or 1 if that
// is 0, and none if Bytes is 0.
func (r Region) RowCount() int {
	if r.Bytes == 0 {
		return 0
	}
	return max(r.Rows, 1)
}

// RowAt is the offset in the buffer at which a row begins.
func (r Region) RowAt(row int) int { return r.Offset + row*r.Stride }

// Overlaps reports whether two regions, which must be inside their buffers,
// have bytes of one buffer in common.
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

// inside reports whether all rows lie in size bytes, and none in another. No
// sum that it computes can overflow.
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

// Check returns how many bytes regions have together if all are parts of
// buffers of d, and otherwise what is wrong: ErrNoBuffer, a *ForeignError or a
// *RangeError.
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
		// The same bytes may be listed many times.
		if bytes > math.MaxInt-r.Total() {
			return 0, &LengthError{Device: d.Name(), What: "list of regions", Got: math.MaxInt, Want: -1}
		}
		bytes += r.Total()
	}
	return bytes, nil
}

// CheckStaging returns what is wrong with bytes bytes of s from offset at on
// as the place where d is to put data or to take them from: ErrNoBuffer, a
// *ForeignError or a *RangeError.
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

// CheckPair returns what is wrong with dst and src as regions of d of which one
// is copied to the other or combined with it: what Check finds, a *LengthError
// if they differ in the length or the number of rows, or ErrOverlap.
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

// CheckLength returns a *LengthError if a slice that is copied to or from a
// region of d, "src" or "dst", has not the length of the region.
func CheckLength(d Device, what string, got, want int) error {
	if got != want {
		return &LengthError{Device: d.Name(), What: what, Unit: "bytes", Got: got, Want: want}
	}
	return nil
}
