package link

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A flow reads payloads from a pipe into sinks.
type flow struct {
	link    *Link
	of      *grants
	pipe    transport.Receiver
	grant   uint64            // of the current segment
	left    int               // unread bytes of the segment
	begun   bool              // there is a current segment
	sink    *Sink             // for onRun
	onRun   func(view []byte) // calls sink.take; made once
	drop    func(view []byte)
	charged int // size of a claimed message; its credit is returned at the end
}

func newFlow(l *Link, of *grants, p transport.Receiver) *flow {
	b := &flow{link: l, of: of, pipe: p, drop: func([]byte) {}}
	b.onRun = func(view []byte) { b.sink.take(view) }
	return b
}

// begin begins a segment of n bytes.
func (b *flow) begin(grant uint64, n int) { b.grant, b.left, b.begun = grant, n, true }

// claimed begins a claimed message of n bytes.
func (b *flow) claimed(claim uint64, n int) error {
	b.begin(claim, n)
	b.charged = n
	if claim == 0 {
		return nil
	}
	return b.of.check(wire.Segment{Grant: claim, Length: n}, b)
}

// A bulkReader handles the frames of a pipe of the bulk lane.
type bulkReader struct{ *flow }

func (b bulkReader) dispatch(_ *reader, t wire.Type, p []byte) error {
	switch t {
	case wire.TypeSegment:
	case wire.TypeWritten:
		f, err := wire.ParseWritten(p)
		if err != nil {
			return err
		}
		return b.written(f)
	default:
		return fmt.Errorf("frame type %d on the bulk lane", t)
	}
	s, err := wire.ParseSegment(p)
	if err != nil {
		return err
	}
	b.begin(s.Grant, s.Length)
	return b.of.check(s, b.flow)
}

// flows reports whether the current segment has unread bytes.
func (b *flow) flows() bool { return b != nil && b.begun }

// more reads the rest of the current segment into its sink, or all available bytes if the
// reader must not block. The grant may be withdrawn between two reads: the rest is then
// discarded.
func (b *flow) more(r *reader) error {
	g := b.of
	for {
		s := g.hold(b.grant)
		n, err := b.some(r, s)
		b.left -= n
		b.begun = b.left > 0
		if g == &b.link.exchange().grants {
			b.link.exchange().bulked.Add(uint64(n))
		}
		if b.charged > 0 && !b.begun {
			b.link.Credit().charge(wire.Messages, b.charged)
			b.link.Credit().Consumed(wire.Messages, b.charged)
			b.charged, b.link.exchange().isClaimed = 0, false
		}
		isOpen, isFull := false, false
		if s != nil {
			isOpen, isFull = g.release(s, n)
		}
		if !b.begun && !isOpen {
			b.finish(b.grant, s, isFull)
		}
		b.link.noteRead()
		if err = b.resume(err); !b.begun { // The frame is complete. The next read returns the error.
			return nil
		} else if err != nil {
			return r.cut(err)
		}
	}
}

// finish tells the owner of a sink, if it is full, and the peer that a grant is filled or was withdrawn. The peer is told beside the
// first frame that the owner sends, or behind the call. It need not be told if its connection lasts: then what was sent is received. It
// does not know claims.
func (b *flow) finish(grant uint64, s *Sink, isFull bool) {
	var o *outbox
	if b.of == &b.link.exchange().grants && !b.link.attached.Load().first.lasts() {
		o = b.link.replies()
		o.addFinished(grant)
	}
	if isFull {
		s.Owner.Filled(s)
	}
	if o != nil {
		o.flush()
	}
	b.link.announceHeld()
}

// some reads a part of the segment.
func (b *flow) some(r *reader, s *Sink) (n int, err error) {
	switch {
	case b.left == 0:
	case r.hi > r.lo: // On the data lane the reader reads ahead.
		view := r.buf[r.lo:min(r.hi, r.lo+b.left)]
		if n = len(view); s != nil {
			n = copy(s.piece(n), view)
			s.arrive(n)
		}
		r.lo += n
	case s == nil:
		n, err = r.readFunc(b.left, b.drop)
	case s.Reduce != nil:
		b.sink = s
		n, err = r.readFunc(b.left, b.onRun)
		b.sink = nil
	default:
		n, err = r.read(s.piece(b.left))
		s.arrive(n)
	}
	return n, err
}

// resume returns nil for the error of a read that Ungrant has interrupted.
func (b *flow) resume(err error) error {
	if err == nil || err == errLater || !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	b.of.mu.Lock()
	defer b.of.mu.Unlock()
	return b.pipe.SetReadDeadline(time.Time{})
}
