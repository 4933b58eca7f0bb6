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
	// finished reading. A link has three.
	PipesMax = 16
	// sendBuffer is the number of bytes of a pipe that the sender buffers.
	sendBuffer = 64 << 10
	// creditStep is the number of consumed bytes that makes a reader return credit.
	creditStep = PipeWindow / 4
	// chunkMin is the least capacity of a chunk of unread bytes.
	chunkMin = 512
)

// The plaintext of a Data frame is a sequence of items: a type, the number of a pipe, and a count,
// which for itemData is the number of bytes that follow.
const (
	itemOpen   = iota + 1 // opens a pipe; the sides number their pipes independently
	itemData              // bytes of a pipe
	itemEnd               // the end of a pipe
	itemCredit            // count more bytes of a pipe of the peer may be sent
	itemStop              // a pipe of the peer has been read to its end, or is not read any more
	itemClose             // the end of the session

	itemSize = 1 + 4 + 4
	plainMax = forward.PayloadMax - tagSize
)

// An item is the header of an item in a frame. Its data, if it has any, follows.
type item struct {
	kind  byte
	pipe  uint32
	count uint32
}

func (r item) append(b []byte) []byte {
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
	ended   bool // its item is queued
	stopped bool // the peer does not read it
}

// Stopped reports whether the peer has closed the reading end.
func (p *Outgoing) Stopped() bool { return p.stopped }

// An Incoming is the receiving end of a pipe.
type Incoming struct {
	// Notify, if not nil, is called when there are bytes to read or the pipe has ended. It must not
	// call the Session.
	Notify func()

	id       uint32
	chunks   [][]byte
	unread   int
	owed     int  // consumed bytes without returned credit
	accepted bool // AcceptPipe has returned it
	ended    bool // no byte follows
	stopped  bool
}

// Ended reports whether all bytes of the pipe have been consumed.
func (p *Incoming) Ended() bool { return p.ended && p.unread == 0 }

// add copies bytes of a frame: a slice of it would keep the whole frame in memory. They go into the last chunk if they fit there, so the
// capacity of all chunks is at most twice the number of unread bytes, and that of the first and the last.
func (p *Incoming) add(data []byte) {
	p.unread += len(data)
	if last := len(p.chunks) - 1; last >= 0 && len(data) <= cap(p.chunks[last])-len(p.chunks[last]) {
		p.chunks[last] = append(p.chunks[last], data...)
		return
	}
	p.chunks = append(p.chunks, append(make([]byte, 0, max(len(data), chunkMin)), data...))
}

// mux has the pipes of a session.
type mux struct {
	opened    uint32 // number of pipes that this side has opened
	outgoing  map[uint32]*Outgoing
	accepted  uint32 // number of pipes that the peer has opened
	incoming  map[uint32]*Incoming
	backlog   []*Incoming // not accepted
	items     []item      // to be sent
	ready     []*Outgoing // have bytes and credit, and take turns
	closeSent bool
}

func (m *mux) init() {
	m.outgoing, m.incoming = make(map[uint32]*Outgoing), make(map[uint32]*Incoming)
}

// discard drops all bytes and wakes the users of all pipes. If the session was not closed by the
// peer, only its end is still to be sent.
func (m *mux) discard() {
	m.items = append(m.items[:0], item{kind: itemClose})
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
	s.mux.items = append(s.mux.items, item{kind: itemOpen, pipe: p.id})
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
		m.items = append(m.items, item{kind: itemEnd, pipe: p.id})
	}
}

// AcceptPipe returns the next pipe that the peer has opened, or nil. A pipe that nobody accepts counts as open, although it has ended.
func (s *Session) AcceptPipe(now time.Time) *Incoming {
	if len(s.mux.backlog) == 0 || s.state != stateOpen {
		return nil
	}
	p := s.mux.backlog[0]
	s.mux.backlog = s.mux.backlog[1:]
	p.accepted = true
	if p.Ended() {
		s.Stop(now, p)
	}
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
		s.mux.items = append(s.mux.items, item{itemCredit, p.id, uint32(p.owed)})
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
	if s.state == stateOpen {
		s.mux.items = append(s.mux.items, item{kind: itemStop, pipe: p.id})
		s.pump(now)
	}
}

// pump sends items as long as the window permits.
func (s *Session) pump(now time.Time) {
	if s.state != stateOpen && s.state != stateClosing {
		return
	}
	for s.out.hasRoom() {
		plain := s.mux.next()
		if plain == nil {
			return
		}
		s.sendData(now, plain)
		s.probeAt = now.Add(s.cfg.Silence)
	}
}

