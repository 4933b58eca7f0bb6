package kernel

import (
	"testing"
	"unsafe"
)

// TestLocateHalves: the values of 16-bit floats are compared, not their bits, which have the same
// order for positive numbers only. So are those of 8 bits.
func TestLocateHalves(t *testing.T) {
	for typ, convert := range map[Type]func(float32) uint16{Float16: F32ToF16, BFloat16: F32ToBF16} {
		testLocateNarrow(t, typ, convert)
	}
	for _, typ := range []Type{Float8E4M3, Float8E5M2} {
		testLocateNarrow(t, typ, func(f float32) uint8 { return F32ToF8(typ, f) })
	}
}

func testLocateNarrow[T uint8 | uint16](t *testing.T, typ Type, convert func(float32) T) {
	t.Helper()
	for _, most := range []bool{false, true} {
		got := []Located[T]{{convert(-2), 1}, {convert(3), 1}, {convert(0.5), 2}}
		other := []Located[T]{{convert(-5), 0}, {convert(1), 0}, {convert(0.5), 1}}
		want := []Located[T]{{convert(-5), 0}, {convert(1), 0}, {convert(0.5), 1}}
		if most {
			want = []Located[T]{{convert(-2), 1}, {convert(3), 1}, {convert(0.5), 1}}
		}
		bytes := func(s []Located[T]) []byte {
			return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))
		}
		Locate[T](typ, most)(bytes(got), bytes(got), bytes(other))
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%v, most %v, element %d: got %v, want %v", typ, most, i, got[i], want[i])
			}
		}
	}
}
