package link

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// past is a deadline that interrupts a blocked call.
var past = time.Unix(1, 0)

// A pipeWriter writes transfers to a pipe of the bulk lane. Transfers take turns after each
// segment. If the pipe has a PartWriter, Push and pollings write as much as it takes without
// blocking, and the writer's own goroutine the rest. The lock of the lane guards it.
type pipeWriter struct {
	bulk   *bulk
	path   *path
	pipe   transport.Sender
	parts  transport.PartWriter   // nil without the capability
	vector transport.VectorWriter // nil without the capability

	wake    sync.Cond
	queue   []*Transfer
	load    int       // unsent bytes of all transfers
	current *Transfer // the transfer of body
	started bool      // the goroutine runs
	busy    bool      // head and body are being written, with the lane unlocked
	writing bool      // by the goroutine, which may block
	cut     bool      // a write deadline is set to interrupt it

	placement placement          // of the current segment
	life      context.Context    // of remote writes; nil before the first
	interrupt context.CancelFunc // ends life

	// The unwritten rest of the current segment or other frame.
	head, body []byte
	size       int // length of body at the beginning

	room   [wire.FrameSizeMax]byte // for head
	pieces [2][]byte
}

// newPipeWriterLocked returns the writer of a pipe and sends the preamble.
func newPipeWriterLocked(b *bulk, at *path, p transport.Sender, pre wire.Preamble) *pipeWriter {
	w := &pipeWriter{bulk: b, path: at, pipe: p}
	can := transport.CapabilitiesOf(p)
	w.parts, w.vector = can.PartWriter, can.VectorWriter
	w.wake.L = &b.mu
	w.head = pre.Append(w.room[:0])
	if can.TryWriter != nil && can.TryWriter.TryWrite(w.head) {
		w.head = nil
		return w
	}
	w.startLocked()
	return w
}

// startLocked makes the goroutine write.
func (w *pipeWriter) startLocked() {
	if !w.started {
		w.started = true
		w.path.of.writers.Go(w.run)
	}
	w.wake.Broadcast()
}

// run is the goroutine. It writes, and notifies owners, without the lock.
func (w *pipeWriter) run() {
	b := w.bulk
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.closed && !b.stopped {
		if w.busy || !w.beginLocked() {
			w.wake.Wait()
			continue
		}
		if w.placement == placing {
			life, key, offset, body := w.beginPlaceLocked()
			b.mu.Unlock()
			err := w.path.can.RemoteMemory.WriteRemote(life, key, offset, body)
			b.mu.Lock()
			if broken := w.placedLocked(err); broken != nil {
				b.mu.Unlock()
				w.path.of.broken(w.path, broken)
				b.mu.Lock()
			}
			continue
		}
		if w.placement == fetching {
			t := w.current
			fetch, at, n := t.Fetch, t.transfer.Sent(), min(t.rest(), wire.SegmentMax)
			w.busy, w.writing = true, true
			b.mu.Unlock()
			host := fetch(at, n)
			b.mu.Lock()
			w.fetchedLocked(host)
			continue
		}
		w.beginPlacedLocked()
		head, body := w.head, w.body
		w.busy, w.writing = true, true
		b.mu.Unlock()
		n, err := w.writeOnce(head, body)
		b.mu.Lock()
		sent, broken := w.wroteLocked(n, err)
		if sent == nil && broken == nil {
			continue
		}
		b.mu.Unlock()
		if sent != nil {
			sent.Owner.Delivered(sent)
		}
		if broken != nil {
			w.path.of.broken(w.path, broken)
		}
		b.mu.Lock()
	}
}

// hasRestLocked reports whether the current frame is not written completely.
func (w *pipeWriter) hasRestLocked() bool { return len(w.head)+len(w.body) > 0 }

// beginLocked begins the next frame unless the current one has a rest. It reports whether there
// is anything to write.
func (w *pipeWriter) beginLocked() bool {
	switch {
	case w.hasRestLocked():
	case len(w.queue) > 0:
		t := w.queue[0]
		w.queue = slices.Delete(w.queue, 0, 1)
		if w.needsFetchLocked(t) {
			w.current, w.placement = t, fetching
			break
		}
		w.current, w.body = t, t.next.piece(t.Data, t.More, wire.SegmentMax)
		w.size = len(w.body)
		if w.isRemoteLocked(t) {
			w.placement = placing
			offset, _ := t.transfer.Next(w.size)
			f := wire.Written{Grant: t.Grant, Offset: uint64(offset), Length: w.size}
			w.head = f.Append(w.room[:0])
			break
		}
		if t.Fetch != nil {
			w.body, t.fetched = t.fetched, nil
		}
		offset, _ := t.transfer.Next(w.size)
		s := wire.Segment{Grant: t.Grant, Offset: uint64(offset), Length: w.size}
		w.head = s.Append(w.room[:0])
	default:
		return false
	}
	return true
}

