//go:build linux

package rdma

// A gather copies the bytes of several slices in order.
type gather struct {
	pieces [][]byte
	copied int // of the first one
}

// fill copies the next bytes, as many as to has. There are that many left.
func (g *gather) fill(to []byte) {
	for len(to) > 0 {
		k := copy(to, g.pieces[0][g.copied:])
		to, g.copied = to[k:], g.copied+k
		if g.copied == len(g.pieces[0]) {
			g.pieces, g.copied = g.pieces[1:], 0
		}
	}
}

// gatherLocked sends a message of k bytes.
func (s *sender) gatherLocked(from *gather, k int) error {
	c := s.conn
	r := request{slot: c.takeSendSlotLocked()}
	to := c.send[r.slot]
	from.fill(to.memory[:k])
	c.t.cfg.Counters.copied.Add(uint64(k))
	s.credit--
	return c.messageLocked(r, msgData<<28|s.pipe, to.memory[:k], to.key, false)
}
