package kernel

// The operations in this file do not see where one small integer ends and the
// next begins, or can be taught not to. They work on words of eight bytes, and
// on elements for the rest.

func bitAnd[T integer](dst, a, b []byte) { reduceWords[T](BitAnd, dst, a, b) }
func bitOr[T integer](dst, a, b []byte)  { reduceWords[T](BitOr, dst, a, b) }
func bitXor[T integer](dst, a, b []byte) { reduceWords[T](BitXor, dst, a, b) }

func sum8(dst, a, b []byte)  { reduceWords[uint8](sumOf8, dst, a, b) }
func sum16(dst, a, b []byte) { reduceWords[uint16](sumOf16, dst, a, b) }

// Sums of the integers of 8 or 16 bits that an element or a word consists of.
// They are for this package alone.
const (
	sumOf8 Op = 0xf0 + iota
	sumOf16
)

// wordBytes is the length of a word.
const wordBytes = 8

func reduceWords[T integer](op Op, dst, a, b []byte) {
	check(dst, a, b, sizeOf[T]())
	n := len(dst) &^ (wordBytes - 1)
	if n > 0 {
		reduceInts[uint64](op, dst[:n], a[:n], b[:n])
	}
	if n < len(dst) {
		reduceInts[T](op, dst[n:], a[n:], b[n:])
	}
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

// addBytes adds without a carry from one byte to the next: below their top
// bits no two bytes have a sum that reaches the next one, and the top bits are
// added after that, with no carry at all.
func addBytes[T integer](d, x, y []T) {
	const top = 0x8080808080808080
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		v, w := uint64(x[i]), uint64(y[i])
		d[i] = T((v&^top + w&^top) ^ (v^w)&top)
	}
}

// addPairs is addBytes for integers of two bytes.
func addPairs[T integer](d, x, y []T) {
	const top = 0x8000800080008000
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		v, w := uint64(x[i]), uint64(y[i])
		d[i] = T((v&^top + w&^top) ^ (v^w)&top)
	}
}
