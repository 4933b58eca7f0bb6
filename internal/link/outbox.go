package link

import (
	"fmt"
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
type outbox struct {
	link *Link
	lane wire.Lane
	at   *path
	pipe transport.Sender          // nil before open, when frames wait in pending
	try  transport.TryWriter       // nil without the capability
	vec  transport.TryVectorWriter // nil without the capability

	mu      sync.Mutex
	wake    sync.Cond
	pending []byte   // frames to be written
	spare   []byte   // the other buffer
	sent    uint64   // bytes given to the pipe
	pieces  [][]byte // memory for commitWith
	started bool     // the goroutine runs
	writing bool     // the goroutine is in Write
	closed  bool
}

func (o *outbox) init(l *Link, lane wire.Lane) {
	o.link, o.lane = l, lane
	o.wake.L = &o.mu
}

// open gives the outbox its pipe, and sends the preamble, unless it is nil, and the pending frames.
func (o *outbox) open(at *path, p transport.Sender, pre *wire.Preamble) {
	b := o.begin()
	if pre != nil {
		b = append(pre.Append(nil), b...)
	}
	o.at, o.pipe = at, p
	can := transport.CapabilitiesOf(p)
	o.try, o.vec = can.TryWriter, can.TryVectorWriter
	o.commit(b)
}

// begin locks the outbox and returns the buffer for further frames. The caller appends them
// and calls commit, which unlocks.
func (o *outbox) begin() []byte {
	o.mu.Lock()
	return o.pending
}

// post sends the frame that add appends.
func (o *outbox) post(add func(b []byte) []byte) { o.commit(add(o.begin())) }

// commit sends the frames that were appended to the buffer of begin.
func (o *outbox) commit(b []byte) {
	o.pending = b
	purpose := NoPurpose
	switch {
	case o.closed:
		o.pending = o.pending[:0]
	case o.pipe == nil:
		purpose = o.link.Purpose()
		if purpose == NoPurpose {
			purpose = purposeOf(b)
		}
	case o.writing || len(b) == 0:
	case o.try != nil && o.try.TryWrite(b):
		o.sent += uint64(len(b))
		o.pending = keep(b)
	default:
		if !o.started {
			o.started = true
			o.link.writers.Go(o.run)
		}
		o.wake.Signal()
	}
	o.mu.Unlock()
	if purpose != NoPurpose {
		o.link.Need(purpose)
	}
}

// quietMax is the number of bytes of frames that do not need a connection which a pending link
// keeps. With more, it needs one.
const quietMax = 4 << 10

// postQuiet is post for a frame that a pending link keeps until another frame needs a connection.
func (o *outbox) postQuiet(add func(b []byte) []byte) {
	b := add(o.begin())
	if o.pipe != nil || o.closed || len(b) > quietMax {
		o.commit(b)
		return
	}
	o.pending = b
	o.mu.Unlock()
}

// commitWith is commit with a payload behind b, in one or more regions. With a
// TryVectorWriter a long payload is written from its own memory.
func (o *outbox) commitWith(b, payload []byte, more [][]byte) {
	if len(payload) >= directBytesMin && o.vec != nil && !o.writing && !o.closed {
		o.pieces = append(append(o.pieces[:0], b, payload), more...)
		sent := o.vec.TryWriteVectored(o.pieces)
		clear(o.pieces)
		if sent {
			o.sent += uint64(len(b) + size(payload, more))
			o.pending = keep(b)
			o.mu.Unlock()
			return
		}
	}
	b = append(b, payload...)
	for _, p := range more {
		b = append(b, p...)
	}
	o.commit(b)
}

func (o *outbox) run() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.closed {
		if len(o.pending) == 0 {
			o.wake.Wait()
			continue
		}
		b := o.pending
		o.pending, o.spare, o.writing = o.spare[:0], nil, true
		o.sent += uint64(len(b))
		o.mu.Unlock()
		_, err := o.pipe.Write(b)
		o.mu.Lock()
		o.spare, o.writing = keep(b), false
		if err != nil {
			o.closed = true
			o.mu.Unlock()
			o.link.broken(o.at, fmt.Errorf("link: write to the %v lane: %w", o.lane, err))
			o.mu.Lock()
		}
	}
}

func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.wake.Broadcast()
}

// keep returns b for reuse, emptied, or nil if it is too large to keep.
func keep(b []byte) []byte {
	if cap(b) > outboxKeepMax {
		return nil
	}
	return b[:0]
}