func (w *pipeWriter) isIdleLocked() bool {
	return !w.hasRestLocked() && len(w.queue) == 0 && w.placement != fetching
}

// finishLocked ends the current segment if it is written completely. It moves the transfer to the
// end of the queue, or returns it if it is delivered.
func (w *pipeWriter) finishLocked() *Transfer {
	t := w.current
	if t == nil || w.hasRestLocked() {
		return nil
	}
	w.current, w.body = nil, nil
	t.transfer.Wrote(w.size)
	t.next.advance(w.size)
	w.load -= w.size
	if t.rest() > 0 && !t.finished {
		w.queue = append(w.queue, t)
		return nil
	}
	w.load -= t.rest()
	return w.bulk.deliveredLocked(w, t)
}

// endWriteLocked ends a blocking call of the goroutine, and reports whether it was interrupted.
func (w *pipeWriter) endWriteLocked() (wasCut bool) {
	w.busy, w.writing = false, false
	if wasCut, w.cut = w.cut, false; wasCut {
		w.pipe.SetWriteDeadline(time.Time{})
	}
	return wasCut
}

// wroteLocked handles the result of writeOnce. It returns a transfer that is delivered, for its
// owner, and the error that breaks the connection. After an error, and when the lane ends, the rest of the
// current transfer is not written.
func (w *pipeWriter) wroteLocked(n int, err error) (sent *Transfer, broken error) {
	b := w.bulk
	w.endWriteLocked()
	w.advanceLocked(n)
	switch {
	case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
		b.stopped = true
		return w.releaseTransferLocked(), fmt.Errorf("link: write to the bulk lane: %w", err)
	case (b.closed || b.stopped) && w.hasRestLocked():
		return w.releaseTransferLocked(), nil
	}
	return w.finishLocked(), nil
}

// writeOnce writes head and body in one call if the pipe has a VectorWriter, and otherwise
// the first of them that is not empty.
func (w *pipeWriter) writeOnce(head, body []byte) (int, error) {
	switch {
	case len(head) == 0:
		return writeCounted(w.pipe, body)
	case len(body) == 0 || w.vector == nil:
		return writeCounted(w.pipe, head)
	}
	w.pieces = [2][]byte{head, body}
	n, err := w.vector.WriteVectored(w.pieces[:])
	w.pieces = [2][]byte{}
	return n, err
}

// writeCounted calls Write of a pipe. A number of bytes against its contract is an error.
func writeCounted(p transport.Sender, b []byte) (int, error) {
	n, err := p.Write(b)
	if n < 0 || n > len(b) || n < len(b) && err == nil {
		return 0, fmt.Errorf("the transport has a fault: Write of %T returned the number %d and the error %v for %d bytes", p, n, err, len(b))
	}
	return n, err
}

// beginPushLocked sets pieces for a TryWritePart without the lock, up to the end of a segment. It reports
// false if there is nothing to write, if another goroutine writes, or if the lane ends.
func (w *pipeWriter) beginPushLocked() bool {
	if w.busy || w.bulk.closed || w.bulk.stopped || w.nextBlocksLocked() || w.placement == placing || w.placement == fetching || !w.beginLocked() {
		return false
	}
	w.beginPlacedLocked()
	w.busy = true
	w.pieces = [2][]byte{w.head, w.body}
	return true
}

// endPushLocked handles the n bytes that TryWritePart has written. It returns a transfer that is now sent
// completely, for its owner, and whether the pipe may take more.
func (w *pipeWriter) endPushLocked(n int) (sent *Transfer, more bool) {
	w.busy, w.pieces = false, [2][]byte{}
	w.advanceLocked(n)
	more = !w.hasRestLocked()
	return w.finishLocked(), more
}

// advanceLocked removes n written bytes from the current frame. If its transfer was recalled
// meanwhile, the rest is sent from a copy.
func (w *pipeWriter) advanceLocked(n int) {
	k := min(n, len(w.head))
	w.bulk.sent += uint64(n - k)
	w.head, w.body = w.head[k:], w.body[n-k:]
	if w.current != nil && w.current.recalled {
		w.copyRestLocked()
	}
}

// copyRestLocked makes the rest of the segment independent of its transfer.
func (w *pipeWriter) copyRestLocked() {
	if w.placement != noPlacement {
		w.dropPlacementLocked()
		return
	}
	w.body = slices.Clone(w.body)
	w.releaseTransferLocked()
}

// releaseTransferLocked ends the current transfer on this pipe: its memory is no longer used. It returns the transfer if the peer needs
// no more of it, for its owner.
func (w *pipeWriter) releaseTransferLocked() (finished *Transfer) {
	if t := w.current; t != nil {
		if w.load -= t.rest(); t.finished {
			finished = t
		}
	}
	w.current = nil
	w.wake.Broadcast()
	return finished
}
