package kernel

import (
	"runtime"
	"unsafe"
)

type integer interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

type float interface{ float32 | float64 }

// anyAlignment says that the machine loads and stores elements at any address,
// at no cost worth avoiding.
const anyAlignment = runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64" || runtime.GOARCH == "386"

// sizeOf is the size of a T in bytes.
func sizeOf[T integer | float]() int { return int(unsafe.Sizeof(*new(T))) }

func address(p []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p))) }

// direct reports whether the slices can be viewed as elements of size bytes
// where they lie.
func direct(dst, a, b []byte, size int) bool {
	return anyAlignment || (address(dst)|address(a)|address(b))&uintptr(size-1) == 0
}

// view is p as elements. It must be direct.
func view[T integer | float](p []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(p))), len(p)/sizeOf[T]())
}

// bits32 is p as the bits of its elements, which saves a way through the
// floating-point registers and keeps NaNs as they are on every machine.
func bits32(p []float32) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(p))), len(p))
}

// A stage holds a piece of two operands at addresses that suit every machine.
// It lives on the stack.
type stage struct{ a, b [stageBytes / 8]uint64 }

// stageBytes is a multiple of every element size.
const stageBytes = 512

// load copies the beginning of a and b, which are equally long, to the stage.
func (s *stage) load(a, b []byte) (x, y []byte) {
	n := min(len(a), stageBytes)
	x = unsafe.Slice((*byte)(unsafe.Pointer(&s.a)), n)
	y = unsafe.Slice((*byte)(unsafe.Pointer(&s.b)), n)
	copy(x, a)
	copy(y, b)
	return x, y
}
