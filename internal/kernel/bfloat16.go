package kernel

import "math"

// BF16ToF32 returns the value of a bfloat16. The conversion is exact, bit for bit: a signaling
// NaN stays signaling.
func BF16ToF32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// F32ToBF16 rounds f to the nearest bfloat16, ties to even. A NaN keeps its sign and the upper
// bits of its payload and becomes quiet.
func F32ToBF16(f float32) uint16 { return roundBF16(math.Float32bits(f)) }

// roundBF16 is F32ToBF16 on bits. It adds half a unit minus 1, or half a unit if the last bit
// is set, which carries exactly where rounding up is required.
func roundBF16(v uint32) uint16 {
	if v&^signMask32 > inf32 {
		return uint16((v | quiet32) >> 16)
	}
	return uint16((v + 0x7fff + v>>16&1) >> 16)
}

// F64ToBF16 rounds f to the nearest bfloat16 as F32ToBF16 does, once.
func F64ToBF16(f float64) uint16 { return roundBF16(toOdd(f)) }

// ConvertBF16ToF32 sets dst to the values of src. Different lengths panic.
func ConvertBF16ToF32(dst []float32, src []uint16) {
	checkLengths(len(dst), len(src))
	n := vectorWidenBFloat16(dst, src)
	widenBFloat16(dst[n:], src[n:])
}

func widenBFloat16(dst []float32, src []uint16) {
	out := bits32(dst)
	for i, h := range src {
		out[i] = uint32(h) << 16
	}
}

// ConvertF32ToBF16 rounds src to dst, as F32ToBF16 does. Different lengths panic.
func ConvertF32ToBF16(dst []uint16, src []float32) {
	checkLengths(len(dst), len(src))
	n := vectorRoundBFloat16(dst, src)
	roundBFloat16(dst[n:], src[n:])
}

func roundBFloat16(dst []uint16, src []float32) {
	for i, v := range bits32(src) {
		dst[i] = roundBF16(v)
	}
}
