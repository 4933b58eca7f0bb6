package engine

import (
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/wire"
)

const (
	// callsKept is the number of collectives that a communicator remembers after their end, so
	// that a late frame with another call in place of one of them is recognised as a mismatch.
	callsKept = 64
	// callsTraced is the number that it remembers while it is traced.
	callsTraced = 256
)

// A call is a collective that is under way, or has ended.
type call struct {
	wire.Call
	op *Op // nil after the end

	isTraced     bool  // the fields below are valid
	begun, ended int64 // by the clock of the engine
	timed        bool  // begun is exact
	failed       bool
	at           exec.Trace // at the end, or when it failed
	blockedBy    []int      // a rank that it was waiting for when it failed
}

// calls has the collectives of a communicator by sequence number: all that are under way, and
// the last that have ended. It is a ring; its length is a power of two.
type calls struct {
	ring []*call
	live int // under way
}

func (c *calls) at(seq uint64) **call { return &c.ring[seq&uint64(len(c.ring)-1)] }

// get returns the collective with a sequence number, or nil if it is forgotten.
func (c *calls) get(seq uint64) *call {
	if len(c.ring) == 0 {
		return nil
	}
	if s := *c.at(seq); s != nil && s.Seq == seq {
		return s
	}
	return nil
}

// put returns the call of an operation. The caller sets its fields. It forgets an ended one once
// there are as many as keep.
func (c *calls) put(op *Op, seq uint64, keep int) *call {
	for len(c.ring) == 0 || *c.at(seq) != nil && ((*c.at(seq)).op != nil || len(c.ring) < keep) {
		old := c.ring
		c.ring = make([]*call, max(8, 2*len(old)))
		for _, s := range old {
			if s != nil {
				*c.at(s.Seq) = s
			}
		}
	}
	p := c.at(seq)
	if *p == nil {
		*p = new(call)
	}
	(*p).op, (*p).Seq = op, seq
	c.live++
	return *p
}

// end marks a call as ended.
func (c *calls) end(s *call) {
	s.op = nil
	c.live--
}

// each calls f for each operation under way.
func (c *calls) each(f func(op *Op)) {
	if c.live == 0 {
		return
	}
	for _, s := range c.ring {
		if s != nil && s.op != nil {
			f(s.op)
		}
	}
}

// Received returns the bytes that this rank has received for running collectives with the op of a fingerprint.
func (c *Comm) Received(op uint8) (bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls.each(func(running *Op) {
		if s := running.call; s.Op == op && !s.failed {
			bytes += running.exec.TraceLocked(false).Received
		}
	})
	return bytes
}
