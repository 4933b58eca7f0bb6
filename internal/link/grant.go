package link

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A Sink is where a granted payload goes. The exported fields are set before
// Link.Grant and not changed until Owner is told of the end, or Ungrant has
// returned.
type Sink struct {
	// Dst takes the payload, which must have its length.
	Dst []byte
	// Reduce, if not nil, makes Dst = A op payload, or payload op A if Left,
	// while the payload comes in. It works on whole elements of Elem bytes.
	Reduce func(dst, a, b []byte)
	A      []byte
	Left   bool
	Elem   int
	Owner  interface {
		// Filled says that the whole payload has arrived. It must not block.
		Filled(s *Sink)
	}
	// Move and Channel are the owner's to tell sinks apart.
	Move, Channel int

	id    uint64
	got   int  // bytes that have arrived
	seen  int  // got, as it was after the last segment
	busy  bool // the reader is using Dst
	dead  bool // Dst must no longer be used
	split [16]byte
	part  int // bytes of an element in split
}

// take reduces the next piece of the payload into Dst. An element may come in
// several pieces.
func (s *Sink) take(view []byte) {
	for s.part > 0 && len(view) > 0 {
		n := copy(s.split[s.part:s.Elem], view)
		s.part, s.got, view = s.part+n, s.got+n, view[n:]
		if s.part == s.Elem {
			s.part = 0
			s.reduce(s.got-s.Elem, s.split[:s.Elem])
		}
	}
	if len(view) == 0 {
		return // with an element that is still not whole, perhaps
	}
	whole := len(view) - len(view)%s.Elem
	s.reduce(s.got, view[:whole])
	s.part = copy(s.split[:], view[whole:])
	s.got += len(view)
}

func (s *Sink) reduce(at int, b []byte) {
	if len(b) == 0 {
		return
	}
	dst, a := s.Dst[at:at+len(b)], s.A[at:at+len(b)]
	if s.Left {
		s.Reduce(dst, b, a)
	} else {
		s.Reduce(dst, a, b)
	}
}

// grants are the sinks that the peer may send to, and the reader of the bulk
// lane, which fills them.
type grants struct {
	mu    sync.Mutex
	wake  sync.Cond
	last  uint64
	open  map[uint64]*Sink
	pipe  transport.Receiver // nil until the peer has opened the lane
	cur   *Sink
	onRun func(view []byte) // take of cur, made once
	head  [wire.FrameSizeMax]byte
}

func (g *grants) init() {
	g.wake.L = &g.mu
	g.open = make(map[uint64]*Sink)
	g.onRun = func(view []byte) { g.cur.take(view) }
}

// Grant allows the peer to send to s and returns the number of the grant,
// which the caller tells the peer.
func (l *Link) Grant(s *Sink) uint64 {
	if s.Reduce != nil && (s.Elem < 1 || s.Elem > len(s.split) || len(s.Dst)%s.Elem != 0 || len(s.A) != len(s.Dst)) {
		panic("link: grant of a reduction that is not of whole elements")
	}
	g := &l.grants
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last++
	s.id, s.got, s.seen, s.part, s.busy, s.dead = g.last, 0, 0, 0, false, false
	g.open[s.id] = s
	return s.id
}

// Ungrant takes a grant back, and returns when its memory is no longer used.
// What the peer still sends to it is thrown away. If s has just been filled
// its owner may still be about to hear so.
func (l *Link) Ungrant(s *Sink) {
	g := &l.grants
	g.mu.Lock()
	defer g.mu.Unlock()
	s.dead = true
	delete(g.open, s.id)
	for s.busy {
		g.pipe.SetReadDeadline(past)
		g.wake.Wait()
	}
}

// Filling is how many bytes of s have arrived, to the last whole segment.
func (l *Link) Filling(s *Sink) int {
	l.grants.mu.Lock()
	defer l.grants.mu.Unlock()
	return s.seen
}

// begin returns the sink of a segment, busy, or nil if its grant was taken
// back.
func (g *grants) begin(f wire.Segment) (*Sink, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.open[f.Grant]
	switch {
	case f.Grant == 0 || f.Grant > g.last:
		return nil, fmt.Errorf("data for grant %d, which was never made", f.Grant)
	case s == nil:
		return nil, nil
	case f.Length > len(s.Dst)-s.got:
		return nil, fmt.Errorf("%d bytes for grant %d, which has room for %d", f.Length, f.Grant, len(s.Dst)-s.got)
	}
	s.busy = true
	g.cur = s
	return s, nil
}

// end says that the reader no longer uses s. It reports whether s is full.
func (g *grants) end(s *Sink) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	s.busy = false
	s.seen = s.got
	g.cur = nil
	g.wake.Broadcast()
	if s.dead || s.got < len(s.Dst) {
		return false
	}
	delete(g.open, s.id)
	return true
}

// readBulk reads the bulk lane to its end.
func (l *Link) readBulk(p transport.Receiver) error {
	l.grants.mu.Lock()
	l.grants.pipe = p
	l.grants.mu.Unlock()
	for {
		done, err := l.readSegment(p)
		if done || err != nil {
			return err
		}
	}
}

// readSegment reads a frame of the bulk lane. It reports whether it was the
// last.
func (l *Link) readSegment(p transport.Receiver) (bye bool, err error) {
	head := &l.grants.head
	if err := l.readFull(p, head[:1]); err != nil {
		return false, err
	}
	l.heard.Add(1)
	t := wire.Type(head[0])
	size, err := wire.Size(t)
	if err != nil {
		return false, err
	}
	if err := l.readFull(p, head[1:size]); err != nil {
		return false, err
	}
	switch t {
	case wire.TypeSegment:
		f, err := wire.ParseSegment(head[:size])
		if err != nil {
			return false, err
		}
		return false, l.receive(p, f)
	case wire.TypeBye:
		y, err := wire.ParseBye(head[:size])
		return true, errors.Join(err, l.bye(wire.Bulk, y))
	default:
		return false, fmt.Errorf("frame type %d on the bulk lane", t)
	}
}

// receive reads the payload of a segment into its sink.
func (l *Link) receive(p transport.Receiver, f wire.Segment) error {
	s, err := l.grants.begin(f)
	if err != nil {
		return err
	}
	left := f.Length
	for s != nil && left > 0 {
		var n int
		if s.Reduce == nil {
			n, err = p.Read(s.Dst[s.got : s.got+left])
			s.got += n
		} else {
			n, err = p.ReadFunc(left, l.grants.onRun)
		}
		left -= n
		if err == nil {
			continue
		}
		if err = l.resume(p, err); err != nil || l.grants.isDead(s) {
			break
		}
	}
	if s != nil && l.grants.end(s) {
		s.Owner.Filled(s)
	}
	if err != nil {
		return err
	}
	return l.discard(p, left)
}

func (g *grants) isDead(s *Sink) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return s.dead
}

// resume turns the error of a read that Ungrant has interrupted into nil.
func (l *Link) resume(p transport.Receiver, err error) error {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	l.grants.mu.Lock()
	defer l.grants.mu.Unlock()
	return p.SetReadDeadline(time.Time{})
}

func (l *Link) discard(p transport.Receiver, n int) error {
	for n > 0 {
		m, err := p.ReadFunc(n, func([]byte) {})
		n -= m
		if err != nil {
			if err = l.resume(p, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// readFull reads the whole of b, over interruptions that were meant for a
// sink.
func (l *Link) readFull(p transport.Receiver, b []byte) error {
	for len(b) > 0 {
		n, err := p.Read(b)
		b = b[n:]
		if err == nil {
			continue
		}
		if err = l.resume(p, err); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}
