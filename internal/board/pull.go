package board

import (
	"context"
	"fmt"
	"unsafe"
)

// Where processes may read each other's memory, a payload need not go through
// an area: a rank shows where it lies, and who takes it copies it from there to
// where it belongs. So it is copied once, not twice, and by none but its taker.
//
// What was shown must stay as it is until all have taken it. Therefore only
// plans that combine nothing, use no memory of their own and write nothing that
// they have sent can be carried out so; and a rank returns only when all who
// take something from it have finished. If it gives up before that, it says so
// first, and whoever has copied from it looks for that word afterwards. So
// nobody takes for right what was copied from memory that its owner had got
// back by then.

// addrBytes is the size of an address on an area.
const addrBytes = 8

// pullBytes is how much is copied between two looks at whether the operation
// has failed.
const pullBytes = 4 << 20

// A PullError says that what a rank has shown could not be copied.
type PullError struct {
	Rank int
	Err  error
}

func (e *PullError) Error() string {
	return fmt.Sprintf("board: copy from the memory of rank %d: %v", e.Rank, e.Err)
}

// Unwrap returns the reason.
func (e *PullError) Unwrap() error { return e.Err }

// errGaveUp is the reason of a PullError if the rank no longer shows anything.
var errGaveUp = fmt.Errorf("it has given up")

// Pulls reports whether the plans can be carried out by pulling.
func (s *Schedule) Pulls() bool {
	for rank := range s.plans {
		if !s.Compile(rank).pullable() {
			return false
		}
	}
	return true
}

// Pulling makes the plan of a rank ready to be carried out by pulling, which
// Pulls must have allowed.
func (s *Schedule) Pulling(rank int) *Program {
	p := s.Compile(rank)
	p.Pulling = true
	for i := range p.steps {
		switch c := &p.steps[i]; {
		case c.kind == copying && c.dst.slot:
			c.kind = show
		case c.kind == copying && c.a.slot:
			c.kind = pull
		}
		p.steps[i].strip = 0
	}
	for peer, sends := range s.posters[rank].sends {
		if len(sends) > 0 {
			p.readers = append(p.readers, peer)
		}
	}
	return p
}

// pullable reports whether nothing is combined or kept elsewhere, and nothing
// that was posted is written later.
func (p *Program) pullable() bool {
	if p.TempHi > 0 {
		return false
	}
	for i := range p.steps {
		s := &p.steps[i]
		switch {
		case s.kind == combine, s.kind == copying && s.dst.slot && s.a.slot:
			return false
		case s.kind == copying && s.dst.slot:
			for k := range p.steps[i:] {
				later := &p.steps[i+k]
				if later.kind == copying && !later.dst.slot && overlap(later.dst.Span, s.a.Span) {
					return false
				}
			}
		}
	}
	return true
}

// show writes down where payloads lie, the first byte of each chunk of a span.
// They stay there: whoever has called Run holds them, and the memory of Go does
// not move.
func (b *Board) show(w *Work, s *step, piece, slot int) {
	_, at := w.stride()
	own := b.cfg.Areas[b.cfg.Rank]
	for k := range s.a.Len() {
		one := s.a.Span
		one.Lo, one.Hi = s.a.Lo+k, s.a.Lo+k+1
		addr := uint64(0)
		if mem := w.Buffers.Bytes(one, piece); len(mem) > 0 {
			addr = uint64(uintptr(unsafe.Pointer(&mem[0])))
		}
		*(*uint64)(unsafe.Pointer(&own[slot+at+addrBytes*(s.dst.unit+k)])) = addr
	}
}

// pull copies what another rank has shown.
func (b *Board) pull(ctx context.Context, w *Work, s *step, piece, slot int) error {
	_, at := w.stride()
	area := b.cfg.Areas[s.a.rank]
	for k := range s.dst.Len() {
		one := s.dst.Span
		one.Lo, one.Hi = s.dst.Lo+k, s.dst.Lo+k+1
		dst := w.Buffers.Bytes(one, piece)
		addr := *(*uint64)(unsafe.Pointer(&area[slot+at+addrBytes*(s.a.unit+k)]))
		for len(dst) > 0 {
			n := min(len(dst), pullBytes)
			if err := b.cfg.Pull(s.a.rank, dst[:n], addr); err != nil {
				return &PullError{s.a.rank, err}
			}
			if dst, addr = dst[n:], addr+uint64(n); len(dst) == 0 {
				break
			}
			if err := w.Poll(ctx); err != nil {
				return err
			}
		}
	}
	if word(area, gaveUpAt).Load() != 0 {
		return &PullError{s.a.rank, errGaveUp}
	}
	return nil
}

// untilRead waits until nobody reads the memory that this rank has shown.
func (b *Board) untilRead(ctx context.Context, w *Work) error {
	for _, rank := range w.Program.readers {
		if int32(b.known[rank]-b.pieces) >= 0 {
			continue
		}
		if err := b.wait(ctx, w, b.takens[rank], b.pieces, rank); err != nil {
			return err
		}
		b.known[rank] = b.takens[rank].Load()
	}
	return nil
}

// giveUp says that what this rank shows is no longer to be relied on.
func (b *Board) giveUp() { word(b.cfg.Areas[b.cfg.Rank], gaveUpAt).Store(1) }
