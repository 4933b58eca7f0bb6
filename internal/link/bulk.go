package link

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nexar-go/nexar/internal/link/lane"
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
	Owner interface {
		// Delivered is called when the peer has received the payload, or needs it no more. It must not block.
		Delivered(t *Transfer)
	}
	// Move and Channel identify the transfer for its owner.
	Move, Channel int
	// Stale says that Data has not all of the payload, so that it is not written remotely: Fetch returns it.
	Stale bool

	recalled bool
	finished bool // the peer needs no more of it, while a segment is being written
	waited   bool // a connection has begun since Deliver
	transfer lane.Transfer
	writer   *pipeWriter         // nil while the transfer waits for one
	key      transport.RemoteKey // of the memory of the peer; zero if the payload goes through a pipe
	next     cursor
	fetched  []byte // the next segment, by Fetch; nil before
}

// A bulk is the outgoing bulk lane. It opens its pipes when a transfer is delivered or expected, on a
// goroutine; until then transfers wait. Each pipe has a pipeWriter. Push and pollings write payloads,
// and otherwise the goroutines of the writers.
type bulk struct {
	link *Link

	mu        sync.Mutex // guards the writers as well
	at        *path      // that carries the lane; nil without a connection, and before the data lane is open
	writers   []*pipeWriter
	transfers lane.Transfers // that are not delivered
	waiting   []*Transfer    // those of them that wait for pipes
	expected  bool           // OpenBulk was called while at was nil
	opening   bool           // a goroutine opens the pipes
	failures  int            // consecutive connections on which the lane could not be opened
	keys      []wire.Key     // of the peer, for transfers to come
	closed    bool
	stopped   bool          // the pipes are being taken away
	sent      uint64        // bytes of payload that pipes have taken
	drained   chan struct{} // closed when no transfer is left; nil unless the link closes

	opened   atomic.Bool  // the lane has pipes, or opens them: OpenBulk has no effect
	pushable atomic.Bool  // a pipe has a PartWriter
	busy     atomic.Bool  // a writer may have something to write
	pollers  atomic.Int32 // pollings that will push
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

// attach gives the lane the path for its pipes. It opens them now if transfers wait or are expected.
func (b *bulk) attach(at *path) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.stopped {
		return
	}
	b.at = at
	if b.expected || len(b.waiting) > 0 {
		b.openLocked()
	}
}

// openLocked makes a goroutine open the pipes, unless the lane has them or gets them already, or cannot have
// them yet.
func (b *bulk) openLocked() {
	if b.at == nil || b.opening || b.closed || b.stopped || len(b.writers) > 0 {
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
}

// assignLocked queues a transfer at the writer with the smallest load.
func (b *bulk) assignLocked(t *Transfer) *pipeWriter {
	w := slices.MinFunc(b.writers, func(x, y *pipeWriter) int { return x.load - y.load })
	t.writer = w
	w.load += t.rest()
	w.queue = append(w.queue, t)
	b.busy.Store(true)
	return w
}

// rest returns the number of bytes that are to be sent.
func (t *Transfer) rest() int { return t.transfer.Size() - t.transfer.Sent() }

// Deliver queues t. The caller must call Push soon, without a lock that the owner of t
// needs. The first transfer of a connection waits until the bulk lane has its pipes; see [Link.OpenBulk]. If the link ends before t
// was delivered, its owner is not notified.
func (l *Link) Deliver(t *Transfer) {
	b := &l.exchange().bulk
	if err := b.deliver(t); err != nil {
		go l.Fail(fmt.Errorf("link: protocol error: %w", err)) // The caller may hold a lock that the Handler needs.
	}
}

func (b *bulk) deliver(t *Transfer) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.recalled, t.finished, t.waited, t.writer, t.next, t.fetched = false, false, false, nil, cursor{}, nil
	if b.closed {
		return nil // The handler is notified of the end of the link.
	}
	t.transfer.Of = t
	if err := b.transfers.Start(&t.transfer, t.Grant, size(t.Data, t.More)); err != nil {
		return err
	}
	t.key = b.takeKeyLocked(t.Grant, t.transfer.Size())
	if t.Stale {
		t.key = transport.RemoteKey{}
	}
	if len(b.writers) == 0 || b.stopped {
		b.waiting = append(b.waiting, t)
		b.openLocked()
		return nil
	}
	if w := b.assignLocked(t); w.parts == nil {
		w.startLocked()
	}
	return nil
}

