package lane

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// A kind is a kind of step.
type kind uint8

const (
	stepNote kind = iota
	stepGrant
	stepStart
	stepWrite
	stepEndWrite
	stepRead
	stepSegment
	stepEndSegment
	stepStopped
	stepAck
	stepBeat
	stepSee
	stepLink
	stepDial
	stepState
	stepAdmit
	stepBye
	// Faults and changes of the program's mind.
	stepCut
	stepClose
	stepRecall
	stepWithdraw
	stepAbort
	stepTrim
	kinds
)

var kindNames = [kinds]string{
	"note", "grant", "start", "write", "end of write", "read", "segment", "end of segment", "stopped", "ack", "beat", "see end", "new link", "dial", "state",
	"admit", "bye", "cut", "close", "recall", "withdraw", "abort", "trim",
}

// A step is one event of a history. lane and at are its lane, pipe or number, depending on its kind.
type step struct {
	kind     kind
	side, at int8
	keep     [2]int8 // of a cut in an exhaustive search: messages that still arrive at each side
	pair     *pair
}

func (s step) String() string { return fmt.Sprintf("%s(side %d, %d)", kindNames[s.kind], s.side, s.at) }

// steps returns the possible next steps, with faults if faults is set.
func (w *world) steps(faults bool) []step {
	list := w.room[:0]
	add := func(k kind, side, at int, p *pair) {
		list = append(list, step{kind: k, side: int8(side), at: int8(at), pair: p})
	}
	w.conns = slices.DeleteFunc(w.conns, func(p *pair) bool { return p.isOver() })
	for side, p := range w.procs {
		l := p.link
		if l == nil {
			if w.limits.links > 0 {
				add(stepLink, side, 0, nil)
			}
			continue
		}
		if l.halting {
			add(stepStopped, side, 0, nil)
		}
		if w.limits.dials > 0 {
			add(stepDial, side, 0, nil)
		}
		for lane := range l.lanes {
			h := &l.lanes[lane]
			if l.works() && !l.at.holds[lane] && (h.out.written < h.out.end || len(h.out.transient) > 0) {
				add(stepWrite, side, lane, nil)
			}
			if lane == 0 && w.rnd == nil {
				continue // In an exhaustive search one lane has frames.
			}
			if w.limits.frames > 0 && !l.bye {
				add(stepNote, side, lane, nil)
			}
			if w.limits.grants > 0 && !l.bye {
				add(stepGrant, side, lane, nil)
			}
			if l.works() && !h.in.IsStated() {
				add(stepAck, side, lane, nil)
			}
			if faults && w.rnd != nil && l.works() {
				add(stepBeat, side, lane, nil)
			}
			if faults && w.rnd != nil {
				add(stepTrim, side, lane, nil)
			}
		}
		if len(l.announced) > 0 && !l.bye {
			add(stepStart, side, w.upTo(len(l.announced)-1), nil)
		}
		if w.limits.byes > 0 && !l.bye && len(l.active) == 0 {
			add(stepBye, side, 0, nil)
		}
		if l.works() {
			for pipe := bulkPipe; pipe < pipes; pipe++ {
				if l.at.bulk[pipe] == nil && w.nextTransfer(l, l.at, pipe) != nil {
					add(stepSegment, side, pipe, nil)
				}
			}
		}
		if faults && w.limits.faults > 0 {
			add(stepAbort, side, 0, nil)
			if len(l.active) > 0 {
				add(stepRecall, side, w.upTo(len(l.active)-1), nil)
			}
			if len(l.open) > 0 {
				add(stepWithdraw, side, w.upTo(len(l.open)-1), nil)
			}
		}
	}
	for _, p := range w.conns {
		if faults && w.limits.cuts > 0 && !p.cut {
			list = w.cuts(list, p)
		}
		for side, e := range p.ends {
			for pipe, b := range e.in {
				if len(b) > 0 && (e.reading || pipe == 0 && !e.dead && e.phase != arrived && e.phase != begun) {
					add(stepRead, side, pipe, p)
				}
				if e.bulk[pipe] != nil && !e.dead {
					add(stepEndSegment, side, pipe, p)
				}
			}
			if e.dead {
				continue
			}
			if e.phase == begun {
				add(stepState, side, 0, p)
			}
			if e.phase == arrived && e.canAdmit() {
				add(stepAdmit, side, 0, p)
			}
			for lane, holds := range e.holds {
				if holds {
					add(stepEndWrite, side, lane, p)
				}
			}
			if p.cut {
				add(stepSee, side, 0, p)
			} else if faults && w.limits.cuts > 0 {
				add(stepClose, side, 0, p)
			}
		}
	}
	w.room = list
	return list
}

