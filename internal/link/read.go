package link

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// readBuffer is what a reader of a framed lane keeps while it is idle.
const readBuffer = 2 << 10

// payloads lends buffers for payloads that do not fit a reader's own.
type payloads struct{ pool sync.Pool }

func (p *payloads) get() *[wire.PayloadMax]byte {
	if b, ok := p.pool.Get().(*[wire.PayloadMax]byte); ok {
		return b
	}
	return new([wire.PayloadMax]byte)
}

// A reader reads frames from a lane.
type reader struct {
	pipe     transport.Receiver
	payloads payloads
	buf      [readBuffer]byte
	lo, hi   int
}

// fill reads until n bytes lie in the buffer. n is at most its length.
func (r *reader) fill(n int) error {
	if r.hi-r.lo >= n {
		return nil
	}
	if len(r.buf)-r.lo < n {
		r.hi = copy(r.buf[:], r.buf[r.lo:r.hi])
		r.lo = 0
	}
	for r.hi-r.lo < n {
		m, err := r.pipe.Read(r.buf[r.hi:])
		r.hi += m
		if err != nil && r.hi-r.lo < n {
			if err == io.EOF && r.hi > r.lo {
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

// payload calls use with the n bytes that follow a frame; n is at most
// wire.PayloadMax.
func (r *reader) payload(n int, use func(p []byte)) error {
	if n <= len(r.buf) {
		if err := r.fill(n); err != nil {
			return err
		}
		r.lo += n
		use(r.buf[r.lo-n : r.lo])
		return nil
	}
	b := r.payloads.get()
	defer r.payloads.pool.Put(b)
	m := copy(b[:n], r.buf[r.lo:r.hi])
	r.lo += m
	if _, err := io.ReadFull(r.pipe, b[m:n]); err != nil {
		return err
	}
	use(b[:n])
	return nil
}

// read reads a lane to its end and fails the link if that comes early.
func (l *Link) read(lane wire.Lane, p transport.Receiver) {
	var err error
	switch lane {
	case wire.Bulk:
		err = l.readBulk(p)
	case wire.Data:
		err = l.readFrames(lane, p, newDataReader(l))
	default:
		err = l.readFrames(lane, p, controlReader{l})
	}
	if err != nil {
		l.protocolError(fmt.Errorf("%v lane: %w", lane, err))
	}
}

// A dispatcher handles one frame.
type dispatcher interface {
	dispatch(r *reader, t wire.Type, b []byte) error
}

func (l *Link) readFrames(lane wire.Lane, p transport.Receiver, d dispatcher) error {
	r := &reader{pipe: p}
	for {
		t, b, err := r.frame()
		if err != nil {
			return err
		}
		l.heard.Add(1)
		if t == wire.TypeBye {
			y, err := wire.ParseBye(b)
			if err = errors.Join(err, l.bye(lane, y)); err != nil || lane != wire.Control {
				return err
			}
			continue // Acknowledgements of our own goodbye may still come.
		}
		if err := d.dispatch(r, t, b); err != nil {
			return err
		}
	}
}

// A dataReader handles the frames of the data lane. The frame in hand is a
// field, so that the functions that take its payload are made only once.
type dataReader struct {
	link      *Link
	step      wire.Step
	message   wire.Message
	onStep    func(p []byte)
	onMessage func(p []byte)
}

func newDataReader(l *Link) *dataReader {
	d := &dataReader{link: l}
	d.onStep = func(p []byte) { l.handler.Step(l, d.step, p) }
	d.onMessage = func(p []byte) { l.handler.Message(l, d.message, p) }
	return d
}

func (d *dataReader) dispatch(r *reader, t wire.Type, b []byte) (err error) {
	l := d.link
	switch t {
	case wire.TypeStep:
		if d.step, err = wire.ParseStep(b); err == nil {
			err = l.charge(wire.Collectives, d.step.Length)
		}
		if err == nil {
			err = r.payload(d.step.Length, d.onStep)
		}
	case wire.TypeMessage:
		if d.message, err = wire.ParseMessage(b); err == nil {
			err = l.charge(wire.Messages, d.message.Length)
		}
		if err == nil {
			err = r.payload(d.message.Length, d.onMessage)
		}
	case wire.TypeStepOffer:
		if d.step, err = wire.ParseStepOffer(b); err == nil {
			l.handler.StepOffer(l, d.step)
		}
	case wire.TypeOffer:
		var o wire.Offer
		if o, err = wire.ParseOffer(b); err == nil {
			l.handler.Offer(l, o)
		}
	default:
		err = fmt.Errorf("frame type %d on the data lane", t)
	}
	return err
}

// A controlReader handles the frames of the control lane.
type controlReader struct{ link *Link }

func (c controlReader) dispatch(r *reader, t wire.Type, b []byte) error {
	l := c.link
	switch t {
	case wire.TypeStepGrant:
		return handle(l, b, wire.ParseStepGrant, Handler.StepGrant)
	case wire.TypeOfferGrant:
		return handle(l, b, wire.ParseOfferGrant, Handler.OfferGrant)
	case wire.TypeOfferRefuse:
		return handle(l, b, wire.ParseOfferRefuse, Handler.OfferRefuse)
	case wire.TypeCredit:
		f, err := wire.ParseCredit(b)
		if err != nil {
			return err
		}
		return l.restore(f)
	case wire.TypePing:
		return handle(l, b, wire.ParsePing, func(_ Handler, l *Link, f wire.Ping) { l.pong(f) })
	case wire.TypePong:
		_, err := wire.ParsePing(b)
		return err // That it came is all it says; see Heard.
	case wire.TypeProbe:
		return handle(l, b, wire.ParseProbe, Handler.Probe)
	case wire.TypeWhere:
		return handle(l, b, wire.ParseWhere, Handler.Where)
	case wire.TypeByeAck:
		f, err := wire.ParseBye(b)
		if err != nil {
			return err
		}
		return l.byeAck(f)
	case wire.TypeRevoke:
		f, err := wire.ParseRevoke(b)
		if err != nil {
			return err
		}
		return r.payload(f.Length, func(p []byte) { l.handler.Revoke(l, f, string(p)) })
	case wire.TypeFailed:
		f, err := wire.ParseFailed(b)
		if err != nil {
			return err
		}
		return r.payload(f.Length, func(p []byte) { l.handler.Failed(l, f, string(p)) })
	default:
		return fmt.Errorf("frame type %d on the control lane", t)
	}
}

func handle[F any](l *Link, b []byte, parse func([]byte) (F, error), use func(Handler, *Link, F)) error {
	f, err := parse(b)
	if err == nil {
		use(l.handler, l, f)
	}
	return err
}
