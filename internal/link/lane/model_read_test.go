package lane

import (
	"encoding/binary"

	"github.com/nexar-go/nexar/internal/wire"
)

// read reads the next message of a pipe if it is complete, or a part of a segment. It reports whether something has
// happened.
func (w *world) read(e *end, pipe int) bool {
	b := e.in[pipe]
	switch {
	case len(b) == 0:
		return false
	case pipe >= bulkPipe:
		return e.reading && w.readBulk(e, pipe)
	case e.reading:
		return w.readFrame(e, pipe, b)
	case pipe > 0 || e.dead:
		return false // The reader has stopped, or waits for the connection to be used.
	case e.phase == fresh || e.phase == stated:
		return w.readOpening(e, b)
	case e.phase == accepted && b[0] == frameBeat: // the confirmation
		e.in[0] = b[1:]
		w.bind(e.of.link, e)
		return true
	}
	return false
}

func (w *world) readOpening(e *end, b []byte) bool {
	r, n := parseOpening(b)
	if n == 0 {
		return false
	}
	e.in[0], e.theirs = b[n:], r
	if e.phase == fresh {
		e.phase = arrived
		return true
	}
	l := e.of.link
	hasEnded, err := l.session.Check(&r)
	switch {
	case err != nil:
		if w.lose(e); hasEnded {
			w.hasEnded(l, err)
		}
	case w.bind(l, e):
		w.put(e, 0, []byte{frameBeat})
	}
	return true
}

// readFrame reads a frame of a lane.
func (w *world) readFrame(e *end, lane int, b []byte) bool {
	l := e.of.link
	h := &l.lanes[lane]
	switch b[0] {
	case frameBeat:
		e.in[lane] = b[1:]
		return true
	case frameAck, frameFinished:
		if len(b) < 9 {
			return false
		}
		e.in[lane] = b[9:]
		v := binary.LittleEndian.Uint64(b[1:])
		if b[0] == frameAck {
			w.must(h.out.Ack(v))
			w.checkEnd(l)
		} else {
			t, err := l.transfers.Finished(v)
			if w.must(err); t != nil {
				w.delivered(l, t)
			}
		}
		return true
	case frameNote, frameAnnounce, frameBye:
	default:
		w.failf("a frame of type %d: the lane is out of step", b[0])
		return false
	}
	if len(b) < numberedHead+2 {
		return false
	}
	n := numberedHead + 2 + int(binary.LittleEndian.Uint16(b[numberedHead:]))
	if len(b) < n {
		return false
	}
	e.in[lane] = b[n:]
	from := wire.LinkID{Process: binary.LittleEndian.Uint64(b[1:]), Link: binary.LittleEndian.Uint64(b[9:])}
	seq := int(binary.LittleEndian.Uint16(b[17:]))
	sender := w.truth[from]
	if sender == nil {
		w.failf("a frame of %v: the lane is out of step", from)
		return false
	}
	if sender.handler == (wire.LinkID{}) {
		sender.handler = l.session.Self
	}
	if sender.handler != l.session.Self {
		w.failf("%v handles a frame of %v, whose frames %v has handled", l.session.Self, from, sender.handler)
	}
	if from != l.session.Peer {
		w.failf("%v handles a frame of %v, and its peer is %v", l.session.Self, from, l.session.Peer)
	}
	if seq != sender.handled[lane] {
		w.failf("frame %d of lane %d of %v is handled, want %d", seq, lane, from, sender.handled[lane])
	}
	sender.handled[lane]++
	h.in.Handled(n)
	body := b[numberedHead+2 : n]
	switch b[0] {
	case frameAnnounce:
		l.announced = append(l.announced, announcement{uint64(body[0]), int(body[1])})
	case frameBye:
		w.must(h.out.Ack(binary.LittleEndian.Uint64(body)))
		l.ack(lane)
		sender.byes++
		if l.byes++; l.byes == 2 {
			w.checkAll(sender)
			w.endLink(l, nil)
		}
	}
	return true
}

// checkEnd ends a link that has said goodbye when the peer has everything.
func (w *world) checkEnd(l *link) {
	if l.bye && w.isSent(l) {
		w.checkAll(l.truth)
		w.endLink(l, nil)
	}
}

// checkAll checks that all frames of a link were handled.
func (w *world) checkAll(t *truth) {
	if t.sent != t.handled {
		w.failf("a link ends with %d frames of %d", t.handled, t.sent)
	}
}

// payload returns a byte of the payload for a grant.
func payload(grant uint64, offset int) byte { return byte(grant*31 + uint64(offset)*7 + 1) }

const segmentHeader = 1 + 8 + 8 + 1

// readBulk reads the header of a segment or a part of its payload.
func (w *world) readBulk(e *end, pipe int) bool {
	l, b, s := e.of.link, e.in[pipe], &e.segment[pipe]
	if !s.isSet {
		if len(b) < segmentHeader {
			return false
		}
		if b[0] != frameSegment {
			w.failf("a frame of type %d on a bulk pipe: it is out of step", b[0])
			return false
		}
		s.grant, s.left, s.isSet = binary.LittleEndian.Uint64(b[1:]), int(b[17]), true
		g, err := l.grants.Segment(s.grant, binary.LittleEndian.Uint64(b[9:]), s.left)
		w.must(err)
		if s.sink = nil; g != nil {
			s.sink = g.Of.(*sink)
		}
		e.in[pipe] = b[segmentHeader:]
		return true
	}
	n := min(len(b), s.left)
	if w.rnd != nil {
		n = 1 + w.rnd.IntN(n)
	}
	if k := s.sink; k != nil && !k.withdrawn {
		for i := range n {
			at := k.Got() + i
			k.writes[at]++
			if b[i] != payload(s.grant, at) || k.writes[at] > 1 {
				w.failf("byte %d of grant %d has arrived %d times, and is %#x, want %#x", at, s.grant, k.writes[at], b[i], payload(s.grant, at))
			}
		}
		if l.grants.Arrived(&k.Grant, n) {
			k.filled = true
			l.dropSink(k)
		}
	}
	s.left -= n
	if s.isSet = s.left > 0; !s.isSet && l.grants.Find(s.grant) == nil {
		w.finished(l, s.grant)
	}
	e.in[pipe] = b[n:]
	return true
}
