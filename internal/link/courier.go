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

// A Transfer is a payload on its way to a peer that has granted it. The
// exported fields are set before Link.Deliver and not changed until Owner is
// told of the end, or Recall has returned.
type Transfer struct {
	Grant uint64
	Data  []byte
	Owner interface {
		// Delivered says that Data may be used again. It must not block.
		Delivered(t *Transfer)
	}
	// Move and Channel are the owner's to tell transfers apart.
	Move, Channel int

	sent     int
	recalled bool
}

// A courier writes transfers to the bulk lane, which take turns after each
// segment.
type courier struct {
	link *Link
	pipe transport.Sender

	mu      sync.Mutex
	wake    sync.Cond
	queue   []*Transfer
	current *Transfer // whose Data the goroutine is writing
	bye     bool      // to be said when the queue is empty
	started bool
	closed  bool
	head    []byte
}

func (c *courier) init(l *Link, p transport.Sender) {
	c.link, c.pipe = l, p
	c.wake.L = &c.mu
	c.head = wire.Preamble{Lane: wire.Bulk}.Append(make([]byte, 0, wire.FrameSizeMax))
	if try, ok := p.(transport.TryWriter); ok && try.TryWrite(c.head) {
		c.head = c.head[:0]
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start()
}

// Deliver starts to send t. It does not block. If the link ends before t was
// wholly sent, its owner is not told of t.
func (l *Link) Deliver(t *Transfer) {
	c := &l.bulk
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return // The handler has been told, or will be, that the link has ended.
	}
	t.recalled, t.sent = false, 0
	c.queue = append(c.queue, t)
	c.start()
}

func (c *courier) start() {
	if !c.started {
		c.started = true
		c.link.writers.Go(c.run)
	}
	c.wake.Broadcast()
}

// Recall stops t and returns when its Data is no longer used. The peer may
// have got a part of it. What it was promised of the current segment it still
// gets, from a copy, so that the lane stays in step. If t has just been sent
// its owner may still be about to hear so.
func (l *Link) Recall(t *Transfer) {
	c := &l.bulk
	c.mu.Lock()
	defer c.mu.Unlock()
	t.recalled = true
	if i := slices.Index(c.queue, t); i >= 0 {
		c.queue = slices.Delete(c.queue, i, i+1)
	}
	for c.current == t {
		c.pipe.SetWriteDeadline(past)
		c.wake.Wait()
	}
}

// Delivering is how many bytes of t have been sent, to the last whole segment.
func (l *Link) Delivering(t *Transfer) int {
	l.bulk.mu.Lock()
	defer l.bulk.mu.Unlock()
	return t.sent
}

func (c *courier) run() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.closed {
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
// end of the queue. It is called with the lock held.
func (c *courier) segment() {
	t := c.queue[0]
	c.queue = slices.Delete(c.queue, 0, 1)
	p := t.Data[t.sent:min(len(t.Data), t.sent+wire.SegmentMax)]
	s := wire.Segment{Grant: t.Grant, Length: len(p)}
	c.current = t
	c.write(s.Append(c.takeHead()), p)
	if c.current != t {
		return // recalled, and cut off from its data, or not wholly sent
	}
	c.current = nil
	t.sent += len(p)
	switch {
	case t.recalled:
		c.wake.Broadcast()
	case t.sent < len(t.Data):
		c.queue = append(c.queue, t)
	default:
		c.mu.Unlock()
		t.Owner.Delivered(t)
		c.mu.Lock()
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
	parts := [2][]byte{head, p}
	for i := range parts {
		for len(parts[i]) > 0 && !c.closed {
			c.mu.Unlock()
			n, err := c.pipe.Write(parts[i])
			c.mu.Lock()
			parts[i] = parts[i][n:]
			switch {
			case err == nil:
			case errors.Is(err, os.ErrDeadlineExceeded):
				if c.current != nil && c.current.recalled {
					parts[1] = slices.Clone(parts[1])
					c.letGo()
				}
				c.pipe.SetWriteDeadline(time.Time{})
			default:
				c.closed = true
				c.letGo()
				c.mu.Unlock()
				c.link.broken(fmt.Errorf("link: write to the bulk lane: %w", err))
				c.mu.Lock()
			}
		}
	}
	if len(parts[0])+len(parts[1]) > 0 {
		c.letGo()
	}
}

// letGo says that the data of the current transfer is no longer used.
func (c *courier) letGo() {
	c.current = nil
	c.wake.Broadcast()
}

func (c *courier) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.wake.Broadcast()
}
