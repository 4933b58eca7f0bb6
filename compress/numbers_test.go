package compress

import (
	"bytes"
	"math"
	"slices"
	"testing"
)

// Machines that have their numbers the other way round write and read the same
// encodings.
func TestSwappedNumbers(t *testing.T) {
	marks := landmarks()
	floats := appendFloats(nil, marks)
	if swapped := appendSwappedFloats(nil, marks); !bytes.Equal(floats, swapped) {
		t.Errorf("floats are %x, and %x elsewhere", floats, swapped)
	}
	for shift := range marks {
		here := append(slices.Clone(marks[shift:]), marks[:shift]...)
		there := slices.Clone(here)
		addFloats(here, floats)
		addSwappedFloats(there, floats)
		if !sameBits(here, there) {
			t.Errorf("sums are %x, and %x elsewhere", bitsOf(here), bitsOf(there))
		}
	}
	halves := []uint16{0, 1, 0x0102, 0xfffe, 0x8000}
	encoded := appendHalves(nil, halves)
	if swapped := appendSwappedHalves(nil, halves); !bytes.Equal(encoded, swapped) {
		t.Errorf("halves are %x, and %x elsewhere", encoded, swapped)
	}
	here, there := make([]uint16, len(halves)), make([]uint16, len(halves))
	loadHalves(here, encoded)
	loadSwappedHalves(there, encoded)
	if !slices.Equal(here, halves) || !slices.Equal(there, halves) {
		t.Errorf("%x come back as %x, and as %x elsewhere", halves, here, there)
	}
}

// Whatever NaN goes in and however one comes about, the sum is the same NaN.
func TestSumsThatAreNoNumbers(t *testing.T) {
	inf := float32(math.Inf(1))
	odd := math.Float32frombits(0xff800001)
	dst := []float32{inf, -inf, odd, 1, odd, 1}
	addAll(dst, []float32{-inf, inf, 1, odd, odd, 2})
	want := []uint32{nan32, nan32, nan32, nan32, nan32, math.Float32bits(3)}
	if got := bitsOf(dst); !slices.Equal(got, want) {
		t.Errorf("sums are %x, want %x", got, want)
	}
}
