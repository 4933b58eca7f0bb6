package mem

// The initial and the maximal length of a ring, both powers of two.
const (
	minRing = 4 << 10
	maxRing = 64 << 10
)

// A ring holds the bytes of short writes until they are read. The zero value is empty
// and owns no memory.
//
// A view that peek has returned stays intact until drop removes its bytes, even if put
// grows the ring meanwhile.
type ring struct {
	buf  []byte
	head int // index of the oldest byte
	n    int // number of bytes
}

// put appends all of p, or returns false and appends nothing.
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

// grow makes the ring large enough for size bytes, or returns false if that is more than
// maxRing.
func (r *ring) grow(size int) bool {
	if size > maxRing {
		return false
	}
	capacity := max(minRing, len(r.buf))
	for capacity < size {
		capacity *= 2
	}
	buf := make([]byte, capacity)
	k := copy(buf, r.buf[r.head:min(r.head+r.n, len(r.buf))])
	copy(buf[k:], r.buf[:r.n-k])
	r.buf, r.head = buf, 0
	return true
}

// peek returns the oldest bytes that are contiguous, at most limit; none if the ring is
// empty.
func (r *ring) peek(limit int) []byte {
	return r.buf[r.head : r.head+min(limit, r.n, len(r.buf)-r.head)]
}

// drop removes the k oldest bytes. An empty ring starts again at index 0, so that the
// next bytes are contiguous.
func (r *ring) drop(k int) {
	r.n -= k
	if r.n == 0 {
		r.head = 0
		return
	}
	r.head = (r.head + k) & (len(r.buf) - 1)
}
