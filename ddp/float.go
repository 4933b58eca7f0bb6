package ddp

import (
	"math"
	"unsafe"

	"github.com/nexar-go/nexar"
)

// as returns the memory of s as a vector of U, which has the size of T.
func as[U, T any](s []T) []U { return unsafe.Slice((*U)(unsafe.Pointer(unsafe.SliceData(s))), len(s)) }

// isBFloat16 reports whether T is BFloat16, given that it has 16 bits.
func isBFloat16[T Float]() bool {
	_, is := any(*new(T)).(nexar.BFloat16)
	return is
}

// scale multiplies all elements by w, rounded once.
func scale[T Float](v []T, w float64) {
	switch unsafe.Sizeof(*new(T)) {
	case 8:
		for i, x := range as[float64](v) {
			as[float64](v)[i] = x * w
		}
	case 4:
		for i, x := range as[float32](v) {
			as[float32](v)[i] = float32(float64(x) * w)
		}
	default:
		widened := make([]float32, min(len(v), chunk))
		for ; len(v) > 0; v = v[min(len(v), chunk):] {
			part := v[:min(len(v), chunk)]
			widen(widened, part, 1)
			for i := range part {
				widened[i] = float32(float64(widened[i]) * w)
			}
			narrow(part, widened)
		}
	}
}

// chunk is the number of elements that are converted at a time.
const chunk = 1024

// widen sets dst[i] = src[i]·w. dst may be longer.
func widen[T Float](dst []float32, src []T, w float64) {
	switch {
	case unsafe.Sizeof(*new(T)) == 8:
		for i, x := range as[float64](src) {
			dst[i] = float32(x * w)
		}
	case unsafe.Sizeof(*new(T)) == 4:
		for i, x := range as[float32](src) {
			dst[i] = float32(float64(x) * w)
		}
	case isBFloat16[T]():
		for i, x := range as[nexar.BFloat16](src) {
			dst[i] = float32(float64(x.Float32()) * w)
		}
	default:
		for i, x := range as[nexar.Float16](src) {
			dst[i] = float32(float64(x.Float32()) * w)
		}
	}
}

// narrow sets dst[i] = src[i]. src may be longer.
func narrow[T Float](dst []T, src []float32) {
	switch {
	case unsafe.Sizeof(*new(T)) == 8:
		for i := range dst {
			as[float64](dst)[i] = float64(src[i])
		}
	case unsafe.Sizeof(*new(T)) == 4:
		copy(as[float32](dst), src)
	case isBFloat16[T]():
		for i := range dst {
			as[nexar.BFloat16](dst)[i] = nexar.ToBFloat16(src[i])
		}
	default:
		for i := range dst {
			as[nexar.Float16](dst)[i] = nexar.ToFloat16(src[i])
		}
	}
}

// isFinite reports whether no element is infinite or NaN: no exponent has all bits set.
func isFinite[T Float](v []T) bool {
	switch {
	case unsafe.Sizeof(*new(T)) == 8:
		return !hasExponent(as[uint64](v), 0x7FF<<52)
	case unsafe.Sizeof(*new(T)) == 4:
		return !hasExponent(as[uint32](v), 0xFF<<23)
	case isBFloat16[T]():
		return !hasExponent(as[uint16](v), 0xFF<<7)
	default:
		return !hasExponent(as[uint16](v), 0x1F<<10)
	}
}

// hasExponent reports whether an element has all bits of mask.
func hasExponent[U uint16 | uint32 | uint64](v []U, mask U) bool {
	const apart = 8 // comparisons without a branch
	for ; len(v) >= apart; v = v[apart:] {
		p := (*[apart]U)(v)
		var most U
		for _, x := range p {
			most = max(most, x&mask)
		}
		if most == mask {
			return true
		}
	}
	for _, x := range v {
		if x&mask == mask {
			return true
		}
	}
	return false
}

// sumOfSquares returns the sum of the squares of all elements, in float64 and in a fixed order.
func sumOfSquares[T Float](v []T) float64 {
	var wide [chunk]float32
	var sums [4]float64 // several additions at a time
	for ; len(v) > 0; v = v[min(len(v), chunk):] {
		part := v[:min(len(v), chunk)]
		if unsafe.Sizeof(*new(T)) == 8 {
			for i, x := range as[float64](part) {
				sums[i&3] += float64(x * x)
			}
			continue
		}
		widen(wide[:], part, 1)
		for i, x := range wide[:len(part)] {
			sums[i&3] += float64(float64(x) * float64(x))
		}
	}
	return sums[0] + sums[1] + (sums[2] + sums[3])
}

// limit scales the gradients so that their global norm is at most Config.MaxNorm, and returns the norm before.
func (m *Model[T]) limit() float64 {
	sum := 0.0
	for _, p := range m.params {
		sum += sumOfSquares(p.Grad)
	}
	norm := math.Sqrt(sum)
	if norm > m.cfg.MaxNorm {
		for _, p := range m.params {
			scale(p.Grad, m.cfg.MaxNorm/norm)
		}
	}
	return norm
}
