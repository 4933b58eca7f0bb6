package kernel

import (
	"cmp"
	"math"
)

// Compare is less than 0 if Min of a and b is a, or Max with most set, and 0 if they are the
// same. It orders NaN before all numbers, for both ops, and -0 before +0.
func Compare[T cmp.Ordered](a, b T, most bool) int {
	if a != a || b != b {
		return cmp.Compare(a, b) // orders NaN first
	}
	if most {
		a, b = b, a
	}
	if x, ok := any(a).(float64); ok && a == b {
		return cmp.Compare(math.Copysign(1, x), math.Copysign(1, any(b).(float64)))
	}
	if x, ok := any(a).(float32); ok && a == b {
		return cmp.Compare(math.Copysign(1, float64(x)), math.Copysign(1, float64(any(b).(float32))))
	}
	return cmp.Compare(a, b)
}
