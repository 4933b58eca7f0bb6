package link

import (
	"slices"
	"sync"
	"sync/atomic"

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
// known where the pipes are, transfers wait. Payloads are written by whoever
// Pushes, by visitors, and otherwise by the goroutines of the couriers.
type bulk struct {
	link *Link

	mu       sync.Mutex // guards the couriers as well
	couriers []*courier
	waiting  []*Transfer
	pushers  int  // visitors, who will push
	bye      bool // to be said after all transfers
	closed   bool

	pushable atomic.Bool // a pipe is a transport.PartWriter
	laden    atomic.Bool // a courier may have something to carry
}

const (
	// pushMax is how many bytes Push writes to a pipe, but for the rest of a
	// segment: whoever calls it may have others to serve. Where no visitor will
	// go on, the goroutine of the courier writes whatever is longer.
	pushMax = wire.SegmentMax
	// visitedMax is up to how many bytes visitors write themselves. What is
	// longer takes so long that two processors are better than one.
	visitedMax = 4 * wire.SegmentMax
)

// open gives the lane its pipes.
func (b *bulk) open(at *path, pipes []transport.Sender) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	for i, p := range pipes {
		pre := wire.Preamble{Lane: wire.Bulk, Index: uint8(i), Others: uint8(len(pipes) - 1)}
		c := newCourier(b, at, p, pre)
		b.couriers = append(b.couriers, c)
		if c.parts != nil {
			b.pushable.Store(true)
		}
	}
	for _, t := range b.waiting {
		b.dispatch(t).start()
	}
	b.waiting = nil
	if b.bye {
		b.farewell()
	}
}

// dispatch gives a transfer to the courier who has the least to carry. It is
// called with the lock held, as is all that follows without a lock of its own.
func (b *bulk) dispatch(t *Transfer) *courier {
	c := slices.MinFunc(b.couriers, func(x, y *courier) int { return x.load - y.load })
	t.courier = c
	c.load += t.size
	c.queue = append(c.queue, t)
	b.laden.Store(true)
	return c
}

// Deliver takes t to be sent. The caller is to Push before long, when he holds
// no lock that the owner of t needs. If the link ends before t was wholly sent,
// its owner is not told of t.
func (l *Link) Deliver(t *Transfer) {
	b := &l.bulk
	b.mu.Lock()
	defer b.mu.Unlock()
	t.recalled, t.sent, t.courier, t.size, t.next = false, 0, nil, size(t.Data, t.More), cursor{}
	if b.closed {
		return // The handler has been told, or will be, that the link has ended.
	}
	if len(b.couriers) == 0 {
		b.waiting = append(b.waiting, t)
		return
	}
	if c := b.dispatch(t); c.parts == nil {
		c.start()
	}
}

// Push sends what was given to Deliver: what pipes take at once, and the rest
// when they take it. It does not block, and tells the owners of what has been
// sent.
func (l *Link) Push() {
	if l.bulk.pushable.Load() {
		l.push()
	}
}

// push is Push, and returns how many bytes it has sent.
func (l *Link) push() (n int) {
	b := &l.bulk
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.couriers {
		n += b.drive(c)
	}
	b.laden.Store(slices.ContainsFunc(b.couriers, func(c *courier) bool { return !c.idle() }))
	return n
}

// drive pushes what a courier has to carry, and sees to it that somebody does
// the rest. It returns how many bytes it has sent.
func (b *bulk) drive(c *courier) (n int) {
	if c.parts == nil || b.closed {
		return 0
	}
	b.link.writers.Add(1) // whoever waits for the end of the lane waits for this
	defer b.link.writers.Done()
	if b.pushers > 0 && c.load <= visitedMax || c.load <= pushMax {
		for more := true; more && n < pushMax; {
			var t *Transfer
			var k int
			k, t, more = c.push()
			n += k
			b.tell(t)
		}
	}
	b.arrange(c)
	return n
}

// arrange has the goroutine of a courier write, unless somebody else does.
func (b *bulk) arrange(c *courier) {
	if (b.pushers == 0 || c.load > visitedMax) && !b.closed && !c.busy && !c.idle() {
		c.start()
	}
}

// attend says that a visitor will Push again and again, until leave is called.
func (b *bulk) attend() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pushers++
}

func (b *bulk) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pushers--
	for _, c := range b.couriers {
		b.arrange(c)
	}
}

// tell tells the owner of t, if any, that it has been sent. It unlocks
// meanwhile.
func (b *bulk) tell(t *Transfer) {
	if t != nil {
		b.mu.Unlock()
		t.Owner.Delivered(t)
		b.mu.Lock()
	}
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
		switch {
		case !c.busy:
			c.copyRest()
			return
		case c.writing:
			c.cut = true
			c.pipe.SetWriteDeadline(past)
		}
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
	b.laden.Store(true)
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