// cuts adds the cuts of a connection: one if it is cut at random, or one for each number of messages that still arrive.
func (w *world) cuts(list []step, p *pair) []step {
	n := [2]int{}
	if w.rnd == nil {
		n = [2]int{len(p.ends[0].messages()), len(p.ends[1].messages())}
	}
	for i := range n[0] + 1 {
		for j := range n[1] + 1 {
			list = append(list, step{kind: stepCut, keep: [2]int8{int8(i), int8(j)}, pair: p})
		}
	}
	return list
}

// messages returns the pipes of the messages on their way to an end, with their ends in the pipe.
func (e *end) messages() (list [][2]int) {
	for pipe, b := range e.in {
		at := 0
		if pipe >= bulkPipe && e.segment[pipe].isSet {
			at = e.segment[pipe].left
			list = append(list, [2]int{pipe, at})
		}
		for at < len(b) {
			at += messageSize(b[at:])
			list = append(list, [2]int{pipe, at})
		}
	}
	return list
}

// messageSize returns the length of the first message of a pipe.
func messageSize(b []byte) int {
	switch b[0] {
	case frameOpening:
		_, n := parseOpening(b)
		return n
	case frameAck, frameFinished:
		return 9
	case frameBeat:
		return 1
	case frameSegment:
		return segmentHeader + int(b[17])
	}
	return numberedHead + 2 + int(binary.LittleEndian.Uint16(b[numberedHead:]))
}

// isOver reports whether nothing happens on a connection any more.
func (p *pair) isOver() bool {
	return p.ends[0].dead && p.ends[1].dead && !p.ends[0].reading && !p.ends[1].reading
}

// nextTransfer returns a transfer whose next segment can go to a pipe.
func (w *world) nextTransfer(l *link, e *end, pipe int) *Transfer {
	for _, t := range l.active {
		u := t.Of.(*usage)
		if t.Sent() < t.size && (u.at != e || u.pipe == pipe) && !slices.Contains(e.bulk[:], t) {
			return t
		}
	}
	return nil
}

// A usage is the pipe of a transfer on a connection.
type usage struct {
	at   *end
	pipe int
}

