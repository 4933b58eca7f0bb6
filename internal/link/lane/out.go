package lane

import (
	"fmt"
	"slices"
	"sync"

	"github.com/nexar-go/nexar/internal/wire"
)

const (
	// chunkMin is the length of the first buffer of an Out. Each is twice as long as the one before, up to large.
	chunkMin = 1 << 10
	// large is the length of buffers that are reused: a frame with the longest payload.
	large = wire.PayloadMax + 1<<10
	// sparesMax is the number of large buffers that an Out keeps for itself: what is sent between two acknowledgements.
	sparesMax = 2
	// idleMax is the number of bytes that Trim copies to free their buffers.
	idleMax = 4 << 10
)

// An Out is the sending half of a lane. It keeps numbered frames, in the buffers in which they were encoded, until the peer
// has acknowledged them.
//
// One goroutine at a time writes: it calls Next, writes, and calls Wrote. Between these calls others may append and
// acknowledge. What Next has returned stays in place meanwhile: bytes are appended behind it or to another buffer, and a
// buffer is reused only if no writer can hold it. After Resume the writer of the earlier connection may still hold bytes. It
// must not call Wrote. Wrote is not called after a failed write either: Resume says what has arrived.
type Out struct {
	tail   chunk    // to which frames are appended
	older  []chunk  // the oldest first
	spares [][]byte // large buffers, the latest last: the caches of the processor may still have it

	acked   uint64 // the peer has received the bytes before
	written uint64 // of the current connection; less than acked if the peer is faster than the return of a write
	batch   uint64 // the end of the frames that are being written; equal to written between two frames
	high    uint64 // the end of all bytes that a connection was given
	end     uint64 // of the appended frames

	transient []byte // frames of the current connection
	passed    int    // bytes of transient that are written
	lent      int    // bytes of transient that Next has returned

	shared *Buffers // may be nil

	writing bool // between Next and Wrote
	lasting bool
}

// A chunk has the bytes from position start on.
type chunk struct {
	bytes []byte
	start uint64
	held  bool // the writer of an earlier connection may hold it: it is not reused
}

func (c *chunk) end() uint64 { return c.start + uint64(len(c.bytes)) }

// Buffer returns the buffer to which the caller appends whole numbered frames for Commit. It has room for n more bytes; with
// a larger frame append makes a new one.
func (o *Out) Buffer(n int) []byte {
	if b := o.tail.bytes; cap(b)-len(b) >= n {
		return b
	}
	return o.grow(n)
}

// Buffers are large buffers for the lanes of a node, which [Out.Share] them.
type Buffers struct{ pool sync.Pool }

func (b *Buffers) get() []byte {
	if b != nil {
		if a, ok := b.pool.Get().(*[large]byte); ok {
			return a[:0]
		}
	}
	return make([]byte, 0, large)
}

func (b *Buffers) put(a []byte) {
	if b != nil {
		b.pool.Put((*[large]byte)(a[:large]))
	}
}

// Share makes the lane share buffers with others.
func (o *Out) Share(b *Buffers) { o.shared = b }

// grow begins a chunk with room for n bytes.
func (o *Out) grow(n int) []byte {
	size := max(n, chunkMin, min(2*cap(o.tail.bytes), large))
	if len(o.tail.bytes) > 0 {
		o.older = append(o.older, o.tail)
	} else {
		o.recycle(o.tail)
	}
	var b []byte
	switch last := len(o.spares) - 1; {
	case size <= large/2 || size > large: // Each size below large is used once.
		b = make([]byte, 0, size)
	case last >= 0:
		b, o.spares = o.spares[last], o.spares[:last]
	default:
		b = o.shared.get()
	}
	o.tail = chunk{bytes: b, start: o.end}
	return b
}

// recycle keeps a large buffer for reuse, unless a writer can hold it. The writer of the current connection holds the chunk
// with the byte at written.
func (o *Out) recycle(c chunk) {
	isFree := !c.held && (!o.writing || c.end() <= o.written)
	switch {
	case !isFree || cap(c.bytes) != large:
	case len(o.spares) < sparesMax:
		o.spares = append(o.spares, c.bytes[:0])
	default:
		o.shared.put(c.bytes)
	}
}

// Commit adds the frames that the caller has appended to the result of Buffer.
func (o *Out) Commit(b []byte) {
	o.end += uint64(len(b) - len(o.tail.bytes))
	o.tail.bytes = b
}

// Transient adds whole frames of the current connection. They are written before numbered frames that no write has begun.
func (o *Out) Transient(frames []byte) { o.transient = append(o.transient, frames...) }

// Next returns the next bytes to write: transient frames, and behind them numbered ones. The caller writes as much as the
// connection takes, and calls Wrote. In the middle of numbered frames there are no transient ones.
func (o *Out) Next() (transient, numbered []byte) {
	o.writing = true
	if o.written == o.batch { // between two frames
		if len(o.transient) > 0 {
			o.transient, o.passed = slices.Delete(o.transient, 0, o.passed), 0
			transient = o.transient
			o.lent = len(transient)
		}
		if o.written == o.end {
			return transient, nil
		}
		if o.batch = o.end; o.written < o.tail.start {
			o.batch = o.find(o.written).end()
		}
		o.high = max(o.high, o.batch)
	}
	c := &o.tail
	if o.written < c.start {
		c = o.find(o.written)
	}
	return transient, c.bytes[o.written-c.start : o.batch-c.start]
}

// find returns the older chunk with the byte at a position.
func (o *Out) find(position uint64) *chunk {
	i := len(o.older) - 1
	for o.older[i].start > position {
		i--
	}
	return &o.older[i]
}

