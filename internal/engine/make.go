package engine

import (
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/wire"
)

// make makes the move of slot i, which waits for no other move, or as much of
// it as can be done now. It is called with the lock held and unlocks while it
// works on buffers. A move that no longer depends on its peer is done before
// that, so that the peer may leave.
func (op *Op) make(i int) {
	c := op.comm
	s, m := &op.slots[i], op.move(i)
	ch := i / len(op.work.Program.moves)
	s.state |= ready
	switch m.Kind {
	case plan.Send:
		op.send(i, m, ch)
	case plan.Recv, plan.Reduce:
		switch h := s.held; {
		case h != nil:
			s.held = nil
			s.state |= done
			c.mu.Unlock()
			op.receive(m, ch, h.payload)
			h.link.Consumed(wire.Collectives, len(h.payload))
			c.mu.Lock()
			op.bytes += int64(len(h.payload))
			c.release(h)
			op.finished(i)
		case s.state&wanted != 0 || op.Length(m.Dst, ch) > c.engine.cfg.EagerMax:
			op.grant(i, m, ch)
		}
	default:
		c.mu.Unlock()
		op.local(m, ch)
		c.mu.Lock()
		op.finished(i)
	}
}

// send sends a payload that is small, or granted. Otherwise the grant will
// come, for a large payload unasked.
func (op *Op) send(i int, m *move, ch int) {
	c, l := op.comm, op.comm.links[m.Peer]
	n := op.Length(m.A, ch)
	switch {
	case n > c.engine.cfg.EagerMax:
		if op.slots[i].state&granted != 0 {
			op.deliver(i, m, ch)
		}
	case l.TakeCredit(wire.Collectives, n):
		op.slots[i].state |= done
		c.mu.Unlock()
		l.SendStep(op.step(m, ch), op.Bytes(m.A, ch))
		c.mu.Lock()
		op.bytes += int64(n)
		op.finished(i)
	default:
		op.slots[i].state |= wanted
		c.mu.Unlock()
		l.OfferStep(op.step(m, ch))
		c.mu.Lock()
	}
}

func (op *Op) step(m *move, ch int) wire.Step {
	return wire.Step{Call: op.call, Channel: uint16(ch), Index: m.index}
}

// deliver sends a granted payload, as soon as leave is called.
func (op *Op) deliver(i int, m *move, ch int) {
	if len(op.transfers) < len(op.slots) {
		op.transfers = make([]link.Transfer, len(op.slots))
	}
	t := &op.transfers[i]
	t.Grant, t.Data, t.Owner, t.Move, t.Channel = op.slots[i].grant, op.Bytes(m.A, ch), op, i, ch
	l := op.comm.links[m.Peer]
	l.Deliver(t)
	if !slices.Contains(op.pushes, l) {
		op.pushes = append(op.pushes, l)
	}
}

// Delivered ends the move of a transfer.
func (op *Op) Delivered(t *link.Transfer) {
	c := op.comm
	c.mu.Lock()
	defer c.mu.Unlock()
	if op.failing {
		return
	}
	op.busy++
	op.bytes += int64(len(t.Data))
	t.Owner, t.Data = nil, nil
	op.finished(t.Move)
	op.leave()
}

// grant allows the peer to send the payload of a receiving move.
func (op *Op) grant(i int, m *move, ch int) {
	if len(op.sinks) < len(op.slots) {
		op.sinks = make([]link.Sink, len(op.slots))
	}
	s := &op.sinks[i]
	*s = link.Sink{Dst: op.Bytes(m.Dst, ch), Elem: op.Elem, Owner: op, Move: i, Channel: ch}
	if m.Kind == plan.Reduce {
		s.Reduce, s.A, s.Left = op.combine, op.Bytes(m.A, ch), m.Left
	}
	op.slots[i].state |= granted
	l := op.comm.links[m.Peer]
	f := op.step(m, ch)
	f.Grant = l.Grant(s)
	op.comm.mu.Unlock()
	l.GrantStep(f)
	op.comm.mu.Lock()
}

// Filled ends the move of a sink.
func (op *Op) Filled(s *link.Sink) {
	c := op.comm
	c.mu.Lock()
	defer c.mu.Unlock()
	if op.failing {
		return
	}
	op.busy++
	op.bytes += int64(len(s.Dst))
	i := s.Move
	*s = link.Sink{}
	op.finished(i)
	op.leave()
}

// receive carries out a receiving move with its whole payload at hand.
func (op *Op) receive(m *move, ch int, p []byte) {
	dst := op.Bytes(m.Dst, ch)
	switch {
	case m.Kind == plan.Recv:
		copy(dst, p)
	case len(p) == 0:
	case m.Left:
		op.combine(dst, p, op.Bytes(m.A, ch))
	default:
		op.combine(dst, op.Bytes(m.A, ch), p)
	}
}

// local carries out a move without a peer.
func (op *Op) local(m *move, ch int) {
	dst, a := op.Bytes(m.Dst, ch), op.Bytes(m.A, ch)
	switch {
	case len(dst) == 0:
	case m.Kind == plan.Copy:
		copy(dst, a)
	default:
		op.combine(dst, a, op.Bytes(m.B, ch))
	}
}

// reduce makes dst = a op b, on the goroutine that has brought the last operand:
// most often one that reads a link for all communicators. If the function ends
// it, with runtime.Goexit, everything that uses the link would wait for ever. A
// goroutine of its own for each call would cost all functions more than many of
// them take, and a panic here could be recovered from by the caller, whose
// operation would not end all the same.
func (op *Op) reduce(dst, a, b []byte) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			panic(v)
		}
		stack := debug.Stack()
		go panic(fmt.Sprintf("engine: the function that combines has ended a goroutine of the engine, with runtime.Goexit, as FailNow of a test does:\n\n%s", stack))
		select {} // until the process has ended
	}()
	op.work.Reduce(dst, a, b)
	returned = true
}
