package kernel

import (
	"runtime"
	"unsafe"
)

type integer interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

type float interface{ float32 | float64 }

// anyAlignment says that the machine loads and stores elements at any address without
// significant cost.
const anyAlignment = runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64" || runtime.GOARCH == "386"

// sizeOf returns the size of a T in bytes.
func sizeOf[T integer | float]() int { return int(unsafe.Sizeof(*new(T))) }

func address(p []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p))) }

// direct reports whether the slices can be viewed in place as elements of size bytes.
func direct(dst, a, b []byte, size int) bool {
	return anyAlignment || (address(dst)|address(a)|address(b))&uintptr(size-1) == 0
}

// view returns p as elements. It must be direct.
func view[T integer | float](p []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(p))), len(p)/sizeOf[T]())
}

// bits32 returns p as the bits of its elements. That avoids floating-point registers and
// preserves NaNs on every machine.
func bits32(p []float32) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(p))), len(p))
}

// A stage holds pieces of two operands at aligned addresses. It is on the stack.
type stage struct{ a, b [stageBytes / 8]uint64 }

// stageBytes is a multiple of every element size.
const stageBytes = 512

// load copies the beginning of a and b, of the same length, to the stage.
func (s *stage) load(a, b []byte) (x, y []byte) {
	n := min(len(a), stageBytes)
	x = unsafe.Slice((*byte)(unsafe.Pointer(&s.a)), n)
	y = unsafe.Slice((*byte)(unsafe.Pointer(&s.b)), n)
	copy(x, a)
	copy(y, b)
	return x, y
}
