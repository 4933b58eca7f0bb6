package link

import (
	"cmp"
	"fmt"
	"sync"

	"github.com/nexar-go/nexar/internal/link/lane"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// directBytesMin is the length of the shortest payload that is written without a copy.
const directBytesMin = 2 << 10

// An outbox sends frames on a lane in order, without blocking its callers. With a TryWriter
// a frame is written immediately if that does not block. Otherwise a goroutine writes it,
// together with all later frames. The outbox keeps the frames until the peer has acknowledged them. Credit and uncreditedMax bound its
// size.
//
// A sender encodes its frame directly into the buffer of the lane, between lockBuffer and
// commitUnlock, which hand the lock over: the caller holds it while it appends. ADR 34 has the reason.
type outbox struct {
	link *Link

	mu     sync.Mutex
	to     *outPipe // nil without a connection, when frames wait
	out    lane.Out
	mark   int    // length of the buffer of lockBuffer
	tended uint64 // the end of the frames at the last Link.Tend
	lane   wire.Lane
	need   Purpose // of the frames that wait without a connection
	closed bool    // frames are dropped
}

// An outPipe is the pipe of an outbox.
type outPipe struct {
	at   *path
	pipe transport.Sender
	try  transport.TryWriter       // nil without the capability
	vec  transport.TryVectorWriter // nil without the capability
	lazy transport.LazyWriter      // nil without the capability

	wake    sync.Cond
	pieces  [][]byte // memory for vectors
	started bool     // the goroutine runs
	writing bool     // the goroutine is in Write
}

func (o *outbox) init(l *Link, lane wire.Lane) {
	o.link, o.lane = l, lane
	o.out.Share(&l.common.buffers)
}

// resume prepares for a connection whose peer has received the first bytes up to a position.
func (o *outbox) resume(position uint64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.out.Resume(position); err != nil {
		return fmt.Errorf("%v %w", o.lane, err)
	}
	o.need = NoPurpose
	return nil
}

// open gives the outbox its pipe, and sends the preamble, unless it is nil, and the frames that wait.
func (o *outbox) open(at *path, p transport.Sender, preamble []byte) {
	can := transport.CapabilitiesOf(p)
	to := &outPipe{at: at, pipe: p, try: can.TryWriter, vec: can.TryVectorWriter, lazy: can.LazyWriter}
	to.wake.L = &o.mu
	o.mu.Lock()
	o.to = to
	o.out.Lasting(at.lasts())
	o.out.Transient(preamble)
	need := o.flushLocked()
	o.mu.Unlock()
	o.request(need)
}

// lockBuffer locks the outbox and returns the buffer for further numbered frames, with room for n bytes. The caller appends them
// and calls commitUnlock or commitPayloadUnlock, and nothing that blocks or locks in between.
func (o *outbox) lockBuffer(n int) []byte {
	o.mu.Lock()
	if n > wire.FrameSizeMax && o.to != nil && o.to.vec != nil && o.to.at.lasts() { // The payload is not kept.
		n = wire.FrameSizeMax
	}
	b := o.out.Buffer(n)
	o.mark = len(b)
	return b
}

// post sends the frame that add appends.
func (o *outbox) post(add func(b []byte) []byte) { o.postFor(Report, add) }

// postFor is post for a frame with a purpose.
func (o *outbox) postFor(p Purpose, add func(b []byte) []byte) {
	o.commitUnlock(p, add(o.lockBuffer(wire.FrameSizeMax)))
}

// postWithin is post, unless more than most bytes wait. It reports whether it has sent the frame.
func (o *outbox) postWithin(most int, add func(b []byte) []byte) bool {
	b := o.lockBuffer(wire.FrameSizeMax)
	if o.out.Waiting() > most {
		o.mu.Unlock()
		return false
	}
	o.commitUnlock(Report, add(b))
	return true
}

// postTransient sends a frame of the current connection. Without one it drops the frame.
func (o *outbox) postTransient(frame []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.to != nil && !o.closed {
		o.out.Transient(frame)
		o.flushLocked()
		o.boundLocked(o.out.Transients())
	}
}

// addFinished adds the frame that tells the peer that a grant is filled or was withdrawn. The caller calls flush soon.
func (o *outbox) addFinished(grant uint64) {
	f := wire.Finished{Grant: grant}
	var room [transientRoom]byte
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.to != nil && !o.closed {
		o.out.Transient(f.Append(room[:0]))
		o.boundLocked(o.out.Transients())
	}
}

// flush sends the frames that wait.
func (o *outbox) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.to != nil {
		o.flushLocked()
	}
}

