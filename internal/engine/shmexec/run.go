package shmexec

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// stripBytes is the length of a strip of a chunk. A few strips fit into the first-level cache.
const stripBytes = 8 << 10

// errStopped is returned if an operation has failed before its last post.
var errStopped = errors.New("shmexec: the operation has failed")

// A MismatchError reports that a rank executes another call.
type MismatchError struct{ Rank int }

func (e *MismatchError) Error() string {
	return fmt.Sprintf("shmexec: rank %d executes another call", e.Rank)
}

// A MemoryError reports a lack of memory for the payloads of this rank. It has posted
// nothing of the piece, and the other ranks wait for it.
type MemoryError struct{ Err error }

func (e *MemoryError) Error() string {
	return "no memory for payloads in shared memory: " + e.Err.Error()
}
func (e *MemoryError) Unwrap() error { return e.Err }

// An AttachError reports that this rank could not attach the area of another one. It has posted
// nothing of the operation, and the other ranks wait for it.
type AttachError struct {
	Rank int
	Err  error
}

func (e *AttachError) Error() string {
	return fmt.Sprintf("cannot attach the shared memory of rank %d: %v", e.Rank, e.Err)
}
func (e *AttachError) Unwrap() error { return e.Err }

// A strip has the operands of a step that is executed strip by strip.
type strip struct {
	kind      kind
	dst, a, b []byte
}

// stride returns the distance between two chunks of at most unit bytes. Chunks that together fit
// beside the counter are packed.
func (p *Program) stride(unit int) int {
	if short := (unit + 7) &^ 7; short*p.Units <= shortMax {
		return short
	}
	return (unit + line - 1) / line * line
}

// room returns the largest length of the payloads of a rank in a piece with chunks of at most unit
// bytes.
func (p *Program) room(unit int) int { return p.stride(unit) * p.Units }

// run executes an operation. All ranks run the same collectives in the same order.
func (m *Memory) run(ctx context.Context, r *Execution) error {
	if m.attached != r.program {
		if err := m.attachFor(ctx, r); err != nil {
			return err
		}
	}
	m.place.Judge()
	m.calls++
	m.show(r)
	for piece := range r.Channels {
		if piece > 0 {
			if err := r.poll(ctx); err != nil {
				return err
			}
		}
		if err := m.free(ctx, r); err != nil {
			return err
		}
		if err := m.piece(ctx, r, piece); err != nil {
			return err
		}
		if piece == r.Channels-1 {
			if err := m.compare(r); err != nil {
				return err
			}
		}
		m.closeCell(r)
		m.taken.Store(uint32(m.pieces))
		m.wakeSleepers(m.taken, r.program.waiters)
	}
	return nil
}

func callOf(number, fingerprint uint32) uint64 { return uint64(number)<<32 | uint64(fingerprint) }

// show shows the call to the neighbors that this rank reads nothing from. A neighbor that it reads shows another call in its posts.
func (m *Memory) show(r *Execution) {
	shown := m.call(m.cfg.Rank, m.calls)
	switch {
	case len(r.program.unread) > 0:
		shown.Store(callOf(m.calls, r.print))
	case shown.Load() != 0: // Numbers wrap around, so that it could be taken for a later call. Mostly there is none: a load costs less than a store.
		shown.Store(0)
	}
}

// compare looks for another call at the neighbors that this rank reads nothing from. Of two that read nothing from each other, the
// later one sees the fingerprint of the other.
func (m *Memory) compare(r *Execution) error {
	for _, rank := range r.program.unread {
		shown := m.call(rank, m.calls).Load()
		if uint32(shown>>32) == m.calls && uint32(shown) != r.print {
			return &MismatchError{rank}
		}
	}
	return nil
}

// closeCell ends a piece. A rank with fewer posts than others raises its counter as far as they
// do, so that all counters agree. No rank waits for this post, which has no payload.
func (m *Memory) closeCell(r *Execution) {
	m.count += uint32(r.program.Posts)
	if r.program.postsLess {
		m.post(r, m.cell(m.pieces), m.count)
	}
	m.pieces++
}

// post raises the counter of a cell and sets the fingerprint beside it, in one store: each store
// to a line that others read has to get the line back from them.
func (m *Memory) post(r *Execution, cell int, count uint32) {
	head := unsafe.Pointer(&m.cfg.Areas[m.cfg.Rank][cell])
	(*atomic.Uint64)(head).Store(uint64(count)*m.countUnit + uint64(r.print)*m.printUnit)
	m.wakeSleepers((*atomic.Uint32)(unsafe.Add(head, countAt)), r.program.readers)
}

