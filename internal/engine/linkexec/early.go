package linkexec

import (
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/wire"
)

// freeFramesMax is how much memory, in bytes, a communicator keeps for frames that
// will arrive early.
const freeFramesMax = 1 << 20

// frameBytes is about the size of a Frame without its payload.
const frameBytes = 128

// A Frame has arrived before the operation, or the move, that it is for could take it.
type Frame struct {
	Next    *Frame // in a list of the caller
	Link    *link.Link
	Kind    Kind
	Step    wire.Step
	payload []byte
}

// early holds the frames of collectives that have not begun on this rank.
type early struct {
	frames    map[uint64]*Frame // by the sequence number of the collective
	free      *Frame
	freeBytes int
}

// KeepLocked keeps a frame for a collective that has not begun. It reports false if the
// frame is not kept: the credit for its payload has to be given back.
func (x *Executor) KeepLocked(l *link.Link, kind Kind, s *wire.Step, payload []byte) bool {
	first := x.early.frames[s.Call.Seq]
	if kind == Probe {
		for f := first; f != nil; f = f.Next {
			if f.Kind == kind && f.Link == l {
				return true
			}
		}
	}
	if kind != Step && !l.Keep() {
		return false
	}
	f := x.early.newLocked(l, kind, s, payload)
	f.Next = first
	if x.early.frames == nil {
		x.early.frames = make(map[uint64]*Frame)
	}
	x.early.frames[s.Call.Seq] = f
	return true
}

// TakeEarlyLocked returns the list of frames that were kept for a collective.
func (x *Executor) TakeEarlyLocked(seq uint64) *Frame {
	f := x.early.frames[seq]
	if f != nil {
		delete(x.early.frames, seq)
	}
	return f
}

// TakeAllEarlyLocked returns all frames that were kept, followed by list.
func (x *Executor) TakeAllEarlyLocked(list *Frame) *Frame {
	for _, f := range x.early.frames {
		for f != nil {
			next := f.Next
			f.Next, list = list, f
			f = next
		}
	}
	clear(x.early.frames)
	return list
}

// EarlyLocked is the number of collectives for which frames are kept.
func (x *Executor) EarlyLocked() int { return len(x.early.frames) }

// DiscardLocked drops a frame of which only the number is bounded, as that of offers and
// grants is. It reports false for a step, for which its sender has to get credit back:
// see Drop.
func (x *Executor) DiscardLocked(f *Frame) bool {
	if f.Kind == Step {
		return false
	}
	f.drop()
	x.early.releaseLocked(f)
	return true
}

// Drop gives back what the sender of each frame of a list was charged.
func (x *Executor) Drop(list *Frame) {
	for list != nil {
		next := list.Next
		list.drop()
		x.mu.Lock()
		x.early.releaseLocked(list)
		x.mu.Unlock()
		list = next
	}
}

func (f *Frame) drop() {
	if f.Kind == Step {
		f.Link.Consumed(wire.Collectives, len(f.payload))
	} else {
		f.Link.Dropped()
	}
}

func (e *early) newLocked(l *link.Link, kind Kind, s *wire.Step, payload []byte) *Frame {
	f := e.free
	if f == nil {
		f = new(Frame)
	} else {
		e.free = f.Next
		e.freeBytes -= frameBytes + cap(f.payload)
	}
	f.Next, f.Link, f.Kind, f.Step = nil, l, kind, *s
	f.payload = append(f.payload[:0], payload...)
	return f
}

// releaseLocked keeps the memory of a frame for another, up to freeFramesMax.
func (e *early) releaseLocked(f *Frame) {
	f.Link = nil
	if e.freeBytes+frameBytes+cap(f.payload) > freeFramesMax {
		return
	}
	e.freeBytes += frameBytes + cap(f.payload)
	f.Next = e.free
	e.free = f
}
