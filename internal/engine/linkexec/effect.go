package linkexec

import (
	"fmt"
	"runtime/debug"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/wire"
)

// The kinds of effects.
const (
	nothing uint8 = iota
	start         // the first moves may be made
	send          // a step with its payload
	offer         // a step whose payload waits for a grant
	grant         // a step may be sent
	push          // payloads that were granted
	receive       // a payload is copied or combined
	compute       // a move without a peer
	leave         // a goroutine is through with what it has brought
	wake          // the operation has ended
)

// An Effect is what a transition of an operation leaves to be done without the lock.
type Effect struct {
	kind    uint8
	slot    int32
	channel int32
	move    *move
	link    *link.Link
	frame   *Frame // with the payload to receive, or nil if that has just arrived
	payload []byte
	grant   uint64
}

// CarryOut carries out an effect, and those that follow from it. It is the
// only place from which an operation sends frames and touches buffers.
func (r *Execution) CarryOut(e Effect) {
	for e.kind != nothing {
		r.perform(&e)
		if e.kind == wake {
			return // The operation belongs to its caller again.
		}
		r.executor.mu.Lock()
		e = r.nextLocked(&e)
		r.executor.mu.Unlock()
	}
}

func (r *Execution) perform(e *Effect) {
	m, ch := e.move, int(e.channel)
	switch e.kind {
	case send:
		e.link.SendStep(r.step(m, ch), r.Bytes(m.A, ch))
	case offer:
		e.link.OfferStep(r.step(m, ch))
	case grant:
		f := r.step(m, ch)
		f.Grant = e.grant
		e.link.GrantStep(f)
	case push:
		e.link.Push()
	case receive:
		r.receive(m, ch, e.payload)
		e.link.Consumed(wire.Collectives, len(e.payload))
	case compute:
		r.compute(m, ch)
	case wake:
		r.op.Wake()
	}
}

// nextLocked records the end of e and returns the next effect. It makes the moves that
// have become ready, has links push what they were given, and completes the operation
// after the last move.
func (r *Execution) nextLocked(e *Effect) Effect {
	r.performedLocked(e)
	for len(r.ready) > 0 && !r.stopped {
		i := r.ready[len(r.ready)-1]
		r.ready = r.ready[:len(r.ready)-1]
		if next := r.makeLocked(int(i)); next.kind != nothing {
			return next
		}
	}
	if n := len(r.pushes); n > 0 {
		l := r.pushes[n-1]
		r.pushes = r.pushes[:n-1]
		return Effect{kind: push, link: l}
	}
	r.busy--
	switch {
	case r.stopped:
		r.executor.idle.Broadcast()
	case r.busy == 0 && r.remaining == 0:
		r.op.CompleteLocked()
		r.Vectors.Release()
		return Effect{kind: wake}
	}
	return Effect{}
}

// performedLocked marks the move of an effect as done, if that is the end of it.
func (r *Execution) performedLocked(e *Effect) {
	switch e.kind {
	case send:
		r.moved += int64(r.Length(e.move.A, int(e.channel)))
		r.finishLocked(int(e.slot))
	case receive:
		r.moved += int64(len(e.payload))
		if e.frame != nil {
			r.executor.early.releaseLocked(e.frame)
		}
		r.finishLocked(int(e.slot))
	case compute:
		r.finishLocked(int(e.slot))
	}
}

// finishLocked marks a slot as done, and those that depended on no other as ready.
func (r *Execution) finishLocked(i int) {
	g := r.program
	r.slots[i].state |= done
	r.remaining--
	base := i / len(g.moves) * len(g.moves)
	for _, m := range g.moves[i-base].next {
		s := &r.slots[base+int(m)]
		if s.waits--; s.waits == 0 {
			r.ready = append(r.ready, int32(base)+m)
		}
	}
}

// makeLocked makes a move that depends on no other, as far as it can be made now. A
// move that no longer depends on its peer is marked as done before it is carried out,
// so that the peer may leave.
func (r *Execution) makeLocked(i int) Effect {
	s, m := &r.slots[i], r.move(i)
	e := Effect{slot: int32(i), channel: int32(i / len(r.program.moves)), move: m}
	s.state |= ready
	switch m.Kind {
	case plan.Send:
		r.sendLocked(&e)
	case plan.Recv, plan.Reduce:
		switch f := s.frame; {
		case f != nil:
			s.frame = nil
			s.state |= done
			e.kind, e.link, e.frame, e.payload = receive, f.Link, f, f.payload
		case s.state&wanted != 0 || r.Length(m.Dst, int(e.channel)) > r.executor.eagerMax:
			r.grantLocked(&e)
		}
	default:
		e.kind = compute
	}
	return e
}

