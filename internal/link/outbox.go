package link

import (
	"fmt"
	"sync"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// outboxKeepMax is the largest buffer that an outbox keeps when it is idle.
const outboxKeepMax = 256 << 10

// directBytesMin is the shortest payload that is worth to be written by itself.
const directBytesMin = 2 << 10

// An outbox sends frames on a lane in order, without blocking its callers. A
// frame goes out at once where the pipe can tell that it would not block.
// Otherwise a goroutine writes it, together with all that has come since.
// What is in an outbox is bounded by credit, and by what the peer has asked
// for.
type outbox struct {
	link *Link
	lane wire.Lane
	at   *path
	pipe transport.Sender          // nil until it is known where the lane is
	try  transport.TryWriter       // nil if the pipe cannot
	vec  transport.TryVectorWriter // likewise

	mu      sync.Mutex
	wake    sync.Cond
	pending []byte   // frames that wait
	spare   []byte   // the other buffer
	sent    uint64   // bytes given to the pipe
	pieces  [][]byte // memory for commitWith
	started bool     // the goroutine runs
	writing bool     // it is in Write
	closed  bool
}

func (o *outbox) init(l *Link, pre wire.Preamble) {
	o.link, o.lane = l, pre.Lane
	o.wake.L = &o.mu
	o.commit(pre.Append(o.begin()))
}

// open gives the outbox its pipe, and sends what has come by now.
func (o *outbox) open(at *path, p transport.Sender) {
	b := o.begin()
	o.at, o.pipe = at, p
	can := transport.CapabilitiesOf(p)
	o.try, o.vec = can.TryWriter, can.TryVectorWriter
	o.commit(b)
}

// begin locks the outbox and returns the buffer to append frames to. A call
// of commit must follow.
func (o *outbox) begin() []byte {
	o.mu.Lock()
	return o.pending
}

// commit sends what has been appended to b since begin returned it.
func (o *outbox) commit(b []byte) {
	o.pending = b
	switch {
	case o.closed:
		o.pending = o.pending[:0]
	case o.writing || o.pipe == nil:
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
}

// commitWith is commit of b and a payload behind it, of which there may be more
// behind the first. A long one is copied only once, where the pipe can take it
// from where it lies.
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

// keep empties b, or lets go of it if it has grown too large to keep.
func keep(b []byte) []byte {
	if cap(b) > outboxKeepMax {
		return nil
	}
	return b[:0]
}
