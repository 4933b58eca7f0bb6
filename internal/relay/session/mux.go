package session

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/relay/forward"
	"github.com/nexar-go/nexar/transport"
)

const (
	// PipeWindow is the number of bytes of a pipe that the receiver buffers.
	PipeWindow = 256 << 10
	// PipesMax is the maximum number of pipes that a side has opened and the peer has not
	// finished reading.
	PipesMax = 256
	// sendBuffer is the number of bytes of a pipe that the sender buffers.
	sendBuffer = 64 << 10
	// creditStep is the number of consumed bytes that makes a reader return credit.
	creditStep = PipeWindow / 4
)

// The plaintext of a Data frame is a sequence of records: a type, the number of a pipe, and a count,
// which for recordData is the number of bytes that follow.
const (
	recordOpen   = iota + 1 // opens a pipe; the sides number their pipes independently
	recordData              // bytes of a pipe
	recordEnd               // the end of a pipe
	recordCredit            // count more bytes of a pipe of the peer may be sent
	recordStop              // a pipe of the peer has been read to its end, or is not read any more
	recordClose             // the end of the session

	recordSize = 1 + 4 + 4
	plainMax   = forward.PayloadMax - tagSize
)

// A record is one without data.
type record struct {
	kind  byte
	pipe  uint32
	count uint32
}

func (r record) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(append(b, r.kind), r.pipe)
	return binary.BigEndian.AppendUint32(b, r.count)
}

// An Outgoing is the sending end of a pipe.
type Outgoing struct {
	// Notify, if not nil, is called when Write may accept more or the pipe has ended. It must not
	// call the Session.
	Notify func()
	// Priority makes the session send the bytes of this pipe before those of others.
	Priority bool

	id      uint32
	buf     []byte
	credit  int
	queued  bool // in mux.ready
	ending  bool // End was called
	ended   bool // its record is queued
	stopped bool // the peer does not read it
}

// Stopped reports whether the peer has closed the reading end.
func (p *Outgoing) Stopped() bool { return p.stopped }

// An Incoming is the receiving end of a pipe.
type Incoming struct {
	// Notify, if not nil, is called when there are bytes to read or the pipe has ended. It must not
	// call the Session.
	Notify func()

	id      uint32
	chunks  [][]byte
	unread  int
	owed    int  // consumed bytes without returned credit
	ended   bool // no byte follows
	stopped bool
}

// Ended reports whether all bytes of the pipe have been consumed.
func (p *Incoming) Ended() bool { return p.ended && p.unread == 0 }

// mux has the pipes of a session.
type mux struct {
	opened    uint32 // number of pipes that this side has opened
	outgoing  map[uint32]*Outgoing
	accepted  uint32 // number of pipes that the peer has opened
	incoming  map[uint32]*Incoming
	backlog   []*Incoming // not accepted
	records   []record    // to be sent
	ready     []*Outgoing // have bytes and credit, and take turns
	closeSent bool
}

func (m *mux) init() {
	m.outgoing, m.incoming = make(map[uint32]*Outgoing), make(map[uint32]*Incoming)
}

// discard drops all bytes and wakes the users of all pipes. If the session was not closed by the
// peer, only its end is still to be sent.
func (m *mux) discard() {
	m.records = append(m.records[:0], record{kind: recordClose})
	m.ready, m.backlog = nil, nil
	for _, p := range m.outgoing {
		p.buf = nil
		call(p.Notify)
	}
	for _, p := range m.incoming {
		p.chunks, p.unread = nil, 0
		call(p.Notify)
	}
}

func call(f func()) {
	if f != nil {
		f()
	}
}

// Open opens a pipe. It returns nil if PipesMax are open.
func (s *Session) Open(now time.Time) *Outgoing {
	if s.state != stateOpen || len(s.mux.outgoing) >= PipesMax {
		return nil
	}
	p := &Outgoing{id: s.mux.opened, credit: PipeWindow}
	s.mux.opened++
	s.mux.outgoing[p.id] = p
	s.mux.records = append(s.mux.records, record{kind: recordOpen, pipe: p.id})
	s.pump(now)
	return p
}

// Room returns the number of bytes that Write accepts.
func (s *Session) Room(p *Outgoing) int {
	if s.state != stateOpen || p.ending || p.stopped {
		return 0
	}
	return sendBuffer - len(p.buf)
}

