package link

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A Transfer is a payload for a peer that has granted it. The exported fields are set before
// [Link.Deliver] and not changed until Owner is notified or Recall has returned.
type Transfer struct {
	Grant uint64
	Data  []byte
	More  [][]byte // further regions of the payload, behind Data
	// Fetch, if not nil, says that Data is memory of a device that only remote writes access. It returns a copy in memory of the
	// host of n bytes from offset at on, for a pipe, or nil if that fails: the link then drops the transfer, and the owner must
	// end it otherwise. It may block, and is called without locks, for one segment at a time: other transfers of
	// the pipe wait for it.
	Fetch func(at, n int) []byte
	// Stale says that Data has not all of the payload, so that it is not written remotely: Fetch returns it.
	Stale bool
	Owner interface {
		// Delivered is called when the payload may be used again. It must not block.
		Delivered(t *Transfer)
	}
	// Move and Channel identify the transfer for its owner.
	Move, Channel int

	writer   *pipeWriter         // nil while the transfer waits for one
	key      transport.RemoteKey // of the memory of the peer; zero if the payload goes through a pipe
	size     int
	sent     int
	next     cursor
	fetched  []byte // the next segment, by Fetch; nil before
	recalled bool
}

// A bulk is the outgoing bulk lane. It opens its pipes when a transfer is delivered or expected, on a
// goroutine; until then transfers wait. Each pipe has a pipeWriter. Push and pollings write payloads,
// and otherwise the goroutines of the writers.
type bulk struct {
	link *Link

	mu       sync.Mutex // guards the writers as well
	at       *path      // that carries the lane; nil without a connection, and before the data lane is open
	writers  []*pipeWriter
	waiting  []*Transfer // for pipes
	expected bool        // OpenBulk was called while at was nil
	opening  bool        // a goroutine opens the pipes
	unopened bool        // our goodbye has said that the lane has no pipes
	failures int         // consecutive connections on which the lane could not be opened
	keys     []wire.Key  // of the peer, for transfers to come
	pollers  int         // pollings that will push
	bye      bool        // a goodbye is due after all transfers
	closed   bool
	stopped  bool   // the pipes are being taken away
	holding  bool   // our goodbye was sent, and the link stays: transfers wait for the next pipes
	sent     uint64 // bytes that earlier pipes have taken, without preambles and goodbyes
	begun    uint64 // segments given to pipes, also in part; see wire.Resume

	opened   atomic.Bool // the lane has pipes, opens them, or has ended without: OpenBulk has no effect
	pushable atomic.Bool // a pipe has a PartWriter
	busy     atomic.Bool // a writer may have something to write
}

const (
	// pushMax bounds the bytes that Push writes to a pipe, rounded up to a segment: its caller
	// may have other links to serve. Without a polling, the goroutine of the writer writes
	// longer payloads.
	pushMax = wire.SegmentMax
	// polledMax bounds the bytes that pollings write. Longer payloads take so long that two
	// processors are better than one.
	polledMax = 4 * wire.SegmentMax
)

// attach gives the lane the path for its pipes. It opens them now if transfers wait or are expected, or if a
// goodbye is due.
func (b *bulk) attach(at *path) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.stopped {
		return
	}
	b.at = at
	if b.expected || b.bye || len(b.waiting) > 0 {
		b.openLocked()
	}
}

// openLocked makes a goroutine open the pipes, unless the lane has them or gets them already, cannot have
// them yet, or has ended without.
func (b *bulk) openLocked() {
	if b.at == nil || b.opening || b.unopened || b.closed || b.stopped || len(b.writers) > 0 {
		return
	}
	b.opening = true
	b.opened.Store(true)
	at := b.at
	at.of.writers.Go(func() { at.of.openBulk(at) })
}

// OpenBulk makes the link open the pipes of its bulk lane if it has not done so, since a [Link.Deliver] will
// follow. It does not block. Without it the first Deliver opens them. A pending link opens them when it
// has a connection.
func (l *Link) OpenBulk() {
	b := &l.exchange().bulk
	if b.opened.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = true
	b.openLocked()
}

