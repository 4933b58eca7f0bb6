package tcp

const (
	// copyMin is the smallest size of a copyRing with bytes in it.
	copyMin = 256 << 10
	// queryBytes is the minimum length of a write for asking the kernel how much of it
	// is acknowledged: below that the copy costs less than the answer.
	queryBytes = 64 << 10
)

// A copyRing holds the last n bytes of a stream. It has room for about twice as many as
// were ever unacknowledged, so that it copies each byte once.
type copyRing struct {
	buf []byte
	end int // position in buf after the last byte
	n   int
}

func (r *copyRing) free() int { return len(r.buf) - r.n }

// keep drops all but the last n bytes.
func (r *copyRing) keep(n int) { r.n = min(r.n, n) }

// add appends p. It grows the ring to at least twice its contents if p does not fit.
func (r *copyRing) add(p []byte) {
	if len(p) > r.free() {
		buf := make([]byte, 2*(r.n+len(p))+copyMin)
		r.last(buf[:0], r.n)
		r.buf, r.end = buf, r.n
	}
	m := copy(r.buf[r.end:], p)
	copy(r.buf, p[m:])
	r.n += len(p)
	if r.end += len(p); r.end >= len(r.buf) {
		r.end -= len(r.buf)
	}
}

// last appends the last n bytes to b.
func (r *copyRing) last(b []byte, n int) []byte {
	if start := r.end - n; start < 0 {
		b = append(b, r.buf[len(r.buf)+start:]...)
		n = r.end
	}
	return append(b, r.buf[r.end-n:r.end]...)
}
