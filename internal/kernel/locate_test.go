package kernel

import (
	"testing"
	"unsafe"
)

// TestLocateHalves: the values of 16-bit floats are compared, not their bits, which have the same
// order for positive numbers only.
func TestLocateHalves(t *testing.T) {
	for typ, convert := range map[Type]func(float32) uint16{Float16: F32ToF16, BFloat16: F32ToBF16} {
		for _, most := range []bool{false, true} {
			got := []Located[uint16]{{convert(-2), 1}, {convert(3), 1}, {convert(0.5), 2}}
			other := []Located[uint16]{{convert(-5), 0}, {convert(1), 0}, {convert(0.5), 1}}
			want := []Located[uint16]{{convert(-5), 0}, {convert(1), 0}, {convert(0.5), 1}}
			if most {
				want = []Located[uint16]{{convert(-2), 1}, {convert(3), 1}, {convert(0.5), 1}}
			}
			bytes := func(s []Located[uint16]) []byte {
				return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))
			}
			Locate[uint16](typ, most)(bytes(got), bytes(got), bytes(other))
			for i := range want {
				if got[i] != want[i] {
					t.Errorf("%v, most %v, element %d: got %v, want %v", typ, most, i, got[i], want[i])
				}
			}
		}
	}
}
