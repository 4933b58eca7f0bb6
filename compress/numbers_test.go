package compress

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"github.com/nexar-go/nexar/device"
)

// TestSwappedElements: swap and addSwapped, for big-endian hosts, match the byte order of the
// host in reverse.
func TestSwappedElements(t *testing.T) {
	for typ, want := range map[device.Type]string{
		device.Uint8: "12345678abcdefgh", device.Uint16: "21436587badcfehg", device.Float32: "43218765dcbahgfe",
		device.Float64: "87654321hgfedcba", device.Complex64: "43218765dcbahgfe", device.Complex128: "87654321hgfedcba",
	} {
		mem := []byte("12345678abcdefgh")
		if swap(mem, typ); string(mem) != want {
			t.Errorf("%v: %q, want %q", typ, mem, want)
		}
	}
	marks := slices.Repeat(landmarks(), 7) // more than a block
	for shift := range landmarks() {
		here := append(slices.Clone(marks[shift:]), marks[:shift]...)
		there, swapped := slices.Clone(here), bytes.Clone(memory(marks))
		addElements(memory(here), device.Float32, appendElements(nil, device.Float32, memory(marks)))
		swap(swapped, device.Float32)
		addSwapped(memory(there), device.Float32, swapped)
		if !sameBits(here, there) {
			t.Fatalf("sums are %x, and %x of swapped elements", bitsOf(here), bitsOf(there))
		}
	}
	words := []uint16{0, 1, 0x0102, 0xfffe, 0x8000}
	loaded := make([]uint16, len(words))
	loadElements(memory(loaded), device.Uint16, appendElements(nil, device.Uint16, memory(words)))
	if !slices.Equal(loaded, words) {
		t.Errorf("%x are loaded as %x", words, loaded)
	}
}

// TestNaNSums: every sum that is NaN is the same NaN.
func TestNaNSums(t *testing.T) {
	inf := float32(math.Inf(1))
	odd := math.Float32frombits(0xff800001)
	dst := []float32{inf, -inf, odd, 1, odd, 1}
	addAll(dst, []float32{-inf, inf, 1, odd, odd, 2})
	want := []uint32{nan32, nan32, nan32, nan32, nan32, math.Float32bits(3)}
	if got := bitsOf(dst); !slices.Equal(got, want) {
		t.Errorf("sums are %x, want %x", got, want)
	}
}