// free waits until the cell of the next piece is free: all readers of its last piece have
// finished that piece. It also waits for the neighbors.
func (m *Memory) free(ctx context.Context, r *Execution) error {
	last := &m.last[m.pieces%Depth]
	if p := *last; p != nil && len(p.distant) > 0 {
		if err := m.finished(ctx, r, p.distant); err != nil {
			return err
		}
	}
	if *last != r.program {
		*last = r.program
	}
	return m.finished(ctx, r, m.neighbors)
}

// finished waits until ranks have finished all pieces but the last Depth - 1 before the next one.
func (m *Memory) finished(ctx context.Context, r *Execution, ranks []int) error {
	pieces := m.pieces - Depth + 1
	for _, rank := range ranks {
		if m.known[rank] >= pieces {
			continue
		}
		if err := m.wait(ctx, r, m.takens[rank], uint32(pieces), rank); err != nil {
			return err
		}
		m.known[rank] = pieces + int64(int32(m.takens[rank].Load()-uint32(pieces)))
	}
	return nil
}

// piece runs the plan for one piece.
func (m *Memory) piece(ctx context.Context, r *Execution, piece int) error {
	cell := m.cell(m.pieces)
	if m.body = cell + shortAt; r.room > shortMax {
		if err := m.allocate(r.room); err != nil {
			return err
		}
	}
	steps := r.program.steps
	for i := 0; i < len(steps); {
		s := &steps[i]
		switch s.kind {
		case await:
			if err := m.await(ctx, r, s, cell); err != nil {
				return err
			}
		case post:
			// Data combined since the last post may be wrong. Other ranks must not use
			// them: they may end before they learn of the failure.
			if r.stopped.Load() {
				return errStopped
			}
			m.post(r, cell, m.count+s.count)
		default:
			n := max(1, s.strip)
			m.local(r, steps[i:i+n], piece)
			i += n
			continue
		}
		i++
	}
	return nil
}

// await waits for a post. The cell is not reused before this rank has finished the piece, so that
// it holds payloads of this piece, or of an earlier one.
func (m *Memory) await(ctx context.Context, r *Execution, s *step, cell int) error {
	area := m.cfg.Areas[s.peer]
	if err := m.wait(ctx, r, word(area, cell+countAt), m.count+s.count, s.peer); err != nil {
		return err
	}
	if word(area, cell+printAt).Load() != r.print {
		return &MismatchError{s.peer}
	}
	// A rank that posts in a piece has finished those before it.
	m.known[s.peer] = max(m.known[s.peer], m.pieces)
	return nil
}

// local executes copies and combinations of equal length.
func (m *Memory) local(r *Execution, steps []step, piece int) {
	n := r.Length(steps[0].dst.Span, piece)
	if n == 0 {
		return // as in a barrier
	}
	if len(steps) > 1 && n > stripBytes {
		m.strip(r, steps, piece, n, max(1, stripBytes/r.Elem)*r.Elem)
		return
	}
	for i := range steps {
		s := &steps[i]
		dst, x := m.bytes(r, &s.dst, piece, n), m.bytes(r, &s.a, piece, n)
		switch {
		case s.kind == copying && s.dst.inArea:
			m.stores.Write(dst, x)
		case s.kind == copying:
			copy(dst, x)
		default:
			r.reduce(dst, x, m.bytes(r, &s.b, piece, n))
		}
	}
}

// strip executes steps that are longer than a strip.
func (m *Memory) strip(r *Execution, steps []step, piece, n, size int) {
	m.strips = m.strips[:0]
	for i := range steps {
		s := &steps[i]
		t := strip{kind: s.kind, dst: m.bytes(r, &s.dst, piece, n), a: m.bytes(r, &s.a, piece, n)}
		if s.kind == combine {
			t.b = m.bytes(r, &s.b, piece, n)
		}
		m.strips = append(m.strips, t)
	}
	for lo := 0; lo < n; lo += size {
		hi := min(n, lo+size)
		for i := range m.strips {
			t := &m.strips[i]
			switch {
			case t.kind == copying && steps[i].dst.inArea:
				m.stores.Write(t.dst[lo:hi], t.a[lo:hi])
			case t.kind == copying:
				copy(t.dst[lo:hi], t.a[lo:hi])
			default:
				r.reduce(t.dst[lo:hi], t.a[lo:hi], t.b[lo:hi])
			}
		}
	}
	clear(m.strips)
}

// bytes returns the memory of a ref of length n.
func (m *Memory) bytes(r *Execution, at *ref, piece, n int) []byte {
	if !at.inArea {
		return r.Bytes(at.Span, piece)
	}
	from := m.body + at.unit*r.stride
	return m.cfg.Areas[at.rank][from : from+n : from+n]
}
