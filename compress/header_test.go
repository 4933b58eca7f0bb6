package compress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/device"
)

// checkInvalid checks that AddTo returns a *FormatError for an encoding and leaves dst
// unchanged.
func checkInvalid(t *testing.T, c Compressor, n int, encoded []byte) *FormatError {
	t.Helper()
	dst := make([]float32, n)
	for i := range dst {
		dst[i] = float32(i) + 0.5
	}
	before := slices.Clone(dst)
	err := c.AddTo(dst, encoded)
	if !sameBits(dst, before) {
		t.Errorf("AddTo changed dst (error %v)", err)
	}
	var format *FormatError
	if !errors.Is(err, ErrFormat) || !errors.As(err, &format) {
		t.Errorf("AddTo of %x: error %v, want a *FormatError", encoded, err)
		return &FormatError{}
	}
	if format.Offset < 0 || format.Offset > len(encoded) {
		t.Errorf("AddTo of %d bytes: offset %d is outside the encoding: %v", len(encoded), format.Offset, err)
	}
	return format
}

func sample() []float32 { return []float32{1, -2, 3, 0, 500, -6, 7, 8, -9, 10, 0.5} }

func TestTruncatedAndExtended(t *testing.T) {
	forEachKind(t, func(t *testing.T, c Compressor) {
		for _, src := range [][]float32{sample(), {}, {1}} {
			encoded := encode(t, c, src)
			for n := range encoded {
				checkInvalid(t, c, len(src), encoded[:n])
			}
			checkInvalid(t, c, len(src), append(bytes.Clone(encoded), 0))
			checkInvalid(t, c, len(src), append(bytes.Clone(encoded), encoded...))
			if e, ok := c.(*ErrorFeedback); ok {
				e.Reset()
			}
		}
	})
}

func TestOtherLengths(t *testing.T) {
	forEachKind(t, func(t *testing.T, c Compressor) {
		encoded := encode(t, c, sample())
		for _, n := range []int{0, 1, len(sample()) - 1, len(sample()) + 1, 1000} {
			checkInvalid(t, c, n, encoded)
		}
	})
}

func TestOtherKinds(t *testing.T) {
	all := []Compressor{None{}, &TopK{}, &RandomK{}, Quantize8{}, Cast16{}}
	for i, from := range all {
		encoded := encode(t, from, sample())
		for j, by := range all {
			if i == j {
				continue
			}
			err := checkInvalid(t, by, len(sample()), encoded)
			if want := kind(i + 1).String(); err.Kind != kind(j+1).String() || !strings.Contains(err.Reason, want) {
				t.Errorf("error %v, want a FormatError of %v that names %v", err, kind(j+1), want)
			}
		}
	}
}

// TestHeaderBits: a change of any bit of the header is an error.
func TestHeaderBits(t *testing.T) {
	forEachKind(t, func(t *testing.T, c Compressor) {
		encoded := encode(t, c, sample())
		for bit := range 8 * headerBytes {
			if bit/8 >= paramOffset && bit/8 < countOffset {
				continue // the parameter; some kinds allow several values
			}
			other := bytes.Clone(encoded)
			other[bit/8] ^= 1 << (bit % 8)
			checkInvalid(t, c, len(sample()), other)
		}
	})
}

func TestHostileFields(t *testing.T) {
	const most = 1<<64 - 1
	put32 := func(at int, v uint32) func([]byte) {
		return func(b []byte) { binary.LittleEndian.PutUint32(b[at:], v) }
	}
	put64 := func(at int, v uint64) func([]byte) {
		return func(b []byte) { binary.LittleEndian.PutUint64(b[at:], v) }
	}
	topK, gaps := &TopK{K: 3}, headerBytes+topKFixed+3*4
	for name, test := range map[string]struct {
		c      Compressor
		change func(encoded []byte)
	}{
		"none: parameter":           {None{}, put32(paramOffset, 1)},
		"none: count":               {None{}, put64(countOffset, most)},
		"none: overflowing count":   {None{}, put64(countOffset, 1<<62+uint64(len(sample())))},
		"top-k: parameter":          {topK, put32(paramOffset, 1)},
		"top-k: all kept":           {topK, put64(headerBytes, most)},
		"top-k: too many kept":      {topK, put64(headerBytes, uint64(len(sample())))},
		"top-k: too few kept":       {topK, put64(headerBytes, 2)},
		"top-k: none kept":          {topK, put64(headerBytes, 0)},
		"top-k: index out of range": {topK, func(b []byte) { b[gaps] = 100 }},
		"top-k: last out of range":  {topK, func(b []byte) { b[gaps+2] = 2 }},
		"top-k: unterminated index": {topK, func(b []byte) { b[gaps+2] = 0x80 }},
		"top-k: padded index":       {topK, func(b []byte) { b[gaps], b[gaps+1] = 0x80, 0 }},
		"random-k: parameter":       {&RandomK{}, put32(paramOffset, 1)},
		"random-k: none kept":       {&RandomK{}, put64(headerBytes+randomKOffset, 0)},
		"random-k: all kept":        {&RandomK{}, put64(headerBytes+randomKOffset, uint64(len(sample())))},
		"random-k: too many kept":   {&RandomK{}, put64(headerBytes+randomKOffset, most)},
		"random-k: overflow":        {&RandomK{}, put64(headerBytes+randomKOffset, 1<<62+1)},
		"random-k: negative":        {&RandomK{}, put64(headerBytes+randomKOffset, 3<<62+1)},
		"quantize-8: block of 0":    {Quantize8{}, put32(paramOffset, 0)},
		"quantize-8: other blocks":  {Quantize8{}, put32(paramOffset, 3)},
		"quantize-8: infinite":      {Quantize8{}, put32(headerBytes, infinity32)},
		"quantize-8: NaN":           {Quantize8{}, put32(headerBytes, nan32)},
		"quantize-8: negative":      {Quantize8{}, put32(headerBytes, signBit32|1)},
		"quantize-8: second block":  {Quantize8{Block: 5}, put32(headerBytes+9, infinity32)},
		"cast-16: format":           {Cast16{}, put32(paramOffset, 2)},
		"cast-16: large format":     {Cast16{}, put32(paramOffset, 256)},
	} {
		t.Run(name, func(t *testing.T) {
			encoded := encode(t, test.c, sample())
			test.change(encoded)
			checkInvalid(t, test.c, len(sample()), encoded)
		})
	}
}

// TestHostileIndices: an index of ten bytes or more is an error and is not read beyond the end
// of the encoding.
func TestHostileIndices(t *testing.T) {
	for _, index := range []string{
		"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
		"\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
		"\x80\x00", "\x80",
	} {
		encoded := header{kind: kindTopK, typ: device.Float32, n: 2}.append(nil)
		encoded = binary.LittleEndian.AppendUint64(encoded, 1)
		encoded = append(encoded, 0, 0, 0x80, 0x3f)
		checkInvalid(t, &TopK{}, 2, append(encoded, index...))
	}
}

// TestRandomKWithoutElements: a RandomK keeps at least one element of a vector that is not
// empty.
func TestRandomKWithoutElements(t *testing.T) {
	empty := append(header{kind: kindRandomK, typ: device.Float32, n: 2}.append(nil), make([]byte, randomKFixed)...)
	checkInvalid(t, &RandomK{}, 2, empty)
}

func TestFormatError(t *testing.T) {
	err := None{}.AddTo(make([]float32, 3), encode(t, None{}, sample()))
	want := "compress: malformed encoding for none: byte 8: vector of 11 elements, want 3"
	if err == nil || err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
}