// sendLocked sends a payload that is short, or granted. For a long payload the grant
// comes unasked.
func (r *Execution) sendLocked(e *Effect) {
	s := &r.slots[e.slot]
	e.link = r.executor.links[e.move.Peer]
	n := r.Length(e.move.A, int(e.channel))
	switch {
	case n > r.executor.eagerMax:
		if s.state&granted != 0 {
			r.deliverLocked(e)
		}
	case e.link.TakeCredit(wire.Collectives, n):
		s.state |= done
		e.kind = send
	default:
		s.state |= wanted
		e.kind = offer
	}
}

// deliverLocked gives a granted payload to its link, which sends it when it is pushed.
func (r *Execution) deliverLocked(e *Effect) {
	if len(r.transfers) < len(r.slots) {
		r.transfers = make([]link.Transfer, len(r.slots))
	}
	t := &r.transfers[e.slot]
	t.Grant, t.Data, t.Owner = r.slots[e.slot].grant, r.Bytes(e.move.A, int(e.channel)), r
	t.Move, t.Channel = int(e.slot), int(e.channel)
	l := r.executor.links[e.move.Peer]
	l.Deliver(t)
	for _, other := range r.pushes {
		if other == l {
			return
		}
	}
	r.pushes = append(r.pushes, l)
}

// grantLocked lets the peer send the payload of a move.
func (r *Execution) grantLocked(e *Effect) {
	if len(r.sinks) < len(r.slots) {
		r.sinks = make([]link.Sink, len(r.slots))
	}
	m, ch := e.move, int(e.channel)
	s := &r.sinks[e.slot]
	*s = link.Sink{Dst: r.Bytes(m.Dst, ch), Elem: r.Elem, Owner: r, Move: int(e.slot), Channel: ch}
	if m.Kind == plan.Reduce {
		s.Reduce, s.A, s.Left = r.combine, r.Bytes(m.A, ch), m.Left
	}
	r.slots[e.slot].state |= granted
	e.kind, e.link = grant, r.executor.links[m.Peer]
	e.grant = e.link.Grant(s)
}

// Delivered implements [link.Transfer]'s owner: the move of the transfer is done.
func (r *Execution) Delivered(t *link.Transfer) { r.transferred(t.Move, len(t.Data), t, nil) }

// Filled implements [link.Sink]'s owner: the move of the sink is done.
func (r *Execution) Filled(s *link.Sink) { r.transferred(s.Move, len(s.Dst), nil, s) }

// transferred ends a move whose payload has been transferred.
func (r *Execution) transferred(slot, bytes int, t *link.Transfer, s *link.Sink) {
	r.executor.mu.Lock()
	if r.stopped {
		r.executor.mu.Unlock()
		return
	}
	if t != nil {
		t.Owner, t.Data = nil, nil
	} else {
		*s = link.Sink{}
	}
	r.busy++
	r.moved += int64(bytes)
	r.finishLocked(slot)
	e := r.nextLocked(&Effect{kind: leave})
	r.executor.mu.Unlock()
	r.CarryOut(e)
}

func (r *Execution) step(m *move, ch int) wire.Step {
	return wire.Step{Call: *r.call, Channel: uint16(ch), Index: m.index}
}

// receive carries out a receiving move with its whole payload at hand.
func (r *Execution) receive(m *move, ch int, p []byte) {
	dst := r.Bytes(m.Dst, ch)
	switch {
	case m.Kind == plan.Recv:
		copy(dst, p)
	case len(p) == 0:
	case m.Left:
		r.combine(dst, p, r.Bytes(m.A, ch))
	default:
		r.combine(dst, r.Bytes(m.A, ch), p)
	}
}

// compute carries out a move without a peer.
func (r *Execution) compute(m *move, ch int) {
	dst, a := r.Bytes(m.Dst, ch), r.Bytes(m.A, ch)
	switch {
	case len(dst) == 0:
	case m.Kind == plan.Copy:
		copy(dst, a)
	default:
		r.combine(dst, a, r.Bytes(m.B, ch))
	}
}

// reduce makes dst = a op b, on the goroutine that has brought the last operand,
// which often reads a link for all communicators. If the function ended that goroutine,
// with runtime.Goexit, everything that uses the link would hang. A goroutine for each
// call would cost more than most calls take, and a caller that recovered from a panic
// here would leave its operation without an end. So the process panics.
func (r *Execution) reduce(dst, a, b []byte) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			panic(v)
		}
		stack := debug.Stack()
		go panic(fmt.Sprintf("engine: the reduction function has ended a goroutine of the engine, with runtime.Goexit, as FailNow of a test does:\n\n%s", stack))
		select {} // until the process has ended
	}()
	r.work.Reduce(dst, a, b)
	returned = true
}
