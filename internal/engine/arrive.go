package engine

import (
	"fmt"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/wire"
)

// heldKeepMax is how much memory, in bytes, a communicator keeps for payloads
// that will come early.
const heldKeepMax = 1 << 20

// heldBytes is the size of a held without its payload, or about that.
const heldBytes = 128

// An arrival of a collective is one of these.
const (
	stepArrived  = iota // with its payload
	offerArrived        // the peer asks for a grant
	grantArrived        // the peer grants a step
	probeArrived        // the peer waits for this rank
)

// held is something that has come before the operation, or the move, that it
// is for could take it.
type held struct {
	next    *held
	link    *link.Link
	kind    int
	step    wire.Step
	payload []byte
}

// Step handles a step with its payload.
func (e *Engine) Step(l *link.Link, s wire.Step, payload []byte) {
	e.arrive(l, stepArrived, s, payload)
}

// StepOffer handles a request to grant a step.
func (e *Engine) StepOffer(l *link.Link, s wire.Step) { e.arrive(l, offerArrived, s, nil) }

// StepGrant handles the grant of a step.
func (e *Engine) StepGrant(l *link.Link, s wire.Step) { e.arrive(l, grantArrived, s, nil) }

func (e *Engine) arrive(l *link.Link, kind int, s wire.Step, payload []byte) {
	c := e.comm(l, s.Call.Comm)
	if c == nil || !c.arrive(l, kind, s, payload) {
		consumed(l, kind, payload)
	}
}

// consumed gives the credit for a step back, which only its payload costs.
func consumed(l *link.Link, kind int, payload []byte) {
	if kind == stepArrived {
		l.Consumed(wire.Collectives, len(payload))
	}
}

// arrive takes what has come for a collective. It reports false if there was
// no use for it.
func (c *Comm) arrive(l *link.Link, kind int, s wire.Step, payload []byte) bool {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return false
	}
	rank, member := c.rankOf[l.Peer]
	if c.opened && !member {
		c.mu.Unlock()
		c.stranger(l)
		return false
	}
	if !c.opened || s.Call.Seq > c.seq {
		defer c.mu.Unlock()
		return c.hold(l, kind, s, payload)
	}
	ours, op := c.callOf(s.Call.Seq)
	if ours != s.Call && ours.Seq != 0 {
		c.mu.Unlock()
		c.mismatch(ours, rank, s.Call)
		return false
	}
	if op == nil || op.failing || kind == probeArrived {
		c.mu.Unlock()
		return false
	}
	defer c.mu.Unlock()
	op.busy++
	ok := op.admit(l, kind, s, payload)
	op.leave()
	return ok
}

// callOf returns what this rank called as the seq-th collective, and the
// operation if it has not ended. The call is zero if it is long forgotten.
func (c *Comm) callOf(seq uint64) (wire.Call, *Op) {
	if op := c.ops.get(seq); op != nil {
		return op.call, op
	}
	return c.past.get(seq), nil
}

// admit hands an arrival to the move that it is for. It is called with the
// lock held. It reports false if the payload, if any, has been consumed or
// cannot be.
func (op *Op) admit(l *link.Link, kind int, s wire.Step, payload []byte) bool {
	i, m, ok := op.find(l, kind, s)
	if !ok {
		l.Fail(fmt.Errorf("engine: protocol error: message %d of channel %d is not in the plan", s.Index, s.Channel))
		return false
	}
	ch := int(s.Channel)
	at := &op.slots[i]
	if !op.expects(at, kind, m, ch, payload) {
		l.Fail(fmt.Errorf("engine: protocol error: message %d of channel %d comes twice, unasked, or with %d bytes", s.Index, s.Channel, len(payload)))
		return false
	}
	switch kind {
	case offerArrived:
		at.state |= wanted
		if at.state&ready != 0 {
			op.grant(i, m, ch)
		}
		return true
	case grantArrived:
		at.state |= granted
		at.grant = s.Grant
		if at.state&ready != 0 {
			op.deliver(i, m, ch)
		}
		return true
	}
	if at.state&ready == 0 {
		at.held = op.comm.newHeld(l, kind, s, payload)
		return true
	}
	at.state |= done
	op.comm.mu.Unlock()
	op.receive(m, ch, payload)
	l.Consumed(wire.Collectives, len(payload))
	op.comm.mu.Lock()
	op.bytes += int64(len(payload))
	op.finished(i)
	return true
}

// expects reports whether a peer that keeps to the protocol can have sent this
// for a slot. What is not expected would be carried out twice.
func (op *Op) expects(at *slot, kind int, m *move, ch int, payload []byte) bool {
	switch kind {
	case grantArrived:
		asked := at.state&wanted != 0 || op.Length(m.A, ch) > op.comm.engine.cfg.EagerMax
		return asked && at.state&(granted|done) == 0
	case offerArrived:
		if op.Length(m.Dst, ch) > op.comm.engine.cfg.EagerMax {
			return false
		}
	case stepArrived:
		if len(payload) != op.Length(m.Dst, ch) {
			return false
		}
	}
	return at.state&(wanted|granted|done) == 0 && at.held == nil
}

// find returns the slot and the move that an arrival is for.
func (op *Op) find(l *link.Link, kind int, s wire.Step) (int, *move, bool) {
	g := op.work.Program
	rank, ok := op.comm.rankOf[l.Peer]
	if !ok || g == nil || int(s.Channel) >= op.channels {
		return 0, nil, false
	}
	list := g.recvs[rank]
	if kind == grantArrived {
		list = g.sends[rank]
	}
	if int(s.Index) >= len(list) {
		return 0, nil, false
	}
	k := list[s.Index]
	return int(s.Channel)*len(g.moves) + int(k), &g.moves[k], true
}

