package compress

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/nexar-go/nexar/internal/kernel"
)

const (
	signBit32  = 1 << 31
	infinity32 = 0xff << 23
	nan32      = infinity32 | 1<<22 // the NaN that sums are, as those of package kernel
)

// magnitude is the absolute value of f as an integer. Integers have the order
// of the numbers, with NaN above infinity.
func magnitude(f float32) uint32 { return math.Float32bits(f) &^ signBit32 }

// add is a + b. Which NaN a processor makes of NaNs, or of infinities, depends
// on its kind; add makes the same everywhere.
func add(a, b float32) float32 {
	s := a + b
	if s != s {
		return math.Float32frombits(nan32)
	}
	return s
}

// addAll adds src to dst, which is as long. Eight sums are asked together
// whether any is NaN, by their total, which then is NaN, too.
func addAll(dst, src []float32) {
	src = src[:len(dst)]
	for len(dst) >= 8 {
		d, s := (*[8]float32)(dst), (*[8]float32)(src)
		r0, r1, r2, r3 := d[0]+s[0], d[1]+s[1], d[2]+s[2], d[3]+s[3]
		r4, r5, r6, r7 := d[4]+s[4], d[5]+s[5], d[6]+s[6], d[7]+s[7]
		if t := ((r0 + r1) + (r2 + r3)) + ((r4 + r5) + (r6 + r7)); t != t {
			for i, v := range s {
				d[i] = add(d[i], v)
			}
		} else {
			d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7] = r0, r1, r2, r3, r4, r5, r6, r7
		}
		dst, src = dst[8:], src[8:]
	}
	for i, v := range src {
		dst[i] = add(dst[i], v)
	}
}

// littleEndian reports whether this machine has numbers as encodings do, so
// that they can be copied.
func littleEndian() bool { return binary.NativeEndian.Uint16([]byte{1, 0}) == 1 }

// memory is the memory of p.
func memory[T uint16 | float32](p []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(p))), len(p)*int(unsafe.Sizeof(*new(T))))
}

func appendFloats(dst []byte, src []float32) []byte {
	if littleEndian() {
		return append(dst, memory(src)...)
	}
	return appendSwappedFloats(dst, src)
}

func appendSwappedFloats(dst []byte, src []float32) []byte {
	for _, v := range src {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(v))
	}
	return dst
}

// addFloats adds what appendFloats has made of as many elements to dst.
func addFloats(dst []float32, src []byte) {
	if littleEndian() {
		sum := kernel.Reducer(kernel.Float32, kernel.Sum)
		sum(memory(dst), memory(dst), src)
		return
	}
	addSwappedFloats(dst, src)
}

func addSwappedFloats(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = add(dst[i], math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:])))
	}
}

func appendHalves(dst []byte, src []uint16) []byte {
	if littleEndian() {
		return append(dst, memory(src)...)
	}
	return appendSwappedHalves(dst, src)
}

func appendSwappedHalves(dst []byte, src []uint16) []byte {
	for _, v := range src {
		dst = binary.LittleEndian.AppendUint16(dst, v)
	}
	return dst
}

// loadHalves sets dst to what appendHalves has made of as many elements.
func loadHalves(dst []uint16, src []byte) {
	if littleEndian() {
		copy(memory(dst), src)
		return
	}
	loadSwappedHalves(dst, src)
}

func loadSwappedHalves(dst []uint16, src []byte) {
	for i := range dst {
		dst[i] = binary.LittleEndian.Uint16(src[2*i:])
	}
}
