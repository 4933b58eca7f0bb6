package tcp

import "encoding/binary"

// A recordCounter counts the TLS records of a stream (RFC 8446, section 5.1).
type recordCounter struct {
	complete  int // number of complete records
	head      [5]byte
	headLen   int // bytes in head
	remaining int // bytes of the current record that are to come
}

// partial reports whether the last record is incomplete.
func (r *recordCounter) partial() bool { return r.headLen > 0 || r.remaining > 0 }

func (r *recordCounter) count(p []byte) {
	for len(p) > 0 {
		if r.remaining > 0 {
			n := min(r.remaining, len(p))
			p = p[n:]
			r.remaining -= n
		} else {
			n := copy(r.head[r.headLen:], p)
			p = p[n:]
			if r.headLen += n; r.headLen < len(r.head) {
				return
			}
			r.headLen = 0
			r.remaining = int(binary.BigEndian.Uint16(r.head[3:]))
		}
		if r.remaining == 0 {
			r.complete++
		}
	}
}
