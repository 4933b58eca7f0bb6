package lane

import "encoding/binary"

// read reads the next message of a pipe if it is complete, or a part of a segment. It reports whether something has
// happened.
func (w *world) read(e *end, pipe int) bool {
	b := e.in[pipe]
	switch {
	case len(b) == 0:
		return false
	case pipe > 0:
		return e.reading && w.readBulk(e, pipe)
	case e.reading:
		return w.readFrame(e, b)
	case b[0] == frameOpening && !e.dead:
		return w.readOpening(e, b)
	}
	return false // The reader has stopped.
}

func (w *world) readOpening(e *end, b []byte) bool {
	o, n := parseOpening(b)
	if n == 0 {
		return false
	}
	e.in[0] = b[n:]
	lane := e.pair.lane
	for range 2 {
		l := e.of.link
		if l == nil {
			for _, t := range e.of.tombs[lane] {
				if answer, ok := t.Answer(&o); ok {
					w.put(e, 0, appendOpening(nil, &answer))
				}
			}
			w.close(e)
			return true
		}
		a, err := l.lanes[lane].session.Received(&e.conn, o)
		w.must(err)
		if a.End == nil || e.conn.Dialed {
			w.apply(l, lane, a)
			return true
		}
		e.of = nil // The next link gets the connection.
		w.apply(l, lane, a)
		if e.of = w.procs[e.side]; w.limits.links > 0 {
			w.limits.links--
			w.newLink(e.side)
		}
	}
	return true
}

// readFrame reads a frame of the main pipe.
func (w *world) readFrame(e *end, b []byte) bool {
	l, lane := e.of.link, e.pair.lane
	h := l.lanes[lane]
	switch b[0] {
	case frameBeat:
		e.in[0] = b[1:]
		return true
	case frameAck, frameFinished:
		if len(b) < 9 {
			return false
		}
		e.in[0] = b[9:]
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
	e.in[0] = b[n:]
	from := ID{binary.LittleEndian.Uint64(b[1:]), binary.LittleEndian.Uint64(b[9:])}
	seq := int(binary.LittleEndian.Uint16(b[17:]))
	sender := w.truth[from]
	if sender == nil {
		w.failf("a frame of %v: the lane is out of step", from)
		return false
	}
	if sender.handler.IsZero() {
		sender.handler = l.names.Self
	}
	if sender.handler != l.names.Self {
		w.failf("%v handles a frame of %v, whose frames %v has handled", l.names.Self, from, sender.handler)
	}
	if from != l.names.Peer {
		w.failf("%v handles a frame of %v, and its peer is %v", l.names.Self, from, l.names.Peer)
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
		} else {
			w.finished(l, s.grant)
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
			w.finished(l, s.grant)
		}
	}
	s.left -= n
	s.isSet = s.left > 0
	e.in[pipe] = b[n:]
	return true
}
