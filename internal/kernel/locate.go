package kernel

// A Located is an element and the rank of its origin.
type Located[T any] struct {
	Value T
	Rank  int32
}

// number has the types of ordered elements. Narrow floating-point numbers are uint16 or uint8.
type number interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

// Locate returns the reduction of Located elements of type t to the smallest value, or to the
// largest if most is set. Of equal values it keeps the one with the lowest rank.
func Locate[T number](t Type, most bool) func(dst, a, b []byte) {
	compare := order[T](t)
	return Custom(func(dst, src []Located[T]) {
		for i, s := range src {
			d := &dst[i]
			if c := compare(s.Value, d.Value, most); c < 0 || c == 0 && s.Rank < d.Rank {
				*d = s
			}
		}
	})
}

// order returns Compare for values of elements of type t.
func order[T number](t Type) func(a, b T, most bool) int {
	if t.Float() && t != Float32 && t != Float64 {
		return func(a, b T, most bool) int {
			return Compare(narrowValue(t, uint16(a)), narrowValue(t, uint16(b)), most)
		}
	}
	return Compare[T]
}
