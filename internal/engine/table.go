package engine

// An opTable holds the collectives of a communicator that have not ended, by
// sequence number. They are few and their numbers lie close together, so they
// sit in a ring that grows when two would share a place.
type opTable struct {
	ring []*Op // its length is a power of two
	live int
}

func (t *opTable) get(seq uint64) *Op {
	if len(t.ring) == 0 {
		return nil
	}
	if op := t.ring[seq&uint64(len(t.ring)-1)]; op != nil && op.call.Seq == seq {
		return op
	}
	return nil
}

func (t *opTable) put(op *Op) {
	for len(t.ring) == 0 || t.ring[op.call.Seq&uint64(len(t.ring)-1)] != nil {
		old := t.ring
		t.ring = make([]*Op, max(8, 2*len(old)))
		for _, o := range old {
			if o != nil {
				t.ring[o.call.Seq&uint64(len(t.ring)-1)] = o
			}
		}
	}
	t.ring[op.call.Seq&uint64(len(t.ring)-1)] = op
	t.live++
}

func (t *opTable) remove(op *Op) {
	t.ring[op.call.Seq&uint64(len(t.ring)-1)] = nil
	t.live--
}

func (t *opTable) each(f func(op *Op)) {
	for _, op := range t.ring {
		if op != nil {
			f(op)
		}
	}
}
