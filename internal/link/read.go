package link

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// readBuffer is the size of the buffer of a reader.
const readBuffer = 2 << 10

// segmentHead is the length of the shortest frame on the bulk lane.
const segmentHead = 1 + 8 + 8 + 4

// payloads is a pool of buffers for payloads that are longer than the buffer of a reader.
type payloads struct{ pool sync.Pool }

// get returns a buffer of at least n bytes. Its length is a power of two: a link with short payloads keeps no long buffer.
func (p *payloads) get(n int) *[]byte {
	if b, ok := p.pool.Get().(*[]byte); ok && len(*b) >= n {
		return b
	}
	b := make([]byte, 1<<bits.Len(uint(n-1)))
	return &b
}

// errLater is returned for an incomplete frame. The next call continues at the same position.
var errLater = errors.New("link: incomplete frame")

// A reader reads frames from a lane.
type reader struct {
	pipe     transport.Receiver
	poll     transport.Poller // used in place of pipe if the reader must not block
	payloads payloads
	buf      [readBuffer]byte
	lo, hi   int
	some     bool           // something has arrived
	received *atomic.Uint64 // counts bytes; nil on the control lane

	// The payload of the current frame.
	want int            // its length
	use  func(p []byte) // is called with it
	long *[]byte        // its beginning, if it is longer than buf
	got  int            // bytes in long

	flow     *flow // reads payloads into sinks; nil on lanes without sinks
	segments bool  // all payloads go to sinks: nothing is read ahead
}

func (r *reader) read(p []byte) (n int, err error) {
	if r.poll == nil {
		n, err = r.pipe.Read(p)
	} else {
		if n, err = r.poll.TryRead(p); n == 0 && err == nil {
			err = errLater
		}
		r.some = r.some || n > 0
	}
	r.count(n)
	return n, err
}

// readFunc is read with the ReadFunc of the pipe.
func (r *reader) readFunc(n int, view func(p []byte)) (got int, err error) {
	if r.poll == nil {
		got, err = r.pipe.ReadFunc(n, view)
	} else {
		if got, err = r.poll.TryReadFunc(n, view); got == 0 && err == nil {
			err = errLater
		}
		r.some = r.some || got > 0
	}
	r.count(got)
	return got, err
}

func (r *reader) count(n int) {
	if n > 0 && r.received != nil {
		r.received.Add(uint64(n))
	}
}