// commitUnlock sends the frames that were appended to the buffer of lockBuffer for a purpose, and unlocks the outbox.
func (o *outbox) commitUnlock(p Purpose, b []byte) { o.unlock(o.commitLocked(p, b)) }

// unlock unlocks the outbox after frames were added, and asks for the connection that they need.
func (o *outbox) unlock(need Purpose) {
	if o.out.Kept() > askBytes && o.to != nil {
		o.boundLocked(o.uncreditedLocked())
	}
	o.mu.Unlock()
	o.request(need)
}

const (
	// askBytes is the number of unacknowledged bytes without credit above which Link.Tend asks for an acknowledgement.
	askBytes = 512 << 10
	// uncreditedMax bounds them. A peer with keptMax frames without charge has acknowledged the others.
	uncreditedMax = keptMax * frameCharge
)

// uncreditedLocked returns the number of bytes that the peer has not acknowledged, less those of which it has not returned the credit.
func (o *outbox) uncreditedLocked() int {
	n := o.out.Kept()
	if o.lane == wire.Data {
		n -= o.link.exchange().credit.unreturned()
	}
	return n
}

// boundLocked ends the link if so many bytes that the peer has not read or not acknowledged are too many.
func (o *outbox) boundLocked(n int) {
	if n > uncreditedMax && !o.closed {
		o.closed = true
		go o.link.Fail(fmt.Errorf("link: the peer has not acknowledged %d bytes on the %v lane, want at most %d", n, o.lane, uncreditedMax)) // It needs locks.
	}
}

// request asks for the connection that the frames of a commit need. The caller does not hold the lock.
func (o *outbox) request(need Purpose) {
	if need != NoPurpose {
		o.link.Need(need)
	}
}

// commitLocked adds the frames that were appended to the buffer of lockBuffer for a purpose, and sends them. It returns the purpose of the
// connection that they need, for request.
func (o *outbox) commitLocked(p Purpose, b []byte) (need Purpose) {
	if o.closed {
		return NoPurpose
	}
	if o.to == nil {
		o.need = cmp.Or(o.need, p)
	}
	o.out.Commit(b)
	return o.flushLocked()
}

// flushLocked sends the frames that wait. It returns the purpose of the connection that
// they need, for request.
func (o *outbox) flushLocked() (need Purpose) {
	switch p := o.to; {
	case o.closed:
	case p == nil:
		if o.out.Kept() > 0 {
			need = cmp.Or(o.link.Purpose(), o.need, Report)
		}
	case p.writing || !o.out.HasNext():
	default:
		if o.acknowledgeLocked(p); o.tryLocked(p) {
			break
		}
		if !p.started {
			p.started = true
			p.at.of.writers.Go(func() { o.run(p) })
		}
		p.wake.Signal()
	}
	return need
}

// acknowledgeLocked adds an acknowledgement to the frames that wait if one is due beside them.
func (o *outbox) acknowledgeLocked(p *outPipe) {
	if x := o.link.exchange(); !p.at.lasts() && (x.in[wire.Control].IsDue() || x.in[wire.Data].IsDue()) {
		var room [transientRoom]byte
		o.out.Transient(x.appendAck(room[:0]))
	}
}

// tryLocked writes the frames that wait if that does not block.
func (o *outbox) tryLocked(p *outPipe) (all bool) {
	if p.try == nil {
		return false
	}
	for o.out.HasNext() {
		transient, numbered := o.out.Next()
		n := len(transient) + len(numbered)
		var sent bool
		switch {
		case len(transient) == 0:
			sent = p.try.TryWrite(numbered)
		case len(numbered) > 0 && p.vec != nil:
			p.pieces = append(p.pieces[:0], transient, numbered)
			sent = p.vec.TryWriteVectored(p.pieces)
			clear(p.pieces)
		default:
			n, sent = len(transient), p.try.TryWrite(transient)
		}
		if !sent {
			n = 0
		}
		if o.wroteLocked(p, n); !sent {
			return false
		}
	}
	return true
}

// wroteLocked notes that the pipe has taken n bytes.
func (o *outbox) wroteLocked(p *outPipe, n int) {
	if err := o.out.Wrote(n); err != nil {
		at := p.at
		go at.of.protocolError(at, err) // It needs locks.
	}
}