// do makes a step. It reports whether anything has happened.
func (w *world) do(s step) bool {
	if w.trace != nil {
		w.trace = append(w.trace, s.String())
	}
	side, at := int(s.side), int(s.at)
	l := w.procs[side].link
	switch s.kind {
	case stepNote:
		w.limits.frames--
		size := 0
		if w.rnd != nil {
			if size = w.rnd.IntN(8); w.rnd.IntN(16) == 0 {
				size = w.rnd.IntN(1500)
			}
		}
		w.numbered(l, at, frameNote, make([]byte, size))
	case stepGrant:
		w.limits.grants--
		w.grant(l, at, 1+w.upTo(5))
	case stepStart:
		a := l.announced[at]
		l.announced = slices.Delete(l.announced, at, at+1)
		t := &Transfer{Of: new(usage)}
		w.must(l.transfers.Start(t, a.grant, a.size))
		l.active = append(l.active, t)
	case stepWrite:
		t, n := l.lanes[at].out.Next()
		l.at.write[at] = held{t, n, slices.Concat(t, n)}
		l.at.holds[at] = true
		if w.rnd == nil { // A write is one step.
			w.release(l.at, at, len(t)+len(n), true)
		}
	case stepEndWrite:
		e := s.pair.ends[side]
		w.release(e, at, w.upTo(len(e.write[at].copied)), w.isCurrent(e))
	case stepRead:
		return w.read(s.pair.ends[side], at)
	case stepSegment:
		if w.segment(l, l.at, at); w.rnd == nil {
			w.endSegment(l.at, at)
		}
	case stepEndSegment:
		w.endSegment(s.pair.ends[side], at)
	case stepStopped:
		for _, p := range w.conns {
			if e := p.ends[side]; e.reading {
				e.reading, e.in = false, [pipes][]byte{}
			}
		}
		l.at, l.halting = nil, false
		l.session.End()
	case stepAck:
		l.ack(at)
	case stepBeat:
		l.transient(at, []byte{frameBeat})
	case stepSee, stepClose:
		w.lose(s.pair.ends[side])
	case stepLink:
		w.limits.links--
		w.newLink(side)
	case stepDial:
		w.limits.dials--
		w.dial(side)
	case stepState:
		e := s.pair.ends[side]
		w.state(l, e)
		e.phase = stated
	case stepAdmit:
		w.admit(s.pair.ends[side])
	case stepBye:
		w.limits.byes--
		w.bye(l)
	case stepCut:
		w.limits.cuts--
		w.cut(s.pair, s.keep)
	case stepRecall:
		w.limits.faults--
		w.recall(l, l.active[at])
	case stepWithdraw:
		w.limits.faults--
		w.withdraw(l, l.open[at])
	case stepAbort:
		w.limits.faults--
		w.endLink(l, nil)
	case stepTrim:
		l.lanes[at].out.Trim()
	}
	return true
}

// isCurrent reports whether the link uses an end.
func (w *world) isCurrent(e *end) bool {
	l := e.of.link
	return l != nil && l.at == e && !e.dead
}

// cut cuts a connection: the bytes on their way arrive up to any byte.
func (w *world) cut(p *pair, keep [2]int8) {
	p.cut = true
	for side, e := range p.ends {
		var n [pipes]int
		if w.rnd == nil {
			for _, m := range e.messages()[:keep[side]] {
				n[m[0]] = m[1]
			}
		}
		for pipe, b := range e.in {
			if w.rnd != nil {
				n[pipe] = w.rnd.IntN(len(b) + 1)
			}
			e.in[pipe] = b[:n[pipe]]
		}
	}
}

// bye says goodbye on both lanes.
func (w *world) bye(l *link) {
	l.bye = true
	for lane := range l.lanes {
		w.numbered(l, lane, frameBye, binary.LittleEndian.AppendUint64(nil, l.lanes[lane].in.State()))
	}
}

// recall recalls a transfer.
func (w *world) recall(l *link, t *Transfer) {
	if !l.transfers.Recall(t) {
		w.failf("a transfer that is not delivered was not there")
	}
	l.active = slices.DeleteFunc(l.active, func(other *Transfer) bool { return other == t })
	if s := w.truth[l.session.Peer].sinks[t.grant]; s != nil {
		s.recalled = true
	}
}

// segment begins to write a segment of a transfer on a bulk pipe.
func (w *world) segment(l *link, e *end, pipe int) {
	t := w.nextTransfer(l, e, pipe)
	*t.Of.(*usage) = usage{e, pipe}
	offset, n := t.Next(1 + w.upTo(3))
	b := append(make([]byte, 0, segmentHeader+n), frameSegment)
	b = binary.LittleEndian.AppendUint64(b, t.grant)
	b = binary.LittleEndian.AppendUint64(b, uint64(offset))
	b = append(b, byte(n))
	for i := range n {
		b = append(b, payload(t.grant, offset+i))
	}
	w.put(e, pipe, b)
	e.bulk[pipe], e.wrote[pipe] = t, n
}

// endSegment returns from the write of a segment.
func (w *world) endSegment(e *end, pipe int) {
	t := e.bulk[pipe]
	e.bulk[pipe] = nil
	if w.isCurrent(e) {
		t.Wrote(e.wrote[pipe])
	}
}
