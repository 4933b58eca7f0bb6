package kernel

// Sums of the 8-bit or 16-bit integers within a word. They are internal to this package.
const (
	sumOf8 Op = 0xf0 + iota
	sumOf16
)

// wordBytes is the length of a word.
const wordBytes = 8

// wordOp returns the operation on words that has the result of op on integers of type t, or 0.
func wordOp(t Type, op Op) Op {
	switch {
	case op >= BitAnd:
		return op
	case op == Sum && t.Size() == 1:
		return sumOf8
	case op == Sum && t.Size() == 2:
		return sumOf16
	}
	return 0
}

func andInts[T integer](d, x, y []T) {
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		d[i] = x[i] & y[i]
	}
}

func orInts[T integer](d, x, y []T) {
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		d[i] = x[i] | y[i]
	}
}

func xorInts[T integer](d, x, y []T) {
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		d[i] = x[i] ^ y[i]
	}
}

// addParts adds the integers within words without a carry from one to the next: it adds all bits but the top ones, which
// cannot carry, and then the top bits without carry. The bits of top are those of the integers.
func addParts[T integer](d, x, y []T, top uint64) {
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		v, w := uint64(x[i]), uint64(y[i])
		d[i] = T((v&^top + w&^top) ^ (v^w)&top)
	}
}