// sendLazy sends a transient frame. With a LazyWriter it wakes no goroutine of the peer, which handles it
// with the next frame or in [Link.ReadLazy].
func (o *outbox) sendLazy(frame []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.to
	if p == nil || o.closed || p.lazy != nil && !p.writing && !o.out.HasNext() && p.lazy.TryWriteLazy(frame) {
		return
	}
	o.out.Transient(frame)
	o.flushLocked()
}

// quietMax is the number of bytes of frames that do not need a connection which a pending link
// keeps. With more, it needs one.
const quietMax = 4 << 10

// postQuiet is post for a frame that a pending link keeps until another frame needs a connection.
func (o *outbox) postQuiet(add func(b []byte) []byte) {
	b, need := add(o.lockBuffer(wire.FrameSizeMax)), NoPurpose
	if o.to != nil || o.closed || o.out.Kept()+len(b)-o.mark > quietMax {
		need = o.commitLocked(NoPurpose, b)
	} else {
		o.out.Commit(b)
	}
	o.mu.Unlock()
	o.request(need)
}

// commitPayloadUnlock is commitUnlock for one frame with a payload behind b, in one or more regions. With a TryVectorWriter a
// long payload is written from its own memory, and copied afterwards, while the peer reads it.
func (o *outbox) commitPayloadUnlock(purpose Purpose, b, payload []byte, more [][]byte) {
	if p := o.to; len(payload) >= directBytesMin && p != nil && p.vec != nil && !p.writing && !o.closed && o.out.Waiting() == 0 {
		o.acknowledgeLocked(p)
		p.pieces = p.pieces[:0]
		transient, _ := o.out.Next()
		if len(transient) > 0 {
			p.pieces = append(p.pieces, transient)
		}
		p.pieces = append(append(p.pieces, b[o.mark:], payload), more...)
		sent := p.vec.TryWriteVectored(p.pieces)
		if clear(p.pieces); sent {
			o.wroteLocked(p, len(transient))
			o.out.Direct(b, payload, more)
			o.unlock(NoPurpose)
			return
		}
		o.wroteLocked(p, 0)
	}
	b = append(b, payload...)
	for _, p := range more {
		b = append(b, p...)
	}
	o.commitUnlock(purpose, b)
}

// run writes frames to a pipe until the outbox loses it.
func (o *outbox) run(p *outPipe) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.closed && o.to == p {
		if !o.out.HasNext() {
			p.wake.Wait()
			continue
		}
		transient, numbered := o.out.Next()
		p.writing = true
		o.mu.Unlock()
		n, err := writeCounted(p.pipe, transient)
		if err == nil && len(numbered) > 0 {
			var k int
			k, err = writeCounted(p.pipe, numbered)
			n += k
		}
		o.mu.Lock()
		if p.writing = false; err == nil && o.to == p {
			o.wroteLocked(p, n)
		}
		if err != nil { // The next Resume says what has arrived.
			o.to = nil
			o.mu.Unlock()
			p.at.of.broken(p.at, fmt.Errorf("link: write to the %v lane: %w", o.lane, err))
			o.mu.Lock()
		}
	}
}

// acknowledged handles an acknowledgement of the peer.
func (o *outbox) acknowledged(position uint64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.out.Ack(position); err != nil {
		return fmt.Errorf("%v %w", o.lane, err)
	}
	return nil
}

// isIdle reports whether no frame is waiting or being written.
func (o *outbox) isIdle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.to != nil && !o.to.writing && !o.out.HasNext()
}

// position returns the end of the frames that were sent, and how many bytes of them the peer has not acknowledged.
func (o *outbox) position() (end uint64, kept int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.out.Position(), o.out.Kept()
}

// detach takes the pipe from the outbox. Frames that the peer has not acknowledged wait for the next one.
func (o *outbox) detach() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.to != nil {
		o.to.wake.Broadcast()
		o.to = nil
	}
	if o.out.Kept() > 0 {
		o.need = cmp.Or(o.need, o.link.Purpose(), Again)
	}
}

// needs returns the purpose of the frames that wait for a connection; NoPurpose if they do not need one.
func (o *outbox) needs() Purpose {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch kept := o.out.Kept(); {
	case kept == 0:
		return NoPurpose
	case o.need == NoPurpose && kept > quietMax:
		return Report
	}
	return o.need
}

func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed = true; o.to != nil {
		o.to.wake.Broadcast()
	}
}
