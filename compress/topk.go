package compress

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// TopK keeps the elements with the largest magnitudes, and says where they are
// (Aji and Heafield, "Sparse Communication for Distributed Gradient Descent",
// EMNLP 2017; Lin et al., "Deep Gradient Compression", ICLR 2018). What it
// leaves out has to be kept by an ErrorFeedback, or training ends up elsewhere.
// The zero value keeps 1%.
//
// The elements that are kept do not change. Of two equal magnitudes that with
// the lower index is kept. Infinity is larger than all finite magnitudes and NaN
// larger than that: as long as there are at most k of them, all arrive, and of
// a vector with any of them at least one does. Zeros are not sent, as they add
// nothing.
//
// Append takes time in proportion to the length of the vector. It uses buffers
// of the TopK, so it is called by one goroutine at a time.
type TopK struct {
	// Ratio is the share of elements to keep, above 0 and at most 1. The
	// number is rounded to the nearest, but is at least one. The default is
	// 0.01, unless K is given.
	Ratio float64
	// K is the number of elements to keep. A vector that is not longer is kept
	// whole. Only one of Ratio and K may be given.
	K int

	selection selection
}

// After the header come the number of elements, their values, and where they
// are: for each how many elements lie between it and the one before it, in as
// few groups of 7 bits as that takes. For 1% of a vector these are 1.3 bytes.
const (
	topKFixed    = 8
	topKElement  = 4
	gapBytesMin  = 1
	gapBytesUnit = 1 << 7 // how many elements more make a gap take another byte, at least
)

// Append appends the encoding of src to dst. It fails only if Ratio or K cannot
// be right, which is an ErrConfig.
func (t *TopK) Append(dst []byte, src []float32) ([]byte, error) {
	k, err := kindTopK.kept(t.K, t.Ratio, len(src))
	if err != nil {
		return dst, err
	}
	c := t.selection.selectLargest(src, k)
	dst = slices.Grow(dst, topKBytes(c.size, len(src)))
	dst = appendHeader(dst, kindTopK, 0, len(src))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(c.size))
	return c.append(dst), nil
}

// append appends the values that were chosen, and then the gaps between them.
func (c *choice) append(dst []byte) []byte {
	at := len(dst)
	dst = dst[:at+topKElement*c.size]
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
		place := i
		if c.places != nil {
			place = c.places[i]
		}
		binary.LittleEndian.PutUint32(dst[at:], math.Float32bits(v))
		at += topKElement
		dst = binary.AppendUvarint(dst, uint64(place-next))
		next = place + 1
	}
	return dst
}

// AddTo adds the vector that encoded stands for to dst, which is of the same
// length. What a TopK has not made is a *FormatError and leaves dst as it was.
func (*TopK) AddTo(dst []float32, encoded []byte) error {
	body, err := cutPlainHeader(encoded, kindTopK, len(dst))
	if err != nil {
		return err
	}
	if len(body) < topKFixed {
		return kindTopK.malformed(len(encoded), "it ends before the number of elements that were kept")
	}
	count, body := binary.LittleEndian.Uint64(body), body[topKFixed:]
	if count > uint64(len(body)/topKElement) {
		return kindTopK.malformed(len(encoded), "it ends before the values of all %d elements", count)
	}
	k := int(count)
	values, gaps := body[:topKElement*k], body[topKElement*k:]
	if offset, problem := checkGaps(gaps, k, len(dst)); problem != "" {
		return kindTopK.malformed(len(encoded)-len(gaps)+offset, "%s", problem)
	}
	for i := 0; len(values) > 0; i++ {
		gap, size := binary.Uvarint(gaps)
		i += int(gap)
		dst[i] = add(dst[i], math.Float32frombits(binary.LittleEndian.Uint32(values)))
		values, gaps = values[topKElement:], gaps[size:]
	}
	return nil
}

// checkGaps says where gaps are not those of k elements of n, and why. As gaps
// are not negative, no element can come twice or out of order.
func checkGaps(gaps []byte, k, n int) (offset int, problem string) {
	left := uint64(n)
	for ; k > 0; k-- {
		gap, size := binary.Uvarint(gaps[offset:])
		switch {
		case size == 0:
			return len(gaps), "it ends before the places of all elements"
		case size < 0 || size > 1 && gaps[offset+size-1] == 0:
			return offset, "a place takes more bytes than it must"
		case gap >= left:
			return offset, "a place beyond the end of the vector"
		}
		left -= gap + 1
		offset += size
	}
	if offset < len(gaps) {
		return offset, "bytes follow its end"
	}
	return 0, ""
}

// topKBytes is the most bytes that k of n elements take. A gap takes a byte, and
// another one for some multiple of gapBytesUnit elements in it.
func topKBytes(k, n int) int {
	return headerBytes + topKFixed + k*(topKElement+gapBytesMin) + min(n/gapBytesUnit, k*(bits.Len(uint(n))/7))
}

// MaxBytes is the most bytes that Append adds for n elements: 24, 5 for each
// that is kept, and 1 for every 128 of the vector at most.
func (t *TopK) MaxBytes(n int) int {
	k, _ := kindTopK.kept(t.K, t.Ratio, n)
	return topKBytes(k, n)
}

// String is the kind of the encodings: "top-k".
func (*TopK) String() string { return kindTopK.String() }
