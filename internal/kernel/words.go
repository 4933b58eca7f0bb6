package kernel

// The operations in this file work on words of eight bytes, also for smaller integers, and on
// single elements for the rest.

func bitAnd[T integer](dst, a, b []byte) { reduceWords[T](BitAnd, dst, a, b) }
func bitOr[T integer](dst, a, b []byte)  { reduceWords[T](BitOr, dst, a, b) }
func bitXor[T integer](dst, a, b []byte) { reduceWords[T](BitXor, dst, a, b) }

func sum8(dst, a, b []byte)  { reduceWords[uint8](sumOf8, dst, a, b) }
func sum16(dst, a, b []byte) { reduceWords[uint16](sumOf16, dst, a, b) }

// Sums of the 8-bit or 16-bit integers within an element or a word. They are internal to this
// package.
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

// addBytes adds without a carry from one byte to the next: it adds the low seven bits of all
// bytes, which cannot carry, and then the top bits without carry.
func addBytes[T integer](d, x, y []T) {
	const top = 0x8080808080808080
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		v, w := uint64(x[i]), uint64(y[i])
		d[i] = T((v&^top + w&^top) ^ (v^w)&top)
	}
}

// addPairs is addBytes for 16-bit integers.
func addPairs[T integer](d, x, y []T) {
	const top = 0x8000800080008000
	x, y = x[:len(d)], y[:len(d)]
	for i := range d {
		v, w := uint64(x[i]), uint64(y[i])
		d[i] = T((v&^top + w&^top) ^ (v^w)&top)
	}
}
