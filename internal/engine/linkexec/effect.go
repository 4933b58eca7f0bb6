package linkexec

import (
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/wire"
)

// The kinds of effects.
const (
	nothing  uint8 = iota
	resume         // see which moves can be made
	send           // a step with its payload
	offer          // a step; its payload waits for a grant
	grant          // a step may be sent
	push           // payloads that were granted
	receive        // the payload of a frame is used
	compute        // a move without a peer
	launch         // a move of a device
	complete       // the operation has completed
)

// An effect is an action that a transition of an operation leaves to be done without the
// lock.
type effect struct {
	kind     uint8
	instance int32
	channel  int32
	move     *move
	link     *link.Link
	frame    *exec.Frame // to be released, and received if kind is receive
	grant    uint64
}

// carryOut performs an effect, and those that follow from it. It is the only place from
// which an operation sends frames and touches buffers. It reports whether the operation has
// completed; it belongs to its caller again once that is awake.
func (r *Execution) carryOut(e effect) (completed bool) {
	for e.kind != nothing && e.kind != complete {
		r.perform(&e)
		r.executor.mu.Lock()
		e = r.nextLocked(&e)
		r.executor.mu.Unlock()
	}
	return e.kind == complete
}

func (r *Execution) perform(e *effect) {
	m, ch := e.move, int(e.channel)
	switch e.kind {
	case send:
		e.link.SendStep(r.step(m, ch), r.Bytes(m.A, ch))
	case offer:
		e.link.OfferStep(r.step(m, ch))
	case grant:
		s := r.step(m, ch)
		s.Grant = e.grant
		e.link.GrantStep(s)
	case push:
		e.link.Push()
	case receive:
		r.compute(m, ch, e.frame.Payload)
		e.frame.ReturnCredit()
	case compute:
		r.compute(m, ch, nil)
	case launch:
		r.launch(int(e.instance))
	}
}

// nextLocked notes that e has been performed and returns the next effect. It makes the moves
// that have become ready, then pushes the granted payloads, and completes the operation after the
// last move.
func (r *Execution) nextLocked(e *effect) effect {
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
		return effect{kind: push, link: l}
	}
	r.busy--
	switch {
	case r.stopped:
		r.executor.idle.Broadcast()
	case r.busy == 0 && r.remaining == 0:
		r.op.CompleteLocked()
		r.Vectors.Release()
		r.device = nil
		return effect{kind: complete}
	}
	return effect{}
}

// performedLocked finishes the move of an effect, if the effect was all of it.
func (r *Execution) performedLocked(e *effect) {
	switch e.kind {
	case send:
		r.moved += int64(r.Length(e.move.A, int(e.channel)))
	case receive:
		r.moved += int64(len(e.frame.Payload))
		r.received += int64(len(e.frame.Payload))
	}
	if e.frame != nil {
		e.frame.ReleaseLocked()
	}
	switch e.kind {
	case send, receive, compute:
		r.finishLocked(int(e.instance))
	}
}

// finishLocked marks an instance as done. Instances that depended on no other become ready.
func (r *Execution) finishLocked(i int) {
	g := r.program
	r.instances[i].state |= done
	r.remaining--
	base := i / len(g.moves) * len(g.moves)
	for _, m := range g.moves[i-base].next {
		s := &r.instances[base+int(m)]
		if s.waits--; s.waits == 0 {
			r.ready = append(r.ready, int32(base)+m)
		}
	}
}

// makeLocked makes a move that depends on no other move, as far as possible. A move that no
// longer depends on its peer is marked as done before it is carried out, so that the peer
// may leave.
func (r *Execution) makeLocked(i int) effect {
	s, m := &r.instances[i], r.move(i)
	e := effect{instance: int32(i), channel: int32(i / len(r.program.moves)), move: m}
	s.state |= ready
	switch {
	case m.Kind == plan.Send:
		r.sendLocked(&e)
	case m.Kind == plan.Recv || m.Kind == plan.Reduce:
		switch {
		case s.frame != nil:
			e.kind, e.frame = receive, s.frame
			s.frame = nil
			s.state |= done
		case s.state&wanted != 0 || r.Length(m.Dst, int(e.channel)) > r.executor.eagerMax:
			r.grantLocked(&e)
		}
	case r.device != nil && r.Length(m.Dst, int(e.channel)) > 0:
		r.launchLocked(&e)
	default:
		e.kind = compute
	}
	return e
}

// sendLocked sends a payload that is granted, or short enough for the peer's credit. The
// grant of a payload longer than eagerMax comes without an offer. One longer than link.PromptMax is offered if it can be written remotely.
func (r *Execution) sendLocked(e *effect) {
	s := &r.instances[e.instance]
	e.link = r.executor.links[e.move.Peer]
	n := r.Length(e.move.A, int(e.channel))
	switch {
	case s.state&granted != 0:
		r.deliverLocked(e)
	case n > r.executor.eagerMax: // It waits for the grant. The peer sends it without a request.
		e.link.OpenBulk()
	case (n <= link.PromptMax || !e.link.SuitsRemote(r.Bytes(e.move.A, int(e.channel)))) && e.link.Credit().Take(wire.Collectives, n):
		s.state |= done
		e.kind = send
	default:
		s.state |= wanted
		e.kind = offer
	}
}

