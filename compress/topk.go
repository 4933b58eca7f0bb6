package compress

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/nexar-go/nexar/device"
)

// TopK keeps the elements with the largest magnitudes, and encodes their values and indices
// (Aji and Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017; Lin
// et al., "Deep Gradient Compression", ICLR 2018). Training needs an [ErrorFeedback] for the
// omitted elements, and otherwise converges to another point. The zero value keeps 1%.
//
// Kept elements are unchanged. Of two equal magnitudes, that with the lower index is kept.
// Infinity counts as larger than all finite magnitudes, and NaN as larger than infinity: if
// there are at most k infinities and NaNs, all are kept, and otherwise at least one is. Zeros
// are not sent.
//
// Append takes time proportional to the length of the vector. It uses buffers of the TopK, and
// must not be called concurrently.
type TopK struct {
	// Ratio is the fraction of elements to keep, above 0 and at most 1. The number of
	// elements is rounded to the nearest integer, and is at least one. The default is 0.01
	// unless K is set.
	Ratio float64
	// K is the number of elements to keep. Shorter vectors are kept completely. At most one
	// of Ratio and K may be set.
	K int

	selection   selection[float32]
	selection64 selection[float64]
}

// The header is followed by the number of elements, their values, and for each the number of
// elements between it and the one before it (the gap) as a varint. For 1% of a vector a gap
// takes 1.3 bytes on average.
const (
	topKFixed    = 8
	gapBytesMin  = 1
	gapBytesUnit = 1 << 7 // a gap of two bytes is at least this long
)

// Append appends the encoding of src to dst. An invalid Ratio or K is an [ErrConfig]; there
// are no other errors.
func (t *TopK) Append(dst []byte, src []float32) ([]byte, error) {
	return appendTopK(t, &t.selection, dst, src)
}

func (t *TopK) append64(dst []byte, src []float64) ([]byte, error) {
	return appendTopK(t, &t.selection64, dst, src)
}

func appendTopK[T float](t *TopK, s *selection[T], dst []byte, src []T) ([]byte, error) {
	k, err := kindTopK.kept(t.K, t.Ratio, len(src))
	if err != nil {
		return dst, err
	}
	c := s.selectLargest(src, k)
	dst = slices.Grow(dst, topKBytes(c.size, len(src), sizeOf[T]()))
	dst = header{kind: kindTopK, typ: typeOf[T](), n: len(src)}.append(dst)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(c.size))
	return c.append(dst), nil
}

// append appends the chosen values, and then the gaps.
func (c *choice[T]) append(dst []byte) []byte {
	at, size := len(dst), sizeOf[T]()
	dst = dst[:at+size*c.size]
	next, ties := 0, c.ties
	for i, v := range c.values {
		m := magnitude(v)
		if m < c.least {
			continue
		}
		if m == c.least {
			if ties == 0 {
				continue
			}
			ties--
		}
		index := i
		if c.indices != nil {
			index = c.indices[i]
		}
		putFloat(dst[at:], v)
		at += size
		dst = binary.AppendUvarint(dst, uint64(index-next))
		next = index + 1
	}
	return dst
}

// AddTo adds an encoded vector, of the length of dst, to dst. An invalid encoding is a
// [*FormatError] and leaves dst unchanged.
func (*TopK) AddTo(dst []float32, encoded []byte) error { return decodeTopK(addMode, dst, encoded) }

func decodeTopK[T float](m mode, dst []T, encoded []byte) error {
	body, err := header{kind: kindTopK, typ: typeOf[T](), n: len(dst)}.cutPlain(encoded)
	if err != nil {
		return err
	}
	if len(body) < topKFixed {
		return kindTopK.malformed(len(encoded), "truncated before the number of kept elements")
	}
	size := sizeOf[T]()
	count, body := binary.LittleEndian.Uint64(body), body[topKFixed:]
	if count > uint64(len(body)/size) {
		return kindTopK.malformed(len(encoded), "truncated in the values of %d elements", count)
	}
	k := int(count)
	values, gaps := body[:size*k], body[size*k:]
	if offset, problem := checkGaps(gaps, k, len(dst)); problem != "" {
		return kindTopK.malformed(len(encoded)-len(gaps)+offset, "%s", problem)
	}
	begin(m, dst)
	for i := 0; len(values) > 0; i++ {
		gap, n := binary.Uvarint(gaps)
		i += int(gap)
		dst[i] = add(dst[i], getFloat[T](values))
		values, gaps = values[size:], gaps[n:]
	}
	return nil
}

// checkGaps checks the gaps of k elements of n. It returns the offset and a description of the
// first problem, or an empty description. Gaps are not negative, so indices ascend.
func checkGaps(gaps []byte, k, n int) (offset int, problem string) {
	left := uint64(n)
	for ; k > 0; k-- {
		gap, size := binary.Uvarint(gaps[offset:])
		switch {
		case size == 0:
			return len(gaps), "truncated in the indices"
		case size < 0 || size > 1 && gaps[offset+size-1] == 0:
			return offset, "an index is not encoded in its shortest form"
		case gap >= left:
			return offset, "an index is beyond the end of the vector"
		}
		left -= gap + 1
		offset += size
	}
	if offset < len(gaps) {
		return offset, "bytes after the end"
	}
	return 0, ""
}

// topKBytes returns the maximum number of bytes for k of n elements of a size. A gap takes one
// byte, and one more for each factor of gapBytesUnit.
func topKBytes(k, n, size int) int {
	return headerBytes + topKFixed + k*(size+gapBytesMin) + min(n/gapBytesUnit, k*(bits.Len(uint(n))/7))
}

// MaxBytes returns the maximum number of bytes that Append adds for n elements: 24, 5 for each
// kept element, and 1 for every 128 elements of the vector.
func (t *TopK) MaxBytes(n int) int { return t.MaxTypedBytes(device.Float32, n) }

// Allows implements [TypedCompressor]. It allows sums of float32 and float64.
func (*TopK) Allows(t device.Type, op device.Op) bool { return allowsFloat(t, op) }

// AppendTyped implements [TypedCompressor].
func (t *TopK) AppendTyped(dst []byte, typ device.Type, src []byte) ([]byte, error) {
	return kindTopK.appendTyped(dst, typ, src, t.Append, t.append64)
}

// DecodeTyped implements [TypedCompressor].
func (*TopK) DecodeTyped(dst []byte, t device.Type, encoded []byte) error {
	return kindTopK.decodeTyped(storeMode, dst, t, encoded, decodeTopK[float32], decodeTopK[float64])
}

// AddTyped implements [TypedCompressor].
func (*TopK) AddTyped(dst []byte, t device.Type, encoded []byte) error {
	return kindTopK.decodeTyped(addMode, dst, t, encoded, decodeTopK[float32], decodeTopK[float64])
}

// MaxTypedBytes implements [TypedCompressor]: 24 bytes, the size of an element and 1 for each
// kept element, and 1 for every 128 elements of the vector.
func (t *TopK) MaxTypedBytes(typ device.Type, n int) int {
	k, _ := kindTopK.kept(t.K, t.Ratio, n)
	return topKBytes(k, n, typ.Size())
}

// String returns the kind of the encodings: "top-k".
func (*TopK) String() string { return kindTopK.String() }
