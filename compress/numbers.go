package compress

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/internal/kernel"
)

// A float is an element type of the lossy compressors.
type float interface{ float32 | float64 }

const (
	signBit32  = 1 << 31
	infinity32 = 0xff << 23
	nan32      = infinity32 | 1<<22 // the NaN that sums are, as in package kernel
	infinity64 = 0x7ff << 52
	nan64      = infinity64 | 1<<51
)

// sizeOf returns the size of an element in bytes.
func sizeOf[T float]() int { return int(unsafe.Sizeof(T(0))) }

// typeOf returns the element type of T.
func typeOf[T float]() device.Type {
	if sizeOf[T]() == 4 {
		return device.Float32
	}
	return device.Float64
}

// toBits returns the IEEE 754 representation of f. The compiler drops the branch of the other
// size, and inlines toBits and magnitude only as they are.
func toBits[T float](f T) uint64 {
	if unsafe.Sizeof(f) == 4 {
		return uint64(math.Float32bits(float32(f)))
	}
	return math.Float64bits(float64(f))
}

// fromBits is the inverse of toBits.
func fromBits[T float](b uint64) T {
	if sizeOf[T]() == 4 {
		return T(math.Float32frombits(uint32(b)))
	}
	return T(math.Float64frombits(b))
}

// magnitude returns the absolute value of f as an integer. Integers order like the numbers,
// with NaN above infinity.
func magnitude[T float](f T) uint64 {
	return toBits(f) &^ (1 << (8*unsafe.Sizeof(f) - 1))
}

// infinity returns the magnitude of infinity.
func infinity[T float]() uint64 {
	if sizeOf[T]() == 4 {
		return infinity32
	}
	return infinity64
}

// nan returns the NaN that sums are.
func nan[T float]() T {
	if sizeOf[T]() == 4 {
		return T(math.Float32frombits(nan32))
	}
	return T(math.Float64frombits(nan64))
}

// add returns a + b. A processor chooses the bits of a NaN; add returns the same on all.
func add[T float](a, b T) T {
	s := a + b
	if s != s {
		return nan[T]()
	}
	return s
}

// addAll adds src to dst, of the same length. It tests eight sums for NaN at a time, by their
// total.
func addAll[T float](dst, src []T) {
	src = src[:len(dst)]
	for len(dst) >= 8 {
		d, s := (*[8]T)(dst), (*[8]T)(src)
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

// littleEndian reports whether the host is little-endian, as encodings are.
func littleEndian() bool { return binary.NativeEndian.Uint16([]byte{1, 0}) == 1 }

// memory returns the memory of p.
func memory[T uint16 | float](p []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(p))), len(p)*int(unsafe.Sizeof(T(0))))
}

// vector returns the elements in mem, which is aligned for them. It is the inverse of memory.
func vector[T float](mem []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem))), len(mem)/sizeOf[T]())
}

// putFloat stores an element at the beginning of dst.
func putFloat[T float](dst []byte, v T) {
	if unsafe.Sizeof(v) == 4 {
		binary.LittleEndian.PutUint32(dst, math.Float32bits(float32(v)))
	} else {
		binary.LittleEndian.PutUint64(dst, math.Float64bits(float64(v)))
	}
}

// getFloat returns the element at the beginning of src.
func getFloat[T float](src []byte) T { return fromBits[T](getBits[T](src)) }

// getBits returns the bits of the element at the beginning of src.
func getBits[T float](src []byte) uint64 {
	if sizeOf[T]() == 4 {
		return uint64(binary.LittleEndian.Uint32(src))
	}
	return binary.LittleEndian.Uint64(src)
}

// appendElements appends elements in host byte order to dst as little-endian.
func appendElements(dst []byte, t device.Type, src []byte) []byte {
	at := len(dst)
	dst = append(dst, src...)
	if !littleEndian() {
		swap(dst[at:], t)
	}
	return dst
}

// loadElements stores the elements of appendElements in dst.
func loadElements(dst []byte, t device.Type, src []byte) {
	copy(dst, src)
	if !littleEndian() {
		swap(dst, t)
	}
}

// addElements adds the elements of appendElements to dst.
func addElements(dst []byte, t device.Type, src []byte) {
	if sum := kernel.Reducer(t, kernel.Sum); littleEndian() {
		sum(dst, dst, src)
	} else {
		addSwapped(dst, t, src)
	}
}

// addSwapped adds elements in the reverse byte order of the host to dst.
func addSwapped(dst []byte, t device.Type, src []byte) {
	sum := kernel.Reducer(t, kernel.Sum)
	var block [64]uint64 // aligned for all types
	mem := unsafe.Slice((*byte)(unsafe.Pointer(&block)), int(unsafe.Sizeof(block)))
	for len(src) > 0 {
		n := copy(mem, src)
		swap(mem[:n], t)
		sum(dst[:n], dst[:n], mem[:n])
		dst, src = dst[n:], src[n:]
	}
}

// swap reverses the byte order of elements in place.
func swap(mem []byte, t device.Type) {
	size := t.Size()
	if t.Complex() {
		size /= 2
	}
	for ; len(mem) > 0; mem = mem[size:] {
		for i, j := 0, size-1; i < j; i, j = i+1, j-1 {
			mem[i], mem[j] = mem[j], mem[i]
		}
	}
}
