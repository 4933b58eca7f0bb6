package conformance

import (
	"fmt"
	"math"
	"strings"

	"github.com/nexar-go/nexar"
)

// An oracle computes the elements of a result.
type oracle struct {
	*kind
	tr       trial
	values   []uint64
	floats   []float64 // the values, of floats
	unit     float64   // roundoff: half the distance from 1 to the next float
	half     int       // bits of half an element, for affine maps
	modulus  uint64
	inexact  bool // floats may be rounded on the way
	bitsMask uint64
}

func newOracle(tr trial) *oracle {
	k := tr.kind
	o := &oracle{kind: k, tr: tr, values: k.values(tr.op, tr.flavour)}
	if k.isFloat() {
		for _, v := range o.values {
			o.floats = append(o.floats, k.toFloat(v))
		}
		o.unit = math.Ldexp(1, -k.digits)
		o.inexact = tr.flavour == rounded && tr.op != nexar.Min && tr.op != nexar.Max
	}
	o.half = k.bits() / 2
	o.modulus = modulusOf(k.bits())
	o.bitsMask = 1<<k.bits() - 1
	return o
}

// right reports whether an element of a result is right. The race detector would find
// nothing in it, and would double the time of the tests.
//
//go:norace
func (o *oracle) right(got uint64, s segment, i int) bool {
	if s.lo == s.hi {
		return got == o.identity()
	}
	first := o.values[pick(s.lo, i)]
	switch {
	case s.hi-s.lo == 1:
		return got == first
	case o.tr.custom:
		acc := first
		for r := s.lo + 1; r < s.hi; r++ {
			acc = compose(acc, o.values[pick(r, i)], o.half, o.modulus)
		}
		return got == acc
	case !o.isFloat():
		return got == o.integer(s, i)
	}
	want, tolerance := o.real(s, i)
	g := o.toFloat(got)
	if math.IsNaN(want) || math.IsNaN(g) {
		return math.IsNaN(want) && math.IsNaN(g)
	}
	if !o.inexact || math.IsInf(want, 0) {
		return got == o.fromFloat(want)
	}
	return math.Abs(g-want) <= tolerance
}

// identity returns the element that changes no other when it is combined with it.
func (o *oracle) identity() uint64 {
	switch op := o.tr.op; {
	case op == nexar.Prod && o.isFloat():
		return o.fromFloat(1)
	case op == nexar.Prod:
		return 1
	case op == nexar.BitAnd:
		return o.bitsMask
	case op == nexar.Min && o.isFloat():
		return o.fromFloat(math.Inf(1))
	case op == nexar.Max && o.isFloat():
		return o.fromFloat(math.Inf(-1))
	case op == nexar.Min && o.signed:
		return o.bitsMask >> 1
	case op == nexar.Min:
		return o.bitsMask
	case op == nexar.Max && o.signed:
		return o.bitsMask>>1 + 1
	}
	return 0
}

// integer combines integers with 64 bits. The lowest of these are the result.
//
//go:norace
func (o *oracle) integer(s segment, i int) uint64 {
	acc := o.extended(o.values[pick(s.lo, i)])
	for r := s.lo + 1; r < s.hi; r++ {
		x := o.extended(o.values[pick(r, i)])
		switch o.tr.op {
		case nexar.Sum, nexar.Avg:
			acc += x
		case nexar.Prod:
			acc *= x
		case nexar.Min:
			if o.less(x, acc) {
				acc = x
			}
		case nexar.Max:
			if o.less(acc, x) {
				acc = x
			}
		case nexar.BitAnd:
			acc &= x
		case nexar.BitOr:
			acc |= x
		case nexar.BitXor:
			acc ^= x
		}
	}
	if o.tr.op == nexar.Avg {
		acc = o.extended(uint64(acc)) // as much of the sum as there is room for
		if n := s.hi - s.lo; o.signed {
			acc /= int64(n)
		} else {
			acc = int64(uint64(acc) / uint64(n))
		}
	}
	return uint64(acc) & o.bitsMask
}

func (o *oracle) less(a, b int64) bool {
	if o.signed {
		return a < b
	}
	return uint64(a) < uint64(b)
}

// real combines floats as float64. It returns the result and its tolerance.
//
// If n numbers are added in any order, with rounding to a relative error of u each
// time, the error of the sum is at most (n-1)u Σ|x| to the first order
// (Higham, "Accuracy and Stability of Numerical Algorithms", section 4.2). For
// a product it is (n-1)u |Πx|. The tolerance is twice that with n for n-1: the
// oracle rounds too, and a mean is rounded once more.
//
//go:norace
func (o *oracle) real(s segment, i int) (want, tolerance float64) {
	want = o.floats[pick(s.lo, i)]
	size := math.Abs(want)
	for r := s.lo + 1; r < s.hi; r++ {
		x := o.floats[pick(r, i)]
		switch o.tr.op {
		case nexar.Sum, nexar.Avg:
			want += x
			size += math.Abs(x)
		case nexar.Prod:
			want *= x
			size *= math.Abs(x)
		case nexar.Min:
			want = min(want, x)
		case nexar.Max:
			want = max(want, x)
		}
	}
	n := float64(s.hi - s.lo)
	if o.tr.op == nexar.Avg {
		want /= n
		size /= n
	}
	return want, 2 * n * o.unit * size
}

// explain describes the expected value of an element.
func (o *oracle) explain(s segment, i int) string {
	var parts []string
	for r := s.lo; r < s.hi; r++ {
		v := o.values[pick(r, i)]
		if o.isFloat() {
			parts = append(parts, fmt.Sprintf("%v (%#x)", o.toFloat(v), v))
		} else {
			parts = append(parts, fmt.Sprintf("%#x", v))
		}
	}
	what := fmt.Sprintf("%v %v of %s", o.tr.op, o.typ, strings.Join(parts, ", "))
	if o.isFloat() && s.hi-s.lo > 1 && !o.tr.custom {
		want, tolerance := o.real(s, i)
		what += fmt.Sprintf(": %v ± %v", want, tolerance)
	}
	return what
}

// compose returns the composition of two affine maps x → ax+b modulo p, which is
// associative and not commutative. An element is a map: a is its upper half, b its lower
// half.
//
//go:norace
func compose(f, g uint64, half int, p uint64) uint64 {
	low := uint64(1)<<half - 1
	a1, b1, a2, b2 := f>>half%p, f&low%p, g>>half%p, g&low%p
	return a1*a2%p<<half | (a2*b1+b2)%p
}

// modulusOf returns a prime that fits into half an element.
func modulusOf(bits int) uint64 {
	return map[int]uint64{8: 13, 16: 251, 32: 65521, 64: 1<<31 - 1}[bits]
}

// composeAll is the function of the tests for AllReduceFunc.
func composeAll[T nexar.Number](dst, src []T) {
	bits := 8 * typeOf[T]().Size()
	p := modulusOf(bits)
	for i := range dst {
		dst[i] = fromBits[T](compose(toBits(dst[i]), toBits(src[i]), bits/2, p))
	}
}