// fill reads until the buffer contains n bytes. n is at most its size.
func (r *reader) fill(n int) error {
	if r.hi-r.lo >= n {
		return nil
	}
	if len(r.buf)-r.lo < n {
		r.hi = copy(r.buf[:], r.buf[r.lo:r.hi])
		r.lo = 0
	}
	to := len(r.buf)
	if r.segments {
		to = r.lo + max(n, segmentHead) // The payload goes to a sink.
	}
	for r.hi-r.lo < n {
		m, err := r.read(r.buf[r.hi:to])
		r.hi += m
		if r.flow != nil {
			err = r.flow.resume(err)
		}
		if err != nil && r.hi-r.lo < n {
			if r.hi > r.lo && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// frame returns the fixed part of the next frame. It is valid until the next
// read.
func (r *reader) frame() (wire.Type, []byte, error) {
	if r.lo == r.hi {
		r.lo, r.hi = 0, 0
	}
	if err := r.fill(1); err != nil {
		return 0, nil, err
	}
	t := wire.Type(r.buf[r.lo])
	n, err := wire.Size(t)
	if err != nil {
		return 0, nil, err
	}
	if err := r.fill(n); err != nil {
		return 0, nil, err
	}
	b := r.buf[r.lo : r.lo+n]
	r.lo += n
	return t, b, nil
}

// expect makes payload call use with the n bytes after the frame. n is at most wire.PayloadMax.
func (r *reader) expect(n int, use func(p []byte)) { r.want, r.use, r.got = n, use, 0 }

// payload reads the payload of the current frame, if it has one.
func (r *reader) payload() error {
	if r.use == nil {
		return nil
	}
	if r.want <= len(r.buf) {
		if err := r.fill(r.want); err != nil {
			return r.cut(err)
		}
		r.lo += r.want
		r.handOver(r.buf[r.lo-r.want : r.lo])
		return nil
	}
	if r.long == nil {
		r.long = r.payloads.get(r.want)
		r.got = copy((*r.long)[:r.want], r.buf[r.lo:r.hi])
		r.lo += r.got
	}
	for r.got < r.want {
		n, err := r.read((*r.long)[r.got:r.want])
		r.got += n
		if r.flow != nil {
			err = r.flow.resume(err)
		}
		if err != nil && r.got < r.want {
			return r.cut(err)
		}
	}
	b := r.long
	r.long = nil
	defer r.payloads.pool.Put(b)
	r.handOver((*b)[:r.want])
	return nil
}

// handOver ends the current frame and then calls use, which may panic.
func (r *reader) handOver(p []byte) {
	use := r.use
	r.use = nil
	use(p)
}

// cut returns the error of a read in the middle of a payload.
func (r *reader) cut(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// read reads a pipe to its end.
func (l *Link) read(a *attachment, pre wire.Preamble, p transport.Receiver) error {
	switch pre.Lane {
	case wire.Bulk:
		f := newFlow(l, &l.exchange().grants, p)
		return l.readFrames(a, pre, p, bulkReader{f}, f)
	case wire.Data:
		d := newDataReader(a, p)
		return l.readFrames(a, pre, p, d, d.flow)
	}
	return l.readFrames(a, pre, p, controlReader{l, a}, nil)
}

// A dispatcher handles the fixed part of a frame, and makes the reader expect the
// payload.
type dispatcher interface {
	dispatch(r *reader, t wire.Type, b []byte) error
}

// A dataReader handles the frames of the data lane. The current frame is a field, so that
// the functions for its payload are allocated only once.
type dataReader struct {
	link      *Link
	step      wire.Step
	message   wire.Message
	onStep    func(p []byte)
	onMessage func(p []byte)
	flow      *flow // for claimed messages
	claimMin  int   // the length of the shortest message that may be claimed
}

// claimBytesMin is the length of the shortest message that may be claimed in shared memory. For shorter ones
// a copy takes less time, and over sockets for those shorter than four times that.
const claimBytesMin = 8 << 10

func newDataReader(a *attachment, p transport.Receiver) *dataReader {
	l := a.link
	d := &dataReader{link: l, flow: newFlow(l, &l.exchange().claims, p), claimMin: 4 * claimBytesMin}
	if a.first.lasts() {
		d.claimMin = claimBytesMin
	}
	d.onStep = func(p []byte) {
		l.Credit().charge(wire.Collectives, len(p))
		l.common.handler.Step(l, d.step, p)
	}
	d.onMessage = func(p []byte) {
		l.Credit().charge(wire.Messages, len(p))
		l.common.handler.Message(l, d.message, p)
	}
	return d
}

func (d *dataReader) dispatch(r *reader, t wire.Type, b []byte) (err error) {
	l := d.link
	switch t {
	case wire.TypeStep:
		if d.step, err = wire.ParseStep(b); err == nil {
			err = l.Credit().check(wire.Collectives, d.step.Length)
			r.expect(d.step.Length, d.onStep)
		}
		return err
	case wire.TypeMessage:
		if d.message, err = wire.ParseMessage(b); err == nil {
			err = l.Credit().check(wire.Messages, d.message.Length)
		}
		if err == nil {
			err = d.expectMessage(r)
		}
		return err
	case wire.TypeStepOffer:
		return handle(l, b, wire.ParseStepOffer, Handler.StepOffer)
	case wire.TypeBye: // The one on the control lane counts.
		return nil
	case wire.TypeClosed:
		return handle(l, b, wire.Parse[wire.Closed], Handler.Closed)
	case wire.TypeOffer:
		return handle(l, b, wire.ParseOffer, Handler.Offer)
	case wire.TypeStepGrant, wire.TypeOfferGrant, wire.TypeOfferRefuse, wire.TypeCredit, wire.TypeKey, wire.TypeAck, wire.TypeFinished:
		return l.readReply(t, b)
	}
	return fmt.Errorf("frame type %d on the data lane", t)
}

// expectMessage reads the payload of the current message into the sink that claims it, or
// passes it to the handler when it is complete. If the last connection has cut a claimed message, it is the current one.
func (d *dataReader) expectMessage(r *reader) error {
	x, n := d.link.exchange(), d.message.Length
	switch {
	case x.isClaimed:
		x.claims.restart(x.claim)
	case n >= d.claimMin:
		x.claim, x.isClaimed = d.link.common.handler.Claim(d.link, d.message)
	}
	if x.isClaimed {
		return d.flow.claimed(x.claim, n)
	}
	r.expect(n, d.onMessage)
	return nil
}

// readReply handles the replies of the peer to frames of this node.
func (l *Link) readReply(t wire.Type, b []byte) error {
	switch t {
	case wire.TypeStepGrant:
		return handle(l, b, wire.ParseStepGrant, Handler.StepGrant)
	case wire.TypeOfferGrant:
		return handle(l, b, wire.ParseOfferGrant, Handler.OfferGrant)
	case wire.TypeOfferRefuse:
		return handle(l, b, wire.Parse[wire.OfferRefuse], Handler.OfferRefuse)
	case wire.TypeKey:
		return handle(l, b, wire.ParseKey, func(_ Handler, l *Link, k wire.Key) { l.exchange().bulk.addKey(k) })
	case wire.TypeAck:
		return fails(l, b, wire.ParseAck, (*Link).acknowledged)
	case wire.TypeFinished:
		return fails(l, b, wire.ParseFinished, func(l *Link, f wire.Finished) error { return l.exchange().bulk.finished(f.Grant) })
	}
	return fails(l, b, wire.ParseCredit, func(l *Link, f wire.Credit) error { return l.Credit().restore(f) })
}

// A controlReader handles the frames of the control lane.
type controlReader struct {
	link *Link
	of   *attachment
}

func (c controlReader) dispatch(r *reader, t wire.Type, b []byte) error {
	l := c.link
	switch t {
	case wire.TypeStepGrant, wire.TypeOfferGrant, wire.TypeOfferRefuse, wire.TypeCredit, wire.TypeKey, wire.TypeAck, wire.TypeFinished:
		return l.readReply(t, b)
	case wire.TypeBeat:
		return nil
	case wire.TypePing:
		return handle(l, b, wire.Parse[wire.Ping], func(_ Handler, l *Link, f wire.Ping) { l.pong(f) })
	case wire.TypePong:
		return handle(l, b, wire.Parse[wire.Ping], func(_ Handler, l *Link, f wire.Ping) { l.exchange().confirms.take(f.Number) })
	case wire.TypeQuery:
		return handle(l, b, wire.Parse[wire.Query], Handler.Query)
	case wire.TypeWhere:
		return handle(l, b, wire.Parse[wire.Where], Handler.Where)
	case wire.TypeGone:
		return handle(l, b, wire.Parse[wire.Gone], Handler.Gone)
	case wire.TypeLeaving:
		return handle(l, b, wire.Parse[wire.Leaving], Handler.Leaving)
	case wire.TypeView:
		return handle(l, b, wire.Parse[wire.View], func(h Handler, l *Link, f wire.View) {
			r.expect(f.Length, func(p []byte) { h.View(l, p) })
		})
	case wire.TypeBye:
		f, err := wire.Parse[wire.Bye](b)
		if err != nil {
			return err
		}
		return c.of.bye(f)
	case wire.TypeByeAck:
		return c.of.byeAck()
	case wire.TypeIdle:
		return fails(l, b, wire.Parse[wire.Idle], func(_ *Link, f wire.Idle) error { return c.of.idlePeer(f) })
	case wire.TypeRevoke:
		return handle(l, b, wire.Parse[wire.Revoke], func(h Handler, l *Link, f wire.Revoke) {
			r.expect(f.Length, func(p []byte) { h.Revoke(l, f, wire.Escape(string(p))) })
		})
	case wire.TypeFailed:
		return handle(l, b, wire.Parse[wire.Failed], func(h Handler, l *Link, f wire.Failed) {
			r.expect(f.Length, func(p []byte) { h.Failed(l, f, wire.Escape(string(p))) })
		})
	case wire.TypeReason:
		return handle(l, b, wire.Parse[wire.Reason], func(h Handler, l *Link, f wire.Reason) {
			r.expect(f.Length, func(p []byte) { h.Reason(l, f, wire.Escape(string(p))) })
		})
	case wire.TypeAsk:
		return handle(l, b, wire.Parse[wire.Ask], Handler.Ask)
	case wire.TypeWaits:
		return handle(l, b, wire.Parse[wire.Waits], func(h Handler, l *Link, f wire.Waits) {
			r.expect(f.Length, func(p []byte) { h.Waits(l, f, p) })
		})
	}
	return fmt.Errorf("frame type %d on the control lane", t)
}

// fails is handle for a frame that may violate the protocol.
func fails[F any](l *Link, b []byte, parse func([]byte) (F, error), use func(*Link, F) error) error {
	f, err := parse(b)
	if err == nil {
		err = use(l, f)
	}
	return err
}

func handle[F any](l *Link, b []byte, parse func([]byte) (F, error), use func(Handler, *Link, F)) error {
	f, err := parse(b)
	if err == nil {
		use(l.common.handler, l, f)
	}
	return err
}