// deliverLocked gives a granted payload to its link, which sends it when it is pushed.
func (r *Execution) deliverLocked(e *effect) {
	if len(r.transfers) < len(r.instances) {
		r.transfers = make([]link.Transfer, len(r.instances))
	}
	t := &r.transfers[e.instance]
	t.Grant, t.Data, t.Owner = r.instances[e.instance].grant, r.Bytes(e.move.A, int(e.channel)), r
	t.Move, t.Channel, t.Fetch, t.Stale = int(e.instance), int(e.channel), nil, false
	if r.device != nil {
		r.deliverDevice(t, t.Data)
	}
	e.link.Deliver(t)
	if !slices.Contains(r.pushes, e.link) {
		r.pushes = append(r.pushes, e.link)
	}
}

// grantLocked lets the peer send the payload of a move.
func (r *Execution) grantLocked(e *effect) {
	if len(r.sinks) < len(r.instances) {
		r.sinks = make([]link.Sink, len(r.instances))
	}
	m, ch := e.move, int(e.channel)
	s := &r.sinks[e.instance]
	*s = link.Sink{Dst: r.Bytes(m.Dst, ch), Elem: r.Elem, Owner: r, Move: int(e.instance), Channel: ch}
	if r.device != nil {
		r.sinkDevice(s, m)
	} else if m.Kind == plan.Reduce {
		s.Reduce, s.A, s.Left = r.fill, r.Bytes(m.A, ch), m.Left
	}
	r.instances[e.instance].state |= granted
	e.kind, e.link = grant, r.executor.links[m.Peer]
	e.grant = e.link.Grant(s)
}

// Delivered implements the owner of a [link.Transfer]: the move of the transfer is done.
func (r *Execution) Delivered(t *link.Transfer) { r.transferred(t.Move, len(t.Data), t, nil) }

// Filled implements the owner of a [link.Sink]: the move of the sink is done.
func (r *Execution) Filled(s *link.Sink) { r.transferred(s.Move, len(s.Dst), nil, s) }

// transferred ends a move after the transfer of its payload.
func (r *Execution) transferred(instance, bytes int, t *link.Transfer, s *link.Sink) {
	r.executor.mu.Lock()
	if r.stopped {
		r.executor.mu.Unlock()
		return
	}
	if t != nil {
		t.Owner, t.Data, t.Fetch = nil, nil, nil
	} else {
		*s = link.Sink{}
		r.received += int64(bytes)
	}
	r.busy++
	r.moved += int64(bytes)
	if s != nil && r.device != nil && r.move(instance).Kind == plan.Reduce {
		r.instances[instance].state |= done // Its peer may leave.
		r.launches++
		r.executor.mu.Unlock()
		r.launch(instance)
		return
	}
	r.finishLocked(instance)
	e := r.nextLocked(&effect{kind: resume})
	r.executor.mu.Unlock()
	if r.carryOut(e) {
		r.op.Wake()
	}
}

func (r *Execution) step(m *move, ch int) wire.Step {
	return wire.Step{Call: *r.call, Channel: uint16(ch), Index: m.index}
}

// compute copies or combines the operands of a move. One may be the payload of a frame.
func (r *Execution) compute(m *move, ch int, payload []byte) {
	dst := r.Bytes(m.Dst, ch)
	if len(dst) == 0 {
		return
	}
	switch m.Kind {
	case plan.Recv:
		copy(dst, payload)
	case plan.Copy:
		copy(dst, r.Bytes(m.A, ch))
	case plan.Combine:
		r.combine(dst, r.Bytes(m.A, ch), r.Bytes(m.B, ch))
	case plan.Reduce:
		a, b := r.Bytes(m.A, ch), payload
		if m.Left {
			a, b = b, a
		}
		r.combine(dst, a, b)
	}
}

// reducePiece is reduce for a piece of a granted payload, on the goroutine that reads it.
func (r *Execution) reducePiece(dst, a, b []byte) {
	r.filling.Add(1)
	r.reduce(dst, a, b)
	r.filling.Add(-1)
}

// reduce makes dst = a op b. It runs on the goroutine that has brought the last operand,
// often one that reads a link for all communicators. If the function ended that goroutine by
// runtime.Goexit, all users of the link would block forever. A goroutine for each call would
// cost more than most calls take, and a caller that recovered from a panic here would leave
// its operation unfinished. So the process panics.
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
		go panic(fmt.Sprintf("engine: the reduction function has ended a goroutine of the engine by runtime.Goexit, which FailNow of a test calls:\n\n%s", stack))
		select {} // until the process has ended
	}()
	r.work.Reduce(dst, a, b)
	returned = true
}
