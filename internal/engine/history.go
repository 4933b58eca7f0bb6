package engine

import "github.com/nexar-go/nexar/internal/wire"

const (
	// historyLength is how many finished calls a communicator remembers, so that
	// what a rank sends for another call in their place is known for a mismatch.
	historyLength = 64
	// historyMax is how many it remembers if it is recorded.
	historyMax = 256
)

// A past collective is one that has ended.
type past struct {
	call         wire.Call
	begun, ended int64 // by the clock of the engine
	bytes        int64
	round        uint16 // the last one, or the one in which it failed
	rounds       uint16
	noted        bool // what is above and below is known
	failed       bool
	waiting      int32 // a rank that it was waiting for, or -1, if it has failed
}

// A history holds the last collectives of a communicator, by sequence number. It
// is a ring, whose length is a power of two, that grows as it fills.
type history struct{ ring []past }

// get returns the call with this number, or the zero value if it is forgotten.
func (h *history) get(seq uint64) wire.Call {
	if len(h.ring) == 0 {
		return wire.Call{}
	}
	if c := h.ring[seq&uint64(len(h.ring)-1)].call; c.Seq == seq {
		return c
	}
	return wire.Call{}
}

// ended is when the call with this number did, by the clock of the engine, if that is
// known.
func (h *history) ended(seq uint64) (at int64, known bool) {
	if len(h.ring) == 0 {
		return 0, false
	}
	p := &h.ring[seq&uint64(len(h.ring)-1)]
	return p.ended, p.noted && p.call.Seq == seq
}

// put is the place for the call with this number. There are at most so many.
func (h *history) put(seq uint64, most int) *past {
	if len(h.ring) < most {
		h.grow(seq, most)
	}
	return &h.ring[seq&uint64(len(h.ring)-1)]
}

// grow makes the ring longer until the place is free.
func (h *history) grow(seq uint64, most int) {
	for len(h.ring) < most && (len(h.ring) == 0 || h.ring[seq&uint64(len(h.ring)-1)].call.Seq != 0) {
		old := h.ring
		h.ring = make([]past, max(8, 2*len(old)))
		for i := range old {
			if s := old[i].call.Seq; s != 0 {
				h.ring[s&uint64(len(h.ring)-1)] = old[i]
			}
		}
	}
}