// deliveredLocked ends a transfer of which the pipe has taken everything, if its connection lasts: then it is delivered.
func (b *bulk) deliveredLocked(w *pipeWriter, t *Transfer) *Transfer {
	if !t.finished && !w.path.lasts() {
		return nil // The peer will say so.
	}
	b.transfers.Recall(&t.transfer)
	b.drainedLocked()
	return t
}

// finished handles the report of the peer that a grant is filled or was withdrawn.
func (b *bulk) finished(grant uint64) error {
	b.mu.Lock()
	var t *Transfer
	open, err := b.transfers.Finished(grant)
	if open != nil {
		t = open.Of.(*Transfer)
		if b.removeLocked(t); t.writer != nil && t.writer.current == t {
			t.finished, t = true, nil // Its memory is in use until the segment is written.
		}
	}
	b.drainedLocked()
	b.mu.Unlock()
	if t != nil {
		t.Owner.Delivered(t)
	}
	return err
}

// removeLocked removes a transfer from the queues.
func (b *bulk) removeLocked(t *Transfer) {
	if i := slices.Index(b.waiting, t); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
	if w := t.writer; w != nil {
		if i := slices.Index(w.queue, t); i >= 0 {
			w.queue = slices.Delete(w.queue, i, i+1)
			w.load -= t.rest()
		}
	}
}

// drain returns a channel that is closed when all transfers are delivered.
func (b *bulk) drain() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.drained == nil {
		b.drained = make(chan struct{})
	}
	b.drainedLocked()
	return b.drained
}

func (b *bulk) drainedLocked() {
	if b.drained != nil && !isClosed(b.drained) && (b.closed || len(b.transfers.All()) == 0) {
		close(b.drained)
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
	return b.pollers.Load() > 0 && w.load <= polledMax || w.load <= pushMax
}

// startIfNeededLocked makes the goroutine of a writer write, unless a polling does.
func (b *bulk) startIfNeededLocked(w *pipeWriter) {
	if (b.pollers.Load() == 0 || w.load > polledMax || w.nextBlocksLocked()) && !b.closed && !b.stopped && !w.busy && !w.isIdleLocked() {
		w.startLocked()
	}
}

// removePoller ends that a polling pushes repeatedly. The goroutines of the writers take over from the last one.
func (b *bulk) removePoller() {
	if b.pollers.Add(-1) > 0 || !b.busy.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
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
	b.transfers.Recall(&t.transfer)
	b.drainedLocked()
	b.removeLocked(t)
	w := t.writer
	for w != nil && w.current == t {
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
	return t.transfer.Sent()
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

// detach takes the pipes from the lane, after stop. Transfers that are not delivered wait for the next pipes.
func (b *bulk) detach() {
	b.mu.Lock()
	var finished []*Transfer
	for _, w := range b.writers {
		for _, t := range append(w.queue, w.current) { // Its segment may have gone back to the queue.
			if t != nil && t.finished {
				finished = append(finished, t)
			}
		}
		w.current, w.queue = nil, nil
		w.wake.Broadcast()
	}
	b.keys = nil // They were those of the connection.
	b.at, b.writers, b.stopped, b.expected, b.opening = nil, nil, false, false, false
	b.waiting = b.waiting[:0]
	for _, open := range b.transfers.All() {
		t := open.Of.(*Transfer)
		t.writer, t.key, t.fetched = nil, transport.RemoteKey{}, nil
		b.waiting = append(b.waiting, t)
	}
	b.opened.Store(false)
	b.pushable.Store(false)
	b.busy.Store(false)
	b.mu.Unlock()
	for _, t := range finished {
		t.Owner.Delivered(t)
	}
}

// resume goes on with the transfers where the peer is. It returns those that are delivered, for their owners.
func (b *bulk) resume(r *wire.Resume) (delivered []*Transfer, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	open, err := b.transfers.Resume(r)
	if err != nil {
		return nil, err
	}
	for _, t := range open {
		delivered = append(delivered, t.Of.(*Transfer))
		b.removeLocked(t.Of.(*Transfer))
	}
	for _, t := range b.waiting {
		t.next = cursorAt(t.transfer.Sent(), t.Data, t.More)
	}
	b.sent = r.Bulk
	b.drainedLocked()
	return delivered, nil
}

// position returns the number of bytes of payload that pipes have taken.
func (b *bulk) position() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sent
}

// isIdle reports whether no transfer is waiting or being written, and the pipes are not being opened.
func (b *bulk) isIdle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.transfers.All()) == 0 && !b.opening && !slices.ContainsFunc(b.writers, func(w *pipeWriter) bool { return !w.isIdleLocked() || w.busy })
}

func (b *bulk) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.drainedLocked()
	for _, w := range b.writers {
		w.wake.Broadcast()
	}
}