// Wrote notes that the connection has taken the first n bytes of the result of Next. It returns an error if the peer has
// acknowledged more.
func (o *Out) Wrote(n int) error {
	o.writing = false
	if o.lent > 0 {
		k := min(n, o.lent)
		o.lent, n = 0, n-k
		if o.passed += k; o.passed == len(o.transient) {
			o.transient, o.passed = o.transient[:0], 0
		}
		if n == 0 {
			o.batch = o.written // No numbered frame has begun.
		}
	}
	o.written += uint64(n)
	switch {
	case o.lasting:
		o.release(o.written)
	case o.acked > o.written:
		return fmt.Errorf("lane: the peer acknowledges %d bytes, and %d were sent", o.acked, o.written)
	case o.acked == o.written:
		o.release(o.acked) // The acknowledgement came before the return of the write.
	}
	return nil
}

// Direct is Commit for a frame that the connection has taken from other memory, behind all others. The caller has appended its
// beginning to the result of Buffer; payload follows, and more.
func (o *Out) Direct(b, payload []byte, more [][]byte) {
	if o.writing || o.HasNext() {
		panic("lane: a frame was written before those that wait")
	}
	if o.lasting { // Nothing is kept.
		o.end += uint64(len(b) - len(o.tail.bytes) + len(payload))
		for _, p := range more {
			o.end += uint64(len(p))
		}
	} else {
		b = append(b, payload...)
		for _, p := range more {
			b = append(b, p...)
		}
		o.Commit(b)
	}
	o.written, o.batch, o.high = o.end, o.end, max(o.high, o.end)
	if o.lasting {
		o.release(o.end)
	}
}

// Lasting sets whether the current connection lasts as long as the process of the peer. Then written bytes count as acknowledged, and
// the connection must not be replaced while the peer lives.
func (o *Out) Lasting(is bool) { o.lasting = is }

// Ack notes that the peer has received all bytes before a position. An earlier acknowledgement may arrive later. One for bytes
// of a write that has not returned is right: Wrote compares it with the bytes that were written.
func (o *Out) Ack(position uint64) error {
	sent := o.written
	if o.writing {
		sent = o.batch
	}
	if position > sent {
		return fmt.Errorf("lane: the peer acknowledges %d bytes, and %d were sent", position, sent)
	}
	if position > o.acked {
		o.release(position)
	}
	return nil
}

// release forgets the bytes before a position.
func (o *Out) release(position uint64) {
	o.acked = position
	for len(o.older) > 0 && o.older[0].end() <= position {
		o.recycle(o.older[0])
		o.older = slices.Delete(o.older, 0, 1)
	}
	if position < o.end || o.writing || o.written < o.end {
		return
	}
	if o.tail.held || cap(o.tail.bytes) > large {
		o.tail = chunk{}
	}
	o.tail.bytes, o.tail.start = o.tail.bytes[:0], o.end
}

// Resume begins a new connection. The peer has received all bytes before a position: they are acknowledged, and Next
// returns the bytes from there on. Transient frames of the earlier connection are dropped.
func (o *Out) Resume(position uint64) error {
	switch {
	case position > o.high:
		return fmt.Errorf("lane: the peer opens a connection at byte %d, and %d were sent", position, o.high)
	case position < o.acked:
		return fmt.Errorf("lane: the peer opens a connection at byte %d, and it has acknowledged %d", position, o.acked)
	}
	if o.writing {
		for i := range o.older {
			o.older[i].held = true
		}
		o.tail.held = true
		o.transient = nil
	}
	o.transient, o.passed, o.lent, o.writing, o.lasting = o.transient[:0], 0, 0, false, false
	o.written, o.batch = position, position
	o.release(position)
	return nil
}

// Written returns the position up to which the current connection has taken the frames.
func (o *Out) Written() uint64 { return o.written }

// Waiting returns the number of bytes of numbered frames that are to be written.
func (o *Out) Waiting() int { return int(o.end - o.written) }

// HasNext reports whether there is something to write.
func (o *Out) HasNext() bool { return o.written < o.end || len(o.transient) > o.passed }

// Position returns the end of the frames that were appended.
func (o *Out) Position() uint64 { return o.end }

// Acked returns the position up to which the peer has received everything.
func (o *Out) Acked() uint64 { return o.acked }

// Kept returns the number of bytes that wait for an acknowledgement or to be written.
func (o *Out) Kept() int { return int(o.end - o.acked) }

// Transients returns the number of bytes of transient frames that are to be written.
func (o *Out) Transients() int { return len(o.transient) - o.passed }

// Memory returns the size of all buffers.
func (o *Out) Memory() int {
	n := cap(o.transient) + cap(o.tail.bytes) + len(o.spares)*large
	for _, c := range o.older {
		n += cap(c.bytes)
	}
	return n
}

// Trim frees the buffers that an idle lane does not need. The caller calls it now and then.
func (o *Out) Trim() {
	kept := o.Kept()
	if o.writing || kept > idleMax {
		return
	}
	if cap(o.transient) > idleMax && len(o.transient) == 0 {
		o.transient = nil
	}
	if kept > 0 && o.Memory() <= idleMax {
		return
	}
	rest := chunk{start: o.acked}
	for _, c := range append(o.older, o.tail) {
		if c.end() > o.acked {
			rest.bytes = append(rest.bytes, c.bytes[max(c.start, o.acked)-c.start:]...)
		}
		o.recycle(c)
	}
	for _, b := range o.spares {
		o.shared.put(b)
	}
	o.older, o.spares, o.tail = nil, nil, rest
}
