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
// turns after each segment. The lock of the lane guards it.
type courier struct {
	bulk   *bulk
	path   *path
	pipe   transport.Sender
	vector transport.VectorWriter // nil if the pipe is none

	wake    sync.Cond
	queue   []*Transfer
	load    int       // bytes to be sent, of all transfers
	current *Transfer // whose payload the goroutine is writing
	bye     bool      // to be said when the queue is empty
	started bool
	head    []byte
	pieces  [2][]byte
}

func newCourier(b *bulk, at *path, p transport.Sender, pre wire.Preamble) *courier {
	c := &courier{bulk: b, path: at, pipe: p}
	c.vector, _ = p.(transport.VectorWriter)
	c.wake.L = &b.mu
	c.head = pre.Append(make([]byte, 0, wire.FrameSizeMax))
	if try, ok := p.(transport.TryWriter); ok && try.TryWrite(c.head) {
		c.head = c.head[:0]
		return c
	}
	c.start()
	return c
}

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
		switch {
		case len(c.head) > 0:
			c.write(c.takeHead(), nil)
		case len(c.queue) > 0:
			c.segment()
		case c.bye:
			c.bye = false
			y := wire.Bye{Lane: wire.Bulk}
			c.write(y.Append(c.takeHead(), wire.TypeBye), nil)
		default:
			c.wake.Wait()
		}
	}
}

// segment sends the next piece of the first transfer, which then goes to the
// end of the queue.
func (c *courier) segment() {
	t := c.queue[0]
	c.queue = slices.Delete(c.queue, 0, 1)
	left := t.size - t.sent
	p := t.next.piece(t.Data, t.More, wire.SegmentMax)
	s := wire.Segment{Grant: t.Grant, Length: len(p)}
	c.current = t
	c.write(s.Append(c.takeHead()), p)
	if c.current != t {
		c.load -= left
		return // recalled, and cut off from its data, or not wholly sent
	}
	c.current = nil
	t.sent += len(p)
	t.next.advance(len(p))
	c.load -= len(p)
	switch {
	case t.recalled:
		c.load -= left - len(p)
		c.wake.Broadcast()
	case t.sent < t.size:
		c.queue = append(c.queue, t)
	default:
		c.bulk.mu.Unlock()
		t.Owner.Delivered(t)
		c.bulk.mu.Lock()
	}
}

// takeHead returns the buffer for the next header. The preamble of the lane is
// in it if it could not be sent at once.
func (c *courier) takeHead() []byte {
	h := c.head
	c.head = h[:0]
	return h
}

// write writes head and then p, which belongs to the current transfer. It
// unlocks while it writes. When the transfer is recalled meanwhile, it goes on
// with a copy of p and leaves no transfer current. Neither does it when it
// fails.
func (c *courier) write(head, p []byte) {
	b := c.bulk
	for len(head)+len(p) > 0 && !b.closed {
		b.mu.Unlock()
		n, err := c.put(head, p)
		b.mu.Lock()
		k := min(n, len(head))
		head, p = head[k:], p[n-k:]
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			if c.current != nil && c.current.recalled {
				p = slices.Clone(p)
				c.letGo()
			}
			c.pipe.SetWriteDeadline(time.Time{})
		default:
			b.closed = true
			c.letGo()
			b.mu.Unlock()
			b.link.broken(c.path, fmt.Errorf("link: write to the bulk lane: %w", err))
			b.mu.Lock()
		}
	}
	if len(head)+len(p) > 0 {
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

// letGo says that the data of the current transfer is no longer used.
func (c *courier) letGo() {
	c.current = nil
	c.wake.Broadcast()
}
