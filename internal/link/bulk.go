package link

import (
	"slices"
	"sync"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A Transfer is a payload on its way to a peer that has granted it. The
// exported fields are set before Link.Deliver and not changed until Owner is
// told of the end, or Recall has returned.
type Transfer struct {
	Grant uint64
	Data  []byte
	More  [][]byte // of the payload, behind Data, where it lies in several places
	Owner interface {
		// Delivered says that the payload may be used again. It must not block.
		Delivered(t *Transfer)
	}
	// Move and Channel are the owner's to tell transfers apart.
	Move, Channel int

	courier  *courier // nil as long as it waits for one
	size     int
	sent     int
	next     cursor
	recalled bool
}

// A bulk is the bulk lane on its way out. Each pipe has a courier. Until it is
// known where the pipes are, transfers wait.
type bulk struct {
	link *Link

	mu       sync.Mutex // guards the couriers as well
	couriers []*courier
	waiting  []*Transfer
	bye      bool // to be said after all transfers
	closed   bool
}

// open gives the lane its pipes.
func (b *bulk) open(at *path, pipes []transport.Sender) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	for i, p := range pipes {
		pre := wire.Preamble{Lane: wire.Bulk, Index: uint8(i), Others: uint8(len(pipes) - 1)}
		b.couriers = append(b.couriers, newCourier(b, at, p, pre))
	}
	for _, t := range b.waiting {
		b.dispatch(t)
	}
	b.waiting = nil
	if b.bye {
		b.farewell()
	}
}

// dispatch gives a transfer to the courier who has the least to carry. It is
// called with the lock held, as is all that follows without a lock of its own.
func (b *bulk) dispatch(t *Transfer) {
	c := slices.MinFunc(b.couriers, func(x, y *courier) int { return x.load - y.load })
	t.courier = c
	c.load += t.size
	c.queue = append(c.queue, t)
	c.start()
}

// Deliver starts to send t. It does not block. If the link ends before t was
// wholly sent, its owner is not told of t.
func (l *Link) Deliver(t *Transfer) {
	b := &l.bulk
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return // The handler has been told, or will be, that the link has ended.
	}
	t.recalled, t.sent, t.courier, t.size, t.next = false, 0, nil, size(t.Data, t.More), cursor{}
	if len(b.couriers) == 0 {
		b.waiting = append(b.waiting, t)
		return
	}
	b.dispatch(t)
}

// Recall stops t and returns when its payload is no longer used. The peer may
// have got a part of it. What it was promised of the current segment it still
// gets, from a copy, so that the lane stays in step. If t has just been sent
// its owner may still be about to hear so.
func (l *Link) Recall(t *Transfer) {
	b := &l.bulk
	b.mu.Lock()
	defer b.mu.Unlock()
	t.recalled = true
	if i := slices.Index(b.waiting, t); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
	c := t.courier
	if c == nil {
		return
	}
	if i := slices.Index(c.queue, t); i >= 0 {
		c.queue = slices.Delete(c.queue, i, i+1)
		c.load -= t.size - t.sent
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

// sayBye ends the lane after the transfers that are under way.
func (b *bulk) sayBye() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bye = true
	if !b.closed {
		b.farewell()
	}
}

func (b *bulk) farewell() {
	for _, c := range b.couriers {
		c.bye = true
		c.start()
	}
}

func (b *bulk) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, c := range b.couriers {
		c.wake.Broadcast()
	}
}
