package link

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A bulkReader reads a pipe of the bulk lane, and fills sinks with what comes.
type bulkReader struct {
	link  *Link
	pipe  transport.Receiver
	sink  *Sink             // that is being filled
	onRun func(view []byte) // take of sink, made once
	head  [wire.FrameSizeMax]byte
}

func newBulkReader(l *Link, p transport.Receiver) *bulkReader {
	r := &bulkReader{link: l, pipe: p}
	r.onRun = func(view []byte) { r.sink.take(view) }
	return r
}

// run reads the pipe to its end.
func (r *bulkReader) run() error {
	for {
		done, err := r.frame()
		if done || err != nil {
			return err
		}
	}
}

// frame reads a frame. It reports whether it was the last.
func (r *bulkReader) frame() (bye bool, err error) {
	if err := r.readFull(r.head[:1]); err != nil {
		return false, err
	}
	r.link.heard.Add(1)
	t := wire.Type(r.head[0])
	size, err := wire.Size(t)
	if err != nil {
		return false, err
	}
	if err := r.readFull(r.head[1:size]); err != nil {
		return false, err
	}
	switch t {
	case wire.TypeSegment:
		s, err := wire.ParseSegment(r.head[:size])
		if err != nil {
			return false, err
		}
		return false, r.receive(s)
	case wire.TypeBye:
		y, err := wire.ParseBye(r.head[:size])
		return true, errors.Join(err, r.link.bye(wire.Bulk, y))
	default:
		return false, fmt.Errorf("frame type %d on the bulk lane", t)
	}
}

// receive reads the payload of a segment into its sink.
func (r *bulkReader) receive(segment wire.Segment) error {
	g := &r.link.grants
	s, err := g.begin(segment, r)
	if err != nil {
		return err
	}
	r.sink = s
	left := segment.Length
	for s != nil && left > 0 {
		var n int
		if s.Reduce == nil {
			n, err = r.pipe.Read(s.next.piece(s.Dst, s.More, left))
			s.got += n
			s.next.advance(n)
		} else {
			n, err = r.pipe.ReadFunc(left, r.onRun)
		}
		left -= n
		if err == nil {
			continue
		}
		if err = r.resume(err); err != nil || g.isDead(s) {
			break
		}
	}
	r.sink = nil
	if s != nil && g.end(s) {
		s.Owner.Filled(s)
	}
	if err != nil {
		return err
	}
	return r.discard(left)
}

// resume turns the error of a read that Ungrant has interrupted into nil.
func (r *bulkReader) resume(err error) error {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	g := &r.link.grants
	g.mu.Lock()
	defer g.mu.Unlock()
	return r.pipe.SetReadDeadline(time.Time{})
}

func (r *bulkReader) discard(n int) error {
	for n > 0 {
		m, err := r.pipe.ReadFunc(n, func([]byte) {})
		n -= m
		if err != nil {
			if err = r.resume(err); err != nil {
				return err
			}
		}
	}
	return nil
}

// readFull reads the whole of b, over interruptions that were meant for a
// sink.
func (r *bulkReader) readFull(b []byte) error {
	for len(b) > 0 {
		n, err := r.pipe.Read(b)
		b = b[n:]
		if err == nil {
			continue
		}
		if err = r.resume(err); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}
