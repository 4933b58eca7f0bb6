package link

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// outboxKeepMax is the largest buffer that an outbox keeps when it is idle.
const outboxKeepMax = 256 << 10

// directBytesMin is the length of the shortest payload that is written without a copy.
const directBytesMin = 2 << 10

// An outbox sends frames on a lane in order, without blocking its callers. With a TryWriter
// a frame is written immediately if that does not block. Otherwise a goroutine writes it,
// together with all later frames. The size of an outbox is bounded by credit and by the requests
// of the peer.
//
// A sender encodes its frame directly into the buffer of pending frames, between lockBuffer and
// commitUnlock, which hand the lock over: the caller holds it while it appends. ADR 34 has the reason.
type outbox struct {
	link *Link

	mu      sync.Mutex
	to      *outPipe // nil without a connection, when frames wait in pending
	pending []byte   // frames to be written
	held    []byte   // frames for the next connection, while holding
	sent    uint64   // bytes given to pipes, without those of opening and goodbye
	written uint64   // counted frames given to pipes; see wire.Resume
	queued  uint32   // counted frames in pending
	waiting uint32   // counted frames in held
	lane    wire.Lane
	holding bool // our goodbye was sent, and the link stays
	closed  bool
	opening int // bytes at the beginning of pending that belong to the connection: its preamble
	ending  int // while holding, the offset in pending of our goodbye and the frames behind it
	goodbye int // bytes of our goodbye in pending
}

// An outPipe is the pipe of an outbox.
type outPipe struct {
	at   *path
	pipe transport.Sender
	try  transport.TryWriter       // nil without the capability
	vec  transport.TryVectorWriter // nil without the capability
	lazy transport.LazyWriter      // nil without the capability

	wake    sync.Cond
	spare   []byte   // the other buffer
	pieces  [][]byte // memory for commitPayloadUnlock
	started bool     // the goroutine runs
	writing bool     // the goroutine is in Write
}

func (o *outbox) init(l *Link, lane wire.Lane) { o.link, o.lane = l, lane }

// open gives the outbox its pipe, and sends the preamble, unless it is nil, and the pending frames.
func (o *outbox) open(at *path, p transport.Sender, preamble []byte) {
	can := transport.CapabilitiesOf(p)
	to := &outPipe{at: at, pipe: p, try: can.TryWriter, vec: can.TryVectorWriter, lazy: can.LazyWriter}
	to.wake.L = &o.mu
	o.mu.Lock()
	o.to = to
	b := o.pending
	if len(preamble) > 0 {
		b = append(preamble, b...)
		o.opening, o.ending = len(preamble), o.ending+len(preamble)
	}
	need := o.flushLocked(b, 0)
	o.mu.Unlock()
	o.request(need)
}

// lockBuffer locks the outbox and returns the buffer for further frames. The caller appends them
// and calls commitUnlock or commitPayloadUnlock, and nothing that blocks or locks in between.
func (o *outbox) lockBuffer() []byte {
	o.mu.Lock()
	if o.holding {
		return o.held
	}
	return o.pending
}

// post sends the frame that add appends. It is counted if [wire.IsCounted] selects it, as at the peer. Frames behind it are not
// counted.
func (o *outbox) post(add func(b []byte) []byte) { o.postWithin(math.MaxInt, add) }

// postWithin is post, unless more than most bytes wait. It reports whether it has sent the frame.
func (o *outbox) postWithin(most int, add func(b []byte) []byte) bool {
	b := o.lockBuffer()
	at := len(b)
	if at > most {
		o.mu.Unlock()
		return false
	}
	b = add(b)
	counted := uint32(0)
	if wire.IsCounted(wire.Type(b[at])) {
		counted = 1
	}
	o.commitUnlock(b, counted)
	return true
}

// commitUnlock sends the frames that were appended to the buffer of lockBuffer, and unlocks the outbox.
// counted is the number of those that [wire.IsCounted] selects.
func (o *outbox) commitUnlock(b []byte, counted uint32) {
	need := o.commitLocked(b, counted)
	o.mu.Unlock()
	o.request(need)
}

// request asks for the connection that the frames of a commit need. The caller does not hold the lock.
func (o *outbox) request(need Purpose) {
	if need != NoPurpose {
		o.link.Need(need)
	}
}

// commitLocked keeps the frames in b for the next connection while the outbox holds them back, and
// otherwise sends them. It returns the purpose of the connection that they need, for request.
func (o *outbox) commitLocked(b []byte, counted uint32) (need Purpose) {
	if o.holding && !o.closed {
		o.held = b
		o.waiting += counted
		return NoPurpose
	}
	return o.flushLocked(b, counted)
}

// flushLocked makes b the pending frames and sends them. It returns the purpose of the connection that
// they need, for request.
func (o *outbox) flushLocked(b []byte, counted uint32) (need Purpose) {
	o.pending = b
	o.queued += counted
	switch p := o.to; {
	case o.closed:
		o.pending, o.queued, o.opening, o.ending, o.goodbye = o.pending[:0], 0, 0, 0, 0
	case p == nil:
		if need = o.link.Purpose(); need == NoPurpose {
			need = cmp.Or(purposeOf(b), Report)
		}
	case p.writing || len(b) == 0:
	case p.try != nil && p.try.TryWrite(b):
		o.pending = keep(b)
		o.wroteLocked(len(b))
	default:
		if !p.started {
			p.started = true
			p.at.of.writers.Go(func() { o.run(p) })
		}
		p.wake.Signal()
	}
	return need
}

