package tcp

import "encoding/binary"

// A records counts the TLS records of a stream (RFC 8446, section 5.1).
type records struct {
	whole int // how many have come to their end
	head  [5]byte
	begun int // bytes of head
	left  int // bytes to come of the record that head is of
}

func (r *records) count(p []byte) {
	for len(p) > 0 {
		if r.left > 0 {
			n := min(r.left, len(p))
			p = p[n:]
			r.left -= n
		} else {
			n := copy(r.head[r.begun:], p)
			p = p[n:]
			if r.begun += n; r.begun < len(r.head) {
				return
			}
			r.begun = 0
			r.left = int(binary.BigEndian.Uint16(r.head[3:]))
		}
		if r.left == 0 {
			r.whole++
		}
	}
}