// addFailure counts a connection on which the lane could not be opened, and returns the number of
// consecutive ones.
func (b *bulk) addFailure() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures++
	return b.failures
}

// open gives the lane its pipes.
func (b *bulk) open(at *path, pipes []transport.Sender) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.stopped {
		return
	}
	b.opening, b.failures = false, 0
	for i, p := range pipes {
		pre := wire.Preamble{Lane: wire.Bulk, Index: uint8(i), Others: uint8(len(pipes) - 1)}
		w := newPipeWriterLocked(b, at, p, pre)
		b.writers = append(b.writers, w)
		if w.parts != nil {
			b.pushable.Store(true)
		}
	}
	for _, t := range b.waiting {
		b.assignLocked(t).startLocked()
	}
	b.waiting = nil
	if b.bye {
		b.startByeLocked()
	}
}

// assignLocked queues a transfer at the writer with the smallest load.
func (b *bulk) assignLocked(t *Transfer) *pipeWriter {
	w := slices.MinFunc(b.writers, func(x, y *pipeWriter) int { return x.load - y.load })
	t.writer = w
	w.load += t.size - t.sent
	w.queue = append(w.queue, t)
	b.busy.Store(true)
	return w
}

// Deliver queues t. The caller must call Push soon, without a lock that the owner of t
// needs. The first transfer of a connection waits until the bulk lane has its pipes; see [Link.OpenBulk]. If the link ends before t was sent completely, its owner is not notified.
func (l *Link) Deliver(t *Transfer) {
	b := &l.exchange().bulk
	b.mu.Lock()
	defer b.mu.Unlock()
	t.recalled, t.sent, t.writer, t.size, t.next, t.fetched = false, 0, nil, size(t.Data, t.More), cursor{}, nil
	if b.closed {
		return // The handler is notified of the end of the link.
	}
	t.key = b.takeKeyLocked(t.Grant, t.size)
	if t.Stale {
		t.key = transport.RemoteKey{}
	}
	if len(b.writers) == 0 || b.stopped || b.holding {
		b.waiting = append(b.waiting, t)
		b.openLocked()
		return
	}
	if w := b.assignLocked(t); w.parts == nil {
		w.startLocked()
	}
}

// Push sends the transfers of Deliver: as much as the pipes take now, and the rest later. It does
// not block. It notifies the owners of transfers that are sent completely.
func (l *Link) Push() {
	if l.exchange().bulk.pushable.Load() {
		l.push()
	}
}

// push is Push. It returns the number of bytes sent. It writes, and notifies owners, without the lock.
func (l *Link) push() (n int) {
	b := &l.exchange().bulk
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.writers {
		if w.parts == nil || b.closed || b.stopped {
			continue
		}
		w.path.of.writers.Add(1) // attachment.run waits for it.
		pushed := 0
		for more := b.pushesLocked(w); more && pushed < pushMax && w.beginPushLocked(); {
			b.mu.Unlock()
			k := w.parts.TryWritePart(w.pieces[:])
			b.mu.Lock()
			pushed += k
			var sent *Transfer
			if sent, more = w.endPushLocked(k); sent != nil {
				b.mu.Unlock()
				sent.Owner.Delivered(sent)
				b.mu.Lock()
			}
		}
		n += pushed
		b.startIfNeededLocked(w)
		w.path.of.writers.Done()
	}
	b.busy.Store(slices.ContainsFunc(b.writers, func(w *pipeWriter) bool { return !w.isIdleLocked() }))
	return n
}

// pushesLocked reports whether push writes the queue of a writer, and not its goroutine.
func (b *bulk) pushesLocked(w *pipeWriter) bool {
	return b.pollers > 0 && w.load <= polledMax || w.load <= pushMax
}

// startIfNeededLocked makes the goroutine of a writer write, unless a polling does.
func (b *bulk) startIfNeededLocked(w *pipeWriter) {
	if (b.pollers == 0 || w.load > polledMax || w.nextBlocksLocked()) && !b.closed && !b.stopped && !w.busy && !w.isIdleLocked() {
		w.startLocked()
	}
}

// addPollers changes the number of pollings that will push repeatedly. The goroutines of the
// writers take over from the last one.
func (b *bulk) addPollers(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pollers += n
	for _, w := range b.writers {
		b.startIfNeededLocked(w)
	}
}

