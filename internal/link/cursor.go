package link

// A cursor is a position in a payload of several regions.
type cursor struct {
	region int // 0 is the first
	at     int // offset in the region
}

// piece returns the next piece, of at most most bytes. It is empty at the end.
func (c *cursor) piece(first []byte, more [][]byte, most int) []byte {
	r := first
	if c.region > 0 {
		r = more[c.region-1]
	}
	for c.at == len(r) && c.region < len(more) {
		r = more[c.region]
		c.region, c.at = c.region+1, 0
	}
	return r[c.at:min(len(r), c.at+most)]
}

// cursorAt returns the position behind the first at bytes of a payload.
func cursorAt(at int, first []byte, more [][]byte) (c cursor) {
	for at > 0 {
		n := len(c.piece(first, more, at))
		c.advance(n)
		at -= n
	}
	return c
}

func (c *cursor) advance(n int) { c.at += n }

// size returns the length of all regions.
func size(first []byte, more [][]byte) int {
	n := len(first)
	for _, r := range more {
		n += len(r)
	}
	return n
}
