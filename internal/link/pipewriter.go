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
	bye     bool      // a goodbye is due when the queue is empty
	started bool      // the goroutine runs
	busy    bool      // head and body are being written, with the lane unlocked
	writing bool      // by the goroutine, which may block
	cut     bool      // a write deadline is set to interrupt it

	// The unwritten rest of the current segment or other frame.
	head, body []byte
	size       int    // length of body at the beginning
	sent       uint64 // bytes that the pipe has taken

	room   [wire.FrameSizeMax]byte // for head
	pieces [2][]byte
}

func newPipeWriter(b *bulk, at *path, p transport.Sender, pre wire.Preamble) *pipeWriter {
	w := &pipeWriter{bulk: b, path: at, pipe: p}
	can := transport.CapabilitiesOf(p)
	w.parts, w.vector = can.PartWriter, can.VectorWriter
	w.wake.L = &b.mu
	w.head = pre.Append(w.room[:0])
	if can.TryWriter != nil && can.TryWriter.TryWrite(w.head) {
		w.sent = uint64(len(w.head))
		w.head = nil
		return w
	}
	w.start()
	return w
}

// start makes the goroutine write.
func (w *pipeWriter) start() {
	if !w.started {
		w.started = true
		w.path.of.writers.Go(w.run)
	}
	w.wake.Broadcast()
}

func (w *pipeWriter) run() {
	b := w.bulk
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.closed && !b.stopped {
		if w.busy || !w.begin() {
			w.wake.Wait()
			continue
		}
		w.write()
		b.notifyOwner(w.finish())
	}
}

// hasRest reports whether the current frame is not written completely.
func (w *pipeWriter) hasRest() bool { return len(w.head)+len(w.body) > 0 }

// begin begins the next frame unless the current one has a rest. It reports whether there
// is anything to write.
func (w *pipeWriter) begin() bool {
	switch {
	case w.hasRest():
	case len(w.queue) > 0:
		t := w.queue[0]
		w.queue = slices.Delete(w.queue, 0, 1)
		w.current, w.body = t, t.next.piece(t.Data, t.More, wire.SegmentMax)
		w.size = len(w.body)
		w.bulk.begun++
		s := wire.Segment{Grant: t.Grant, Length: w.size}
		w.head = s.Append(w.room[:0])
	case w.bye:
		w.bye = false
		y := wire.Bye{Lane: wire.Bulk, Idle: w.bulk.holding}
		w.head = y.Append(w.room[:0], wire.TypeBye)
	default:
		return false
	}
	return true
}

func (w *pipeWriter) isIdle() bool { return !w.hasRest() && len(w.queue) == 0 && !w.bye }

// finish ends the current segment if it is written completely. It moves the transfer to the
// end of the queue, or returns it if that was its last segment.
func (w *pipeWriter) finish() *Transfer {
	t := w.current
	if t == nil || w.hasRest() {
		return nil
	}
	w.current, w.body = nil, nil
	t.sent += w.size
	t.next.advance(w.size)
	w.load -= w.size
	if t.sent < t.size {
		w.queue = append(w.queue, t)
		return nil
	}
	return t
}

// write writes the current frame. It unlocks the lane meanwhile and may block.
func (w *pipeWriter) write() {
	b := w.bulk
	for w.hasRest() && !b.closed && !b.stopped {
		head, body := w.head, w.body
		w.busy, w.writing = true, true
		b.mu.Unlock()
		n, err := w.writeOnce(head, body)
		b.mu.Lock()
		w.busy, w.writing = false, false
		w.advance(n)
		if w.cut {
			w.cut = false
			w.pipe.SetWriteDeadline(time.Time{})
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			b.stopped = true
			w.releaseTransfer()
			b.mu.Unlock()
			w.path.of.broken(w.path, fmt.Errorf("link: write to the bulk lane: %w", err))
			b.mu.Lock()
		}
	}
	if w.hasRest() {
		w.releaseTransfer()
	}
}

// writeOnce writes head and body in one call if the pipe has a VectorWriter, and otherwise
// the first of them that is not empty.
func (w *pipeWriter) writeOnce(head, body []byte) (int, error) {
	switch {
	case len(head) == 0:
		return w.pipe.Write(body)
	case len(body) == 0 || w.vector == nil:
		return w.pipe.Write(head)
	}
	w.pieces = [2][]byte{head, body}
	n, err := w.vector.WriteVectored(w.pieces[:])
	w.pieces = [2][]byte{}
	return n, err
}

// push writes as much as the pipe takes without blocking, up to the end of a segment. It returns the
// number of bytes, a transfer that is now sent completely, and whether the pipe may take
// more. It unlocks the lane meanwhile.
func (w *pipeWriter) push() (n int, sent *Transfer, more bool) {
	b := w.bulk
	if w.busy || b.closed || b.stopped || !w.begin() {
		return 0, nil, false
	}
	w.busy = true
	w.pieces = [2][]byte{w.head, w.body}
	b.mu.Unlock()
	n = w.parts.TryWritePart(w.pieces[:])
	b.mu.Lock()
	w.busy, w.pieces = false, [2][]byte{}
	w.advance(n)
	more = !w.hasRest()
	return n, w.finish(), more
}

// advance removes n written bytes from the current frame. If its transfer was recalled
// meanwhile, the rest is sent from a copy.
func (w *pipeWriter) advance(n int) {
	w.sent += uint64(n)
	k := min(n, len(w.head))
	w.head, w.body = w.head[k:], w.body[n-k:]
	if w.current != nil && w.current.recalled {
		w.copyRest()
	}
}

// copyRest makes the rest of the segment independent of its transfer.
func (w *pipeWriter) copyRest() {
	w.body = slices.Clone(w.body)
	w.releaseTransfer()
}

// releaseTransfer ends the current transfer: its memory is no longer used, and no more of it
// will be sent.
func (w *pipeWriter) releaseTransfer() {
	if t := w.current; t != nil {
		w.load -= t.size - t.sent
	}
	w.current = nil
	w.wake.Broadcast()
}