// Write appends bytes to a pipe and returns how many it has accepted. These reach the reader unless
// the session ends or the reader stops.
func (s *Session) Write(now time.Time, p *Outgoing, b []byte) int {
	n := min(len(b), s.Room(p))
	if n == 0 {
		return 0
	}
	p.buf = append(p.buf, b[:n]...)
	s.mux.enqueue(p)
	s.pump(now)
	return n
}

// End ends a pipe after the bytes that were written.
func (s *Session) End(now time.Time, p *Outgoing) {
	if p.ending {
		return
	}
	p.ending = true
	s.mux.finish(p)
	s.pump(now)
}

// enqueue lets a pipe take turns.
func (m *mux) enqueue(p *Outgoing) {
	if p.queued || p.stopped || len(p.buf) == 0 || p.credit == 0 {
		return
	}
	p.queued = true
	at := len(m.ready)
	if p.Priority {
		at = 0
		for at < len(m.ready) && m.ready[at].Priority {
			at++
		}
	}
	m.ready = slices.Insert(m.ready, at, p)
}

// finish queues the end of a pipe when all its bytes have been sent.
func (m *mux) finish(p *Outgoing) {
	if p.ending && !p.ended && !p.stopped && len(p.buf) == 0 {
		p.ended = true
		m.records = append(m.records, record{kind: recordEnd, pipe: p.id})
	}
}

// AcceptPipe returns the next pipe that the peer has opened, or nil.
func (s *Session) AcceptPipe() *Incoming {
	if len(s.mux.backlog) == 0 || s.state != stateOpen {
		return nil
	}
	p := s.mux.backlog[0]
	s.mux.backlog = s.mux.backlog[1:]
	return p
}

// Peek returns bytes of a pipe: at most limit, and none if no byte has arrived. They are valid until
// Consume.
func (s *Session) Peek(p *Incoming, limit int) []byte {
	if len(p.chunks) == 0 {
		return nil
	}
	return p.chunks[0][:min(limit, len(p.chunks[0]))]
}

// Consume removes bytes that Peek has returned. The bytes of an ended session are gone already.
func (s *Session) Consume(now time.Time, p *Incoming, n int) {
	if len(p.chunks) == 0 {
		return
	}
	p.chunks[0] = p.chunks[0][n:]
	if len(p.chunks[0]) == 0 {
		p.chunks[0] = nil
		p.chunks = p.chunks[1:]
	}
	p.unread -= n
	p.owed += n
	switch {
	case p.Ended():
		s.Stop(now, p)
	case p.owed >= creditStep && !p.ended:
		s.mux.records = append(s.mux.records, record{recordCredit, p.id, uint32(p.owed)})
		p.owed = 0
		s.pump(now)
	}
}

// Stop discards the rest of a pipe and tells the peer. It may be called more than once.
func (s *Session) Stop(now time.Time, p *Incoming) {
	if p.stopped {
		return
	}
	p.stopped = true
	p.chunks, p.unread = nil, 0
	delete(s.mux.incoming, p.id)
	if s.state == stateOpen {
		s.mux.records = append(s.mux.records, record{kind: recordStop, pipe: p.id})
		s.pump(now)
	}
}

// pump sends records as long as the window permits.
func (s *Session) pump(now time.Time) {
	if s.state != stateOpen && s.state != stateClosing {
		return
	}
	for s.out.hasRoom() {
		plain := s.mux.next()
		if plain == nil {
			return
		}
		f := s.frame(forward.Data, s.out.next())
		s.keys.sealData.seal(&f, plain)
		if len(s.out.frames) == 0 {
			s.progress = now
		}
		s.out.add(now, f)
		s.emit(f)
		s.stats.Sent++
		if s.resendAt.IsZero() {
			s.restart(now)
		}
	}
}

