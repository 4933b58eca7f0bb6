package link

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// past is a deadline that interrupts what blocks now.
var past = time.Unix(1, 0)

// A courier writes transfers to a pipe of the bulk lane, on which they take
// turns after each segment. Where the pipe can tell how much it takes without
// blocking, Push and visitors of the link write what they can, and the
// goroutine of the courier what is left. The lock of the lane guards it.
type courier struct {
	bulk   *bulk
	path   *path
	pipe   transport.Sender
	parts  transport.PartWriter   // nil if the pipe cannot
	vector transport.VectorWriter // likewise

	wake    sync.Cond
	queue   []*Transfer
	load    int       // bytes to be sent, of all transfers
	current *Transfer // whose payload is in body
	bye     bool      // to be said when the queue is empty
	started bool      // the goroutine runs
	busy    bool      // somebody writes head and body, with the lane unlocked
	writing bool      // that is the goroutine, and may block
	cut     bool      // by a deadline, which is still set

	// What is left of the segment, or whatever else, that is being written.
	head, body []byte
	size       int    // of the body, when it began
	sent       uint64 // bytes that the pipe has taken

	room   [wire.FrameSizeMax]byte // for head
	pieces [2][]byte
}

func newCourier(b *bulk, at *path, p transport.Sender, pre wire.Preamble) *courier {
	c := &courier{bulk: b, path: at, pipe: p}
	can := transport.CapabilitiesOf(p)
	c.parts, c.vector = can.PartWriter, can.VectorWriter
	c.wake.L = &b.mu
	c.head = pre.Append(c.room[:0])
	if can.TryWriter != nil && can.TryWriter.TryWrite(c.head) {
		c.sent = uint64(len(c.head))
		c.head = nil
		return c
	}
	c.start()
	return c
}

// start has the goroutine write what there is.
func (c *courier) start() {
	if !c.started {
		c.started = true
		c.bulk.link.writers.Go(c.run)
	}
	c.wake.Broadcast()
}

func (c *courier) run() {
	b := c.bulk
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.closed {
		if c.busy || !c.begin() {
			c.wake.Wait()
			continue
		}
		c.write()
		b.tell(c.finish())
	}
}

// begin takes what is to be written next, unless there is something already. It
// reports whether there is anything.
func (c *courier) begin() bool {
	switch {
	case len(c.head)+len(c.body) > 0:
	case len(c.queue) > 0:
		t := c.queue[0]
		c.queue = slices.Delete(c.queue, 0, 1)
		c.current, c.body = t, t.next.piece(t.Data, t.More, wire.SegmentMax)
		c.size = len(c.body)
		s := wire.Segment{Grant: t.Grant, Length: c.size}
		c.head = s.Append(c.room[:0])
	case c.bye:
		c.bye = false
		y := wire.Bye{Lane: wire.Bulk}
		c.head = y.Append(c.room[:0], wire.TypeBye)
	default:
		return false
	}
	return true
}

// idle reports whether there is nothing to be written.
func (c *courier) idle() bool {
	return len(c.head)+len(c.body) == 0 && len(c.queue) == 0 && !c.bye
}

// finish ends the segment that has been written, if it has been wholly. The
// transfer then goes to the end of the queue, or is returned if that was the
// last of it.
func (c *courier) finish() *Transfer {
	t := c.current
	if t == nil || len(c.head)+len(c.body) > 0 {
		return nil
	}
	c.current, c.body = nil, nil
	t.sent += c.size
	t.next.advance(c.size)
	c.load -= c.size
	if t.sent < t.size {
		c.queue = append(c.queue, t)
		return nil
	}
	return t
}

// write writes what has begun. It unlocks while it writes, and may block.
func (c *courier) write() {
	b := c.bulk
	for len(c.head)+len(c.body) > 0 && !b.closed {
		head, body := c.head, c.body
		c.busy, c.writing = true, true
		b.mu.Unlock()
		n, err := c.put(head, body)
		b.mu.Lock()
		c.busy, c.writing = false, false
		c.wrote(n)
		if c.cut {
			c.cut = false
			c.pipe.SetWriteDeadline(time.Time{})
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			b.closed = true
			c.letGo()
			b.mu.Unlock()
			b.link.broken(c.path, fmt.Errorf("link: write to the bulk lane: %w", err))
			b.mu.Lock()
		}
	}
	if len(c.head)+len(c.body) > 0 {
		c.letGo()
	}
}

// put writes head and p with a single Write if the pipe can do that, otherwise
// the first that is not empty.
func (c *courier) put(head, p []byte) (int, error) {
	switch {
	case len(head) == 0:
		return c.pipe.Write(p)
	case len(p) == 0 || c.vector == nil:
		return c.pipe.Write(head)
	}
	c.pieces = [2][]byte{head, p}
	n, err := c.vector.WriteVectored(c.pieces[:])
	c.pieces = [2][]byte{}
	return n, err
}

// push writes what the pipe takes without blocking, up to the end of a segment.
// It returns how many bytes those were and a transfer of which they were the
// last, and reports whether the pipe may take more. It unlocks while it writes.
func (c *courier) push() (n int, sent *Transfer, more bool) {
	b := c.bulk
	if c.busy || b.closed || !c.begin() {
		return 0, nil, false
	}
	c.busy = true
	c.pieces = [2][]byte{c.head, c.body}
	b.mu.Unlock()
	n = c.parts.TryWritePart(c.pieces[:])
	b.mu.Lock()
	c.busy, c.pieces = false, [2][]byte{}
	c.wrote(n)
	more = len(c.head)+len(c.body) == 0
	return n, c.finish(), more
}

// wrote takes n bytes off what has begun. If the transfer was recalled meanwhile
// the rest of the segment is sent from a copy.
func (c *courier) wrote(n int) {
	c.sent += uint64(n)
	k := min(n, len(c.head))
	c.head, c.body = c.head[k:], c.body[n-k:]
	if c.current != nil && c.current.recalled {
		c.copyRest()
	}
}

// copyRest makes what is left of the segment independent of its transfer.
func (c *courier) copyRest() {
	c.body = slices.Clone(c.body)
	c.letGo()
}

// letGo says that the data of the current transfer is no longer used, and that
// no more of it will be sent.
func (c *courier) letGo() {
	if t := c.current; t != nil {
		c.load -= t.size - t.sent
	}
	c.current = nil
	c.wake.Broadcast()
}