// hold keeps an arrival for a collective that has not begun on this rank. It
// reports false if it does not.
func (c *Comm) hold(l *link.Link, kind int, s wire.Step, payload []byte) bool {
	if kind == probeArrived {
		for h := c.ahead[s.Call.Seq]; h != nil; h = h.next {
			if h.kind == kind && h.link == l {
				return true
			}
		}
	}
	if kind != stepArrived && !l.Keep() {
		return false
	}
	h := c.newHeld(l, kind, s, payload)
	h.next = c.ahead[s.Call.Seq]
	c.ahead[s.Call.Seq] = h
	return true
}

// An odd is a call that does not go with this rank's.
type odd struct {
	rank int
	call wire.Call
}

// admitAhead hands an operation that begins what has come for it before. It
// returns the first call that does not go with it, if any.
func (c *Comm) admitAhead(op *Op) (theirs *odd) {
	h := c.ahead[op.call.Seq]
	if h == nil {
		return nil
	}
	delete(c.ahead, op.call.Seq)
	for h != nil {
		next := h.next
		rank, member := c.rankOf[h.link.Peer]
		switch {
		case !member:
			c.stranger(h.link)
		case h.step.Call != op.call && theirs == nil:
			theirs = &odd{rank, h.step.Call}
		}
		if !member || theirs != nil || !c.admitHeld(op, h) {
			c.drop(h)
		}
		h = next
	}
	return theirs
}

// admitHeld is admit for what was held, of which no move can be ready yet. It
// reports whether h still is.
func (c *Comm) admitHeld(op *Op, h *held) bool {
	switch h.kind {
	case probeArrived:
		return false
	case stepArrived:
		i, m, ok := op.find(h.link, h.kind, h.step)
		if ok && op.expects(&op.slots[i], h.kind, m, int(h.step.Channel), h.payload) {
			op.slots[i].held = h
			return true
		}
	}
	op.admit(h.link, h.kind, h.step, h.payload) // which finds fault with a step
	return false
}

func (c *Comm) newHeld(l *link.Link, kind int, s wire.Step, payload []byte) *held {
	h := c.freeHeld
	if h == nil {
		h = new(held)
	} else {
		c.freeHeld = h.next
		c.freeBytes -= heldBytes + cap(h.payload)
	}
	h.next, h.link, h.kind, h.step = nil, l, kind, s
	h.payload = append(h.payload[:0], payload...)
	return h
}

// drop lets go of what was held and gives back what its sender was charged.
func (c *Comm) drop(h *held) {
	if h.kind == stepArrived {
		h.link.Consumed(wire.Collectives, len(h.payload))
	} else {
		h.link.Dropped()
	}
	c.release(h)
}

// release keeps h for what comes early next, unless much is kept already.
func (c *Comm) release(h *held) {
	h.link = nil
	if c.freeBytes+heldBytes+cap(h.payload) > heldKeepMax {
		return
	}
	c.freeBytes += heldBytes + cap(h.payload)
	h.next = c.freeHeld
	c.freeHeld = h
}

// dropAhead lets go of what was held for a collective that will not begin.
func (c *Comm) dropAhead(seq uint64) {
	for h := c.ahead[seq]; h != nil; {
		next := h.next
		c.drop(h)
		h = next
	}
	delete(c.ahead, seq)
}

// Probe handles the word of a peer that it is waiting for this rank, and
// answers where this rank is.
func (e *Engine) Probe(l *link.Link, p wire.Probe) {
	c := e.comm(l, p.Call.Comm)
	if c == nil {
		return
	}
	c.arrive(l, probeArrived, wire.Step{Call: p.Call}, nil)
	w := wire.Where{Seq: p.Call.Seq}
	c.mu.Lock()
	if c.seq > 0 {
		var op *Op
		w.Last, op = c.callOf(c.seq)
		w.Active, w.For = op != nil, c.since(c.seq, op)
	}
	w.Last.Comm = c.id
	c.mu.Unlock()
	l.Answer(w)
}

// since is how long a call has been under way, or if it is not, how long ago it ended,
// in nanoseconds; 0 if that is not recorded.
func (c *Comm) since(seq uint64, op *Op) uint64 {
	at, known := c.past.ended(seq)
	if op != nil {
		at, known = op.begun, c.about != nil
	}
	if !known {
		return 0
	}
	return uint64(max(1, c.engine.clock.Now()-at))
}

// An answer is what a rank has said to a probe, and when.
type answer struct {
	wire.Where
	at    time.Time // zero if it has said nothing yet
	asked time.Time // the first time since then; zero if it was not
}

// Where handles the answer to a probe. It is the last word of its rank, so that
// it counts for all operations that have an answer, not only for that which asks.
func (e *Engine) Where(l *link.Link, w wire.Where) {
	c := e.known(w.Last.Comm)
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if rank, ok := c.rankOf[l.Peer]; ok {
		w.Seq = max(w.Seq, c.where[rank].Seq)
		c.where[rank] = answer{Where: w, at: time.Now()}
	}
}

// waitsFor returns the ranks that the operation is waiting for: those whose
// message, or whose grant, is all that a move still needs.
func (op *Op) waitsFor() []int {
	if op.work.Shared != nil {
		return op.awaited()
	}
	seen := make(map[int]bool)
	var ranks []int
	for i := range op.slots {
		s, m := &op.slots[i], op.move(i)
		if s.state&ready == 0 || s.state&done != 0 || m.Kind == plan.Copy || m.Kind == plan.Combine || seen[m.Peer] {
			continue
		}
		seen[m.Peer] = true
		ranks = append(ranks, m.Peer)
	}
	return ranks
}