// next returns the plaintext of the next frame, with room for the tag, or nil.
func (m *mux) next() []byte {
	size := recordSize * len(m.records)
	for _, p := range m.ready {
		size += recordSize + min(len(p.buf), p.credit)
	}
	if size == 0 {
		return nil
	}
	b := make([]byte, 0, min(size, plainMax)+tagSize)
	sent := 0
	for _, r := range m.records {
		if len(b)+recordSize > plainMax {
			break
		}
		b = r.append(b)
		m.closeSent = m.closeSent || r.kind == recordClose
		sent++
	}
	m.records = slices.Delete(m.records, 0, sent)
	for len(m.ready) > 0 && len(b)+recordSize < plainMax {
		p := m.ready[0]
		m.ready = slices.Delete(m.ready, 0, 1)
		p.queued = false
		n := min(len(p.buf), p.credit, plainMax-recordSize-len(b))
		b = record{recordData, p.id, uint32(n)}.append(b)
		b = append(b, p.buf[:n]...)
		p.buf = p.buf[:copy(p.buf, p.buf[n:])]
		p.credit -= n
		m.enqueue(p)
		m.finish(p)
		call(p.Notify)
	}
	return b
}

// handle handles the records of a frame.
func (s *Session) handle(now time.Time, b []byte) {
	for len(b) > 0 && (s.state == stateOpen || s.state == stateClosing) {
		if len(b) < recordSize {
			s.violated(now, "%d bytes after the last record of a frame", len(b))
			return
		}
		r := record{b[0], binary.BigEndian.Uint32(b[1:]), binary.BigEndian.Uint32(b[5:])}
		b = b[recordSize:]
		var data []byte
		if r.kind == recordData {
			if uint64(r.count) > uint64(len(b)) || r.count == 0 {
				s.violated(now, "a record of %d bytes of data in a frame with %d", r.count, len(b))
				return
			}
			data, b = b[:r.count], b[r.count:]
		}
		if s.state == stateOpen || r.kind == recordClose { // A peer that closes as well may be gone before it acknowledges.
			s.handleRecord(now, r, data)
		}
	}
}

func (s *Session) handleRecord(now time.Time, r record, data []byte) {
	switch m := &s.mux; r.kind {
	case recordOpen:
		if r.pipe != m.accepted || len(m.incoming) >= PipesMax {
			s.violated(now, "it opens pipe %d, expected %d with at most %d open, have %d", r.pipe, m.accepted, PipesMax, len(m.incoming))
			return
		}
		p := &Incoming{id: r.pipe}
		m.accepted++
		m.incoming[p.id] = p
		m.backlog = append(m.backlog, p)
		s.notify()
	case recordData, recordEnd:
		p := m.incoming[r.pipe]
		switch {
		case r.pipe >= m.accepted:
			s.violated(now, "data of pipe %d, which is not open", r.pipe)
		case p == nil: // This side has stopped reading.
		case p.ended || p.unread+len(data) > PipeWindow-p.owed:
			s.violated(now, "%d bytes of pipe %d, which has %d unread ones and is ended: %v", len(data), r.pipe, p.unread, p.ended)
		case r.kind == recordEnd:
			p.ended = true
			if p.unread == 0 {
				s.Stop(now, p)
			}
			call(p.Notify)
		default:
			p.chunks = append(p.chunks, data)
			p.unread += len(data)
			call(p.Notify)
		}
	case recordCredit:
		p := m.outgoing[r.pipe]
		switch {
		case r.pipe >= m.opened || r.count > PipeWindow || p != nil && p.credit+int(r.count) > PipeWindow:
			s.violated(now, "credit of %d bytes for pipe %d", r.count, r.pipe)
		case p != nil:
			p.credit += int(r.count)
			m.enqueue(p)
		}
	case recordStop:
		p := m.outgoing[r.pipe]
		switch {
		case r.pipe >= m.opened:
			s.violated(now, "the end of pipe %d, which is not open", r.pipe)
		case p != nil:
			p.stopped, p.buf = true, nil
			m.ready = slices.DeleteFunc(m.ready, func(q *Outgoing) bool { return q == p })
			delete(m.outgoing, p.id)
			call(p.Notify)
			s.notify()
		}
	case recordClose:
		s.end(now, fmt.Errorf("relay: session with %v: %w", s.cfg.Peer, transport.ErrPeerClosed))
	default:
		s.violated(now, "a record of type %d", r.kind)
	}
}

// violated ends the session because the peer violates the protocol.
func (s *Session) violated(now time.Time, format string, args ...any) {
	s.end(now, fmt.Errorf("relay: %w: node %v violates the protocol: %s", transport.ErrPeerGone, s.cfg.Peer, fmt.Sprintf(format, args...)))
}
