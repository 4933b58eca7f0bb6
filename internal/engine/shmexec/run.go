package shmexec

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/nexar-go/nexar/internal/plan"
)

// stripBytes is how much of a chunk goes through a row of steps at a time. A
// few strips fit into the first cache of a processor.
const stripBytes = 8 << 10

// buffers has the memory of a collective.
type buffers interface {
	// Bytes returns the memory of a span in a piece, and Length how long it is.
	// Temp is the same in all pieces.
	Bytes(s plan.Span, piece int) []byte
	Length(s plan.Span, piece int) int
}

// work is a collective to carry out.
type work struct {
	program *Program
	buffers buffers
	// pieces is how often the plan runs, and unit the length of its longest
	// chunk in any piece, in bytes, on any rank.
	pieces, unit int
	// elem is the size of an element.
	elem int
	// print is the fingerprint of the call.
	print uint32
	// reduce makes dst = a op b. It may be nil if nothing is reduced.
	reduce func(dst, a, b []byte)
	// stopped, if not nil, is set when the collective has failed, perhaps by
	// reduce itself: run ends before it posts anything more.
	stopped *atomic.Bool
	// poll is called between pieces, and now and then while run waits. Its
	// error ends run.
	poll func(ctx context.Context) error
}

// ErrStopped says that a collective was stopped before all was posted.
var ErrStopped = errors.New("shmexec: the operation has failed")

// A MismatchError says that a rank carries out something else.
type MismatchError struct{ Rank int }

func (e *MismatchError) Error() string {
	return fmt.Sprintf("shmexec: rank %d carries out another call", e.Rank)
}

// A MemoryError says that this rank has no memory for payloads: Run has posted
// nothing of the piece, and the others wait for it.
type MemoryError struct{ Err error }

func (e *MemoryError) Error() string {
	return "no memory for payloads that others read: " + e.Err.Error()
}
func (e *MemoryError) Unwrap() error { return e.Err }

// A strip is the operands of a step, of which the same part is worked on.
type strip struct {
	kind      kind
	dst, a, b []byte
}

// stride is the room that a chunk has. Chunks that are all shorter together than
// the rest of the line with the counter lie close.
func (w *work) stride() int {
	if short := (w.unit + 7) &^ 7; short*w.program.Units <= shortMax {
		return short
	}
	return (w.unit + line - 1) / line * line
}

// room returns how many bytes of payload a rank posts in a piece at the most.
func (w *work) room() int { return w.stride() * w.program.Units }

// run carries a collective out. All ranks run the same ones in the same order.
func (b *Board) run(ctx context.Context, w *work) error {
	b.stride = w.stride()
	if b.room = b.stride * w.program.Units; b.room > b.pieceBytes {
		panic(fmt.Sprintf("shmexec: a piece of %d bytes, with room for %d", b.room, b.pieceBytes))
	}
	b.place.Judge()
	b.calls++
	b.call(b.cfg.Rank, b.calls).Store(callOf(b.calls, w.print))
	for piece := range w.pieces {
		if piece > 0 {
			if err := w.poll(ctx); err != nil {
				return err
			}
		}
		if err := b.free(ctx, w, b.pieces-Depth+1); err != nil {
			return err
		}
		if err := b.piece(ctx, w, piece); err != nil {
			return err
		}
		if piece == w.pieces-1 {
			if err := b.compare(w); err != nil {
				return err
			}
		}
		b.closeSlot(w)
		b.raise(b.taken, b.pieces)
	}
	return nil
}

func callOf(number, print uint32) uint64 { return uint64(number)<<32 | uint64(print) }

// compare looks for another call at the ranks from which nothing was read. Of two
// ranks the later one sees the fingerprint of the other.
func (b *Board) compare(w *work) error {
	for _, rank := range w.program.unread {
		shown := b.call(rank, b.calls).Load()
		if uint32(shown>>32) == b.calls && uint32(shown) != w.print {
			return &MismatchError{rank}
		}
	}
	return nil
}

// closeSlot ends a piece. Ranks that post less often than others, or never,
// raise their counters as far, so that no counter falls behind for ever. No rank
// waits for these posts, which show no payload.
func (b *Board) closeSlot(w *work) {
	own, slot := b.cfg.Areas[b.cfg.Rank], b.slot(b.pieces)
	b.count += uint32(w.program.Posts)
	if word(own, slot+countAt).Load() != b.count {
		b.post(slot, b.count, w.print)
	}
	b.pieces++
}