// sendLazy sends an uncounted frame ([wire.IsCounted]). With a LazyWriter it wakes no goroutine of the peer, which handles it
// with the next frame or in [Link.ReadLazy].
func (o *outbox) sendLazy(frame []byte) {
	b := o.lockBuffer()
	if p := o.to; len(b) == 0 && p != nil && p.lazy != nil && !p.writing && !o.closed && !o.holding && p.lazy.TryWriteLazy(frame) {
		o.sent += uint64(len(frame))
		o.mu.Unlock()
		return
	}
	o.commitUnlock(append(b, frame...), 0)
}

// wroteLocked counts the pending frames of n bytes as given to a pipe.
func (o *outbox) wroteLocked(n int) {
	o.sent += uint64(n - o.opening - o.goodbye)
	o.written += uint64(o.queued)
	o.queued, o.opening, o.ending, o.goodbye = 0, 0, 0, 0
}

// quietMax is the number of bytes of frames that do not need a connection which a pending link
// keeps. With more, it needs one.
const quietMax = 4 << 10

// postQuiet is post for a frame that a pending link keeps until another frame needs a connection.
func (o *outbox) postQuiet(add func(b []byte) []byte) {
	b, need := add(o.lockBuffer()), NoPurpose
	if o.to != nil || o.holding || o.closed || len(b) > quietMax {
		need = o.commitLocked(b, 1)
	} else {
		o.pending = b
		o.queued++
	}
	o.mu.Unlock()
	o.request(need)
}

// commitPayloadUnlock is commitUnlock for one frame with a payload behind b, in one or more regions. With
// a TryVectorWriter a long payload is written from its own memory.
func (o *outbox) commitPayloadUnlock(b, payload []byte, more [][]byte) {
	if p := o.to; len(payload) >= directBytesMin && p != nil && p.vec != nil && !p.writing && !o.closed && !o.holding {
		p.pieces = append(append(p.pieces[:0], b, payload), more...)
		sent := p.vec.TryWriteVectored(p.pieces)
		clear(p.pieces)
		if sent {
			o.queued++
			o.wroteLocked(len(b) + size(payload, more))
			o.pending = keep(b)
			o.mu.Unlock()
			return
		}
	}
	b = append(b, payload...)
	for _, p := range more {
		b = append(b, p...)
	}
	o.commitUnlock(b, 1)
}

// run writes pending frames to a pipe until the outbox loses it.
func (o *outbox) run(p *outPipe) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.closed && o.to == p {
		if len(o.pending) == 0 {
			p.wake.Wait()
			continue
		}
		b := o.pending
		o.pending, p.spare, p.writing = p.spare[:0], nil, true
		o.wroteLocked(len(b))
		o.mu.Unlock()
		_, err := writeCounted(p.pipe, b)
		o.mu.Lock()
		p.spare, p.writing = keep(b), false
		if err != nil {
			o.to = nil
			o.mu.Unlock()
			p.at.of.broken(p.at, fmt.Errorf("link: write to the %v lane: %w", o.lane, err))
			o.mu.Lock()
		}
	}
}

// isIdle reports whether no frame is waiting or being written.
func (o *outbox) isIdle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.pending) == 0 && o.to != nil && !o.to.writing
}

// bye sends our goodbye, and keeps all later frames for the next connection if the link stays. With unopened, the goodbye
// of a bulk lane without pipes comes first.
func (o *outbox) bye(idle, unopened bool) {
	o.mu.Lock()
	o.holding, o.ending = idle, len(o.pending)
	b := o.pending
	if unopened {
		y := wire.Bye{Lane: wire.Bulk, Idle: idle}
		b = y.Append(b, wire.TypeBye)
	}
	y := wire.Bye{Lane: o.lane, Idle: idle}
	b = y.Append(b, wire.TypeBye)
	o.goodbye = len(b) - o.ending
	need := o.flushLocked(b, 0)
	o.mu.Unlock()
	o.request(need)
}

// acknowledge sends the acknowledgement of the goodbye of the peer on a lane. If the link stays, our own was sent before.
func (o *outbox) acknowledge(lane wire.Lane) {
	y := wire.Bye{Lane: lane}
	o.mu.Lock()
	need := o.flushLocked(y.Append(o.pending, wire.TypeByeAck), 0)
	o.mu.Unlock()
	o.request(need)
}

// detach takes the pipe from the outbox. The frames that it has not been given wait for the next one, except those that belong to
// the connection: its preamble, and goodbyes with their acknowledgements.
func (o *outbox) detach() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.to != nil {
		o.to.wake.Broadcast()
		o.to = nil
	}
	if o.holding {
		o.pending, o.held, o.holding, o.goodbye = append(o.pending[:o.ending], o.held...), nil, false, 0
		o.queued, o.waiting = o.queued+o.waiting, 0
	}
	o.pending = slices.Delete(o.pending, 0, o.opening)
	o.opening, o.ending = 0, 0
}

// needs returns the purpose of the frames that wait for a connection; NoPurpose if they do not need one.
func (o *outbox) needs() Purpose {
	o.mu.Lock()
	defer o.mu.Unlock()
	b := o.pending
	if o.holding {
		b = o.held
	}
	p := purposeOf(b)
	if p == NoPurpose && len(b) > quietMax {
		return Report
	}
	return p
}

func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed = true; o.to != nil {
		o.to.wake.Broadcast()
	}
}

// keep returns b for reuse, emptied, or nil if it is too large to keep.
func keep(b []byte) []byte {
	if cap(b) > outboxKeepMax {
		return nil
	}
	return b[:0]
}
