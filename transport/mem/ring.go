package mem

// The sizes of a ring: what it starts with, and what it grows to. Both are
// powers of two.
const (
	ringBytesMin = 4 << 10
	ringBytesMax = 64 << 10
)

// A ring holds the bytes of small writes until they are read. Its zero value
// is empty and owns no memory.
//
// A view that peek returned stays intact while put runs, even if the ring
// grows meanwhile, until drop takes its bytes away.
type ring struct {
	buf  []byte
	head int // where the oldest byte lies
	n    int // how many bytes there are
}

// put appends the whole of p, or reports false and appends nothing.
func (r *ring) put(p []byte) bool {
	if r.n+len(p) > len(r.buf) && !r.grow(r.n+len(p)) {
		return false
	}
	tail := (r.head + r.n) & (len(r.buf) - 1)
	k := copy(r.buf[tail:], p)
	copy(r.buf, p[k:])
	r.n += len(p)
	return true
}

// grow makes room for size bytes in all, if that is allowed.
func (r *ring) grow(size int) bool {
	if size > ringBytesMax {
		return false
	}
	capacity := max(ringBytesMin, len(r.buf))
	for capacity < size {
		capacity *= 2
	}
	buf := make([]byte, capacity)
	k := copy(buf, r.buf[r.head:min(r.head+r.n, len(r.buf))])
	copy(buf[k:], r.buf[:r.n-k])
	r.buf, r.head = buf, 0
	return true
}

// peek returns the oldest bytes as far as they lie in one piece, at most
// limit. It returns nothing if the ring is empty.
func (r *ring) peek(limit int) []byte {
	return r.buf[r.head : r.head+min(limit, r.n, len(r.buf)-r.head)]
}

// drop takes the k oldest bytes away. An empty ring starts anew at the front,
// so that the next bytes lie in one piece.
func (r *ring) drop(k int) {
	r.n -= k
	if r.n == 0 {
		r.head = 0
		return
	}
	r.head = (r.head + k) & (len(r.buf) - 1)
}