// Recall stops t and returns when its payload is no longer used. The peer may have received a
// part of it. It still receives the rest of the current segment, from a copy, so that the lane
// stays in sync. If t was sent just before, the notification of its owner may be in progress.
func (l *Link) Recall(t *Transfer) {
	b := &l.exchange().bulk
	b.mu.Lock()
	defer b.mu.Unlock()
	t.recalled = true
	if i := slices.Index(b.waiting, t); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
	w := t.writer
	if w == nil {
		return
	}
	if i := slices.Index(w.queue, t); i >= 0 {
		w.queue = slices.Delete(w.queue, i, i+1)
		w.load -= t.size - t.sent
	}
	for w.current == t {
		switch {
		case !w.busy:
			w.copyRestLocked()
			return
		case w.writing:
			w.cut = true
			w.pipe.SetWriteDeadline(past)
			if w.placement == placing {
				w.interrupt()
			}
		}
		w.wake.Wait()
	}
}

// Delivering returns the bytes of t that have been sent in complete segments.
func (l *Link) Delivering(t *Transfer) int {
	l.exchange().bulk.mu.Lock()
	defer l.exchange().bulk.mu.Unlock()
	return t.sent
}

// sayBye ends the lane after the queued transfers. If the link stays, transfers that are delivered after the
// goodbye wait for the next connection. While the lane opens its pipes, they are still sent on this one. It
// reports whether the lane ends without pipes. Then no transfer waits, none is sent on this connection, and the caller says so on the control lane.
func (b *bulk) sayBye(idle bool) (unopened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bye, b.holding = true, idle
	switch {
	case b.closed || b.stopped:
	case len(b.writers) == 0 && !b.opening && len(b.waiting) == 0:
		b.unopened = true
		b.opened.Store(true)
	default:
		b.startByeLocked()
	}
	return b.unopened
}

// startByeLocked makes the writers say goodbye after their transfers.
func (b *bulk) startByeLocked() {
	b.busy.Store(true)
	for _, w := range b.writers {
		w.bye = true
		w.startLocked()
	}
}

// stop makes the writers stop. attachment.run waits for their goroutines.
func (b *bulk) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	for _, w := range b.writers {
		w.wake.Broadcast()
	}
}

// detach takes the pipes from the lane, after stop. Transfers between two segments wait for the next
// pipes. The peer cannot have received the rest of one in the middle of a segment.
func (b *bulk) detach() {
	b.mu.Lock()
	sent := b.detachLocked()
	b.mu.Unlock()
	for _, t := range sent {
		t.Owner.Delivered(t)
	}
}

// detachLocked is detach. It returns the transfers that are sent completely, for their owners.
func (b *bulk) detachLocked() (sent []*Transfer) {
	var again []*Transfer
	for _, w := range b.writers {
		if w.placement != noPlacement {
			w.unplaceLocked()
		}
		if t := w.finishLocked(); t != nil {
			sent = append(sent, t)
		}
		if w.current != nil {
			w.releaseTransferLocked()
		}
		b.sent += w.sent - uint64(w.own-len(w.head)) // If head belongs to a segment, a frame was lost, and the link ends.
		again = append(again, w.queue...)
		w.queue = nil
	}
	b.waiting = append(again, b.waiting...)
	for _, t := range b.waiting { // The keys were those of the connection.
		t.writer, t.key = nil, transport.RemoteKey{}
	}
	b.keys = nil
	b.at, b.writers, b.bye, b.stopped, b.holding = nil, nil, false, false, false
	b.expected, b.opening, b.unopened = false, false, false
	b.opened.Store(false)
	b.pushable.Store(false)
	b.busy.Store(false)
	return sent
}

// isIdle reports whether no transfer is waiting or being written, and the pipes are not being opened.
func (b *bulk) isIdle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting) == 0 && !b.opening && !slices.ContainsFunc(b.writers, func(w *pipeWriter) bool { return !w.isIdleLocked() || w.busy })
}

func (b *bulk) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, w := range b.writers {
		w.wake.Broadcast()
	}
}