// sendData sends a Data frame with a plaintext that has room for the tag.
func (s *Session) sendData(now time.Time, plain []byte) {
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

// next returns the plaintext of the next frame, with room for the tag, or nil.
func (m *mux) next() []byte {
	size := itemSize * len(m.items)
	for _, p := range m.ready {
		size += itemSize + min(len(p.buf), p.credit)
	}
	if size == 0 {
		return nil
	}
	b := make([]byte, 0, min(size, plainMax)+tagSize)
	sent := 0
	for _, r := range m.items {
		if len(b)+itemSize > plainMax {
			break
		}
		b = r.append(b)
		switch r.kind {
		case itemStop:
			delete(m.incoming, r.pipe)
		case itemClose:
			m.closeSent = true
		}
		sent++
	}
	m.items = slices.Delete(m.items, 0, sent)
	for len(m.ready) > 0 && len(b)+itemSize < plainMax {
		p := m.ready[0]
		m.ready = slices.Delete(m.ready, 0, 1)
		p.queued = false
		n := min(len(p.buf), p.credit, plainMax-itemSize-len(b))
		b = item{itemData, p.id, uint32(n)}.append(b)
		b = append(b, p.buf[:n]...)
		p.buf = p.buf[:copy(p.buf, p.buf[n:])]
		p.credit -= n
		m.enqueue(p)
		m.finish(p)
		call(p.Notify)
	}
	return b
}

// handle processes the items of a Data frame, while the session is open or closing. Malformed items end the session.
func (s *Session) handle(now time.Time, b []byte) {
	for len(b) > 0 && (s.state == stateOpen || s.state == stateClosing) {
		if len(b) < itemSize {
			s.violated(now, "%d bytes after the last item of a frame", len(b))
			return
		}
		r := item{b[0], binary.BigEndian.Uint32(b[1:]), binary.BigEndian.Uint32(b[5:])}
		b = b[itemSize:]
		var data []byte
		if r.kind == itemData {
			if uint64(r.count) > uint64(len(b)) || r.count == 0 {
				s.violated(now, "an item of %d bytes of data in a frame with %d", r.count, len(b))
				return
			}
			data, b = b[:r.count], b[r.count:]
		}
		if s.state == stateOpen || r.kind == itemClose { // A peer that closes as well may be gone before it acknowledges.
			s.handleItem(now, r, data)
		}
	}
}

func (s *Session) handleItem(now time.Time, r item, data []byte) {
	switch m := &s.mux; r.kind {
	case itemOpen:
		if r.pipe != m.accepted || len(m.incoming) >= PipesMax {
			s.violated(now, "it opens pipe %d, expected %d with at most %d open, have %d", r.pipe, m.accepted, PipesMax, len(m.incoming))
			return
		}
		p := &Incoming{id: r.pipe}
		m.accepted++
		m.incoming[p.id] = p
		m.backlog = append(m.backlog, p)
		s.notify()
	case itemData, itemEnd:
		p := m.incoming[r.pipe]
		switch {
		case r.pipe >= m.accepted:
			s.violated(now, "data of pipe %d, which is not open", r.pipe)
		case p == nil || p.stopped: // This side does not read it.
		case p.ended || p.unread+len(data) > PipeWindow-p.owed:
			s.violated(now, "%d bytes of pipe %d, which has %d unread ones and is ended: %v", len(data), r.pipe, p.unread, p.ended)
		case r.kind == itemEnd:
			p.ended = true
			if p.unread == 0 && p.accepted {
				s.Stop(now, p)
			}
			call(p.Notify)
		default:
			p.add(data)
			call(p.Notify)
		}
	case itemCredit:
		p := m.outgoing[r.pipe]
		switch {
		case r.pipe >= m.opened || r.count > PipeWindow || p != nil && p.credit+int(r.count) > PipeWindow:
			s.violated(now, "credit of %d bytes for pipe %d", r.count, r.pipe)
		case p != nil:
			p.credit += int(r.count)
			m.enqueue(p)
		}
	case itemStop:
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
	case itemClose:
		s.end(now, fmt.Errorf("relay: session with %v: %w", s.cfg.Peer, transport.ErrPeerClosed))
	default:
		s.violated(now, "an item of type %d", r.kind)
	}
}

// violated ends the session because the peer violates the protocol.
func (s *Session) violated(now time.Time, format string, args ...any) {
	s.end(now, fmt.Errorf("relay: %w: node %v violates the protocol: %s", transport.ErrPeerGone, s.cfg.Peer, fmt.Sprintf(format, args...)))
}
