package engine

import "github.com/nexar-go/nexar/internal/wire"

const (
	// callsKept is how many collectives a communicator remembers after their end, so that a
	// late frame with another call in place of one of them is recognised as a mismatch.
	callsKept = 64
	// callsTraced is how many it remembers while it is traced.
	callsTraced = 256
)

// A started collective is under way, or has ended.
type started struct {
	call wire.Call
	op   *Op // nil after the end

	noted         bool  // the fields below are valid
	begun, ended  int64 // by the clock of the engine
	bytes         int64
	round, rounds uint16 // the last round, or the one in which it failed
	failed        bool
	waiting       int32 // a rank that it was waiting for when it failed, or -1
}

// calls has the collectives of a communicator by sequence number: all that are under way, and
// the last that have ended. It is a ring, whose length is a power of two.
type calls struct {
	ring []started
	live int // under way
}

func (c *calls) slot(seq uint64) *started { return &c.ring[seq&uint64(len(c.ring)-1)] }

// get returns the collective with a sequence number, or nil if it is forgotten.
func (c *calls) get(seq uint64) *started {
	if len(c.ring) == 0 {
		return nil
	}
	if s := c.slot(seq); s.call.Seq == seq && seq != 0 {
		return s
	}
	return nil
}

// put adds an operation. It forgets an ended one once there are as many as keep.
func (c *calls) put(op *Op, keep int) {
	seq := op.call.Seq
	for len(c.ring) == 0 || c.slot(seq).op != nil || c.slot(seq).call.Seq != 0 && len(c.ring) < keep {
		c.grow()
	}
	s := c.slot(seq)
	s.call, s.op, s.noted = op.call, op, false
	c.live++
}

func (c *calls) grow() {
	old := c.ring
	c.ring = make([]started, max(8, 2*len(old)))
	for i := range old {
		if seq := old[i].call.Seq; seq != 0 {
			*c.slot(seq) = old[i]
		}
	}
}

// end marks an operation as ended, and returns its entry.
func (c *calls) end(op *Op) *started {
	s := c.slot(op.call.Seq)
	s.op = nil
	c.live--
	return s
}

// each calls f for each operation under way.
func (c *calls) each(f func(op *Op)) {
	if c.live == 0 {
		return
	}
	for i := range c.ring {
		if op := c.ring[i].op; op != nil {
			f(op)
		}
	}
}
