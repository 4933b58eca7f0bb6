package tcp

import "encoding/binary"

// A records counts the TLS records of a stream (RFC 8446, section 5.1).
type recordCounter struct {
	complete  int // how many have come to their end
	head      [5]byte
	headLen   int // bytes of head
	remaining int // bytes to come of the record that head is of
}

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