// post raises the counter of a slot and shows the fingerprint beside it, both
// at once: each store that others look at has to get the line back from them.
func (b *Board) post(slot int, count, print uint32) {
	var both [8]byte
	binary.NativeEndian.PutUint32(both[countAt:], count)
	binary.NativeEndian.PutUint32(both[printAt:], print)
	head := b.cfg.Areas[b.cfg.Rank][slot : slot+len(both)]
	(*atomic.Uint64)(unsafe.Pointer(&head[0])).Store(binary.NativeEndian.Uint64(both[:]))
	b.rouse((*atomic.Uint32)(unsafe.Pointer(&head[countAt])))
}

// free waits until all ranks have finished a piece, whose slot is then free.
func (b *Board) free(ctx context.Context, w *work, pieces uint32) error {
	for rank, known := range b.known {
		if rank == b.cfg.Rank || int32(known-pieces) >= 0 {
			continue
		}
		if err := b.wait(ctx, w, b.takens[rank], pieces, rank); err != nil {
			return err
		}
		b.known[rank] = b.takens[rank].Load()
	}
	return nil
}

// piece runs the plan for one piece.
func (b *Board) piece(ctx context.Context, w *work, piece int) error {
	slot := b.slot(b.pieces)
	if b.body = slot + shortAt; b.room > shortMax {
		if err := b.turn(b.room); err != nil {
			return err
		}
	}
	steps := w.program.steps
	for i := 0; i < len(steps); {
		s := &steps[i]
		switch s.kind {
		case await:
			if err := b.await(ctx, w, s, slot); err != nil {
				return err
			}
		case post:
			// The combined data since the last post may be wrong. Others must not
			// take them for a result: they may end before they hear of the failure.
			if w.stopped != nil && w.stopped.Load() {
				return ErrStopped
			}
			b.post(slot, b.count+s.count, w.print)
		default:
			n := max(1, s.strip)
			b.local(w, steps[i:i+n], piece)
			i += n
			continue
		}
		i++
	}
	return nil
}

// await waits for a post. A slot is not used again before this rank is through
// with it, so that it holds what belongs to this piece, or to an earlier one.
func (b *Board) await(ctx context.Context, w *work, s *step, slot int) error {
	area := b.cfg.Areas[s.peer]
	if err := b.wait(ctx, w, word(area, slot+countAt), b.count+s.count, s.peer); err != nil {
		return err
	}
	if word(area, slot+printAt).Load() != w.print {
		return &MismatchError{s.peer}
	}
	// A rank that posts in a piece has finished those before it.
	if int32(b.pieces-b.known[s.peer]) > 0 {
		b.known[s.peer] = b.pieces
	}
	return nil
}

// local carries out copies and combinations of the same length, strip by
// strip.
func (b *Board) local(w *work, steps []step, piece int) {
	n := w.buffers.Length(steps[0].dst.Span, piece)
	if n == 0 {
		return // as in a barrier
	}
	if size := max(1, stripBytes/w.elem) * w.elem; len(steps) > 1 && n > size {
		b.strip(w, steps, piece, n, size)
		return
	}
	for i := range steps {
		s := &steps[i]
		dst, x := b.bytes(w, &s.dst, piece, n), b.bytes(w, &s.a, piece, n)
		switch {
		case s.kind == copying && s.dst.slot:
			b.stores.Write(dst, x)
		case s.kind == copying:
			copy(dst, x)
		default:
			w.reduce(dst, x, b.bytes(w, &s.b, piece, n))
		}
	}
}

// strip is local for steps that are longer than a strip.
func (b *Board) strip(w *work, steps []step, piece, n, size int) {
	b.strips = b.strips[:0]
	for i := range steps {
		s := &steps[i]
		t := strip{kind: s.kind, dst: b.bytes(w, &s.dst, piece, n), a: b.bytes(w, &s.a, piece, n)}
		if s.kind == combine {
			t.b = b.bytes(w, &s.b, piece, n)
		}
		b.strips = append(b.strips, t)
	}
	for lo := 0; lo < n; lo += size {
		hi := min(n, lo+size)
		for i := range b.strips {
			t := &b.strips[i]
			switch {
			case t.kind == copying && steps[i].dst.slot:
				b.stores.Put(t.dst[lo:hi], t.a[lo:hi])
			case t.kind == copying:
				copy(t.dst[lo:hi], t.a[lo:hi])
			default:
				w.reduce(t.dst[lo:hi], t.a[lo:hi], t.b[lo:hi])
			}
		}
	}
	clear(b.strips)
}

// bytes is the memory of a ref of length n.
func (b *Board) bytes(w *work, r *ref, piece, n int) []byte {
	if !r.slot {
		return w.buffers.Bytes(r.Span, piece)
	}
	from := b.body + r.unit*b.stride
	return b.cfg.Areas[r.rank][from : from+n : from+n]
}
