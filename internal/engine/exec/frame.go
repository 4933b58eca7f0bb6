package exec

import (
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/wire"
)

// A FrameKind is the meaning of a frame for a collective.
type FrameKind uint8

// The kinds of frames. An executor never gets a Query.
const (
	Step  FrameKind = iota // a step with its payload
	Offer                  // the peer asks for the grant of a step
	Grant                  // the peer grants a step
	Query                  // the peer waits for this rank
)

// A Frame is a frame of a peer for a collective. The lock of the communicator guards its fields
// until an executor accepts it; then they belong to the executor.
type Frame struct {
	Next *Frame // in a list
	Link *link.Link
	Kind FrameKind
	Step wire.Step
	// Payload belongs to the link, and is valid until the frame has been received or
	// held.
	Payload []byte
	// Counted says that link.Keep has counted the frame.
	Counted bool
	// Instance is for the executor.
	Instance int

	pool *FramePool
	copy []byte // the memory of a payload that is held
}

// HoldLocked copies the payload, if there is one: the link reuses it. The frame does not keep the memory of a much longer payload that it had
// before, since the credit of the peer counts the bytes of this one.
func (f *Frame) HoldLocked() {
	if cap(f.copy) > 2*(len(f.Payload)+frameBytes) {
		f.copy = nil
	}
	f.copy = append(f.copy[:0], f.Payload...)
	f.Payload = f.copy
}

// ReturnCredit returns the credit for the frame to the peer. It may send a frame, and does not
// block.
func (f *Frame) ReturnCredit() {
	switch {
	case f.Kind == Step:
		f.Link.Credit().Consumed(wire.Collectives, len(f.Payload))
	case f.Counted:
		f.Link.Credit().Dropped()
	}
}

// ReleaseLocked gives the frame back to its communicator. It must not be used any more.
func (f *Frame) ReleaseLocked() {
	p, size := f.pool, frameBytes+cap(f.copy)
	f.Link, f.Payload = nil, nil
	if p.bytes+size > freeFramesMax {
		return
	}
	p.bytes += size
	f.Next, p.free = p.free, f
}

const (
	// freeFramesMax limits the memory of free frames of a communicator, in bytes.
	freeFramesMax = 1 << 20
	// frameBytes is about the size of a Frame without its payload.
	frameBytes = 160
)

// A FramePool has the free frames of a communicator. The zero value is ready for use.
type FramePool struct {
	free  *Frame
	bytes int
}

// GetLocked returns a frame that borrows its payload.
func (p *FramePool) GetLocked(l *link.Link, kind FrameKind, s *wire.Step, payload []byte) *Frame {
	f := p.free
	if f == nil {
		f = &Frame{pool: p}
	} else {
		p.free = f.Next
		p.bytes -= frameBytes + cap(f.copy)
	}
	f.Next, f.Link, f.Kind, f.Step, f.Payload, f.Counted = nil, l, kind, *s, payload, false
	return f
}

// A Disposition is the decision of an executor about a frame.
type Disposition uint8

// The kinds of Disposition.
const (
	// Discard: the executor does not need the frame, or has noted all of it.
	Discard Disposition = iota
	// Hold: the executor has the frame, and has called HoldLocked. It calls
	// ReturnCredit and ReleaseLocked when it has used the payload.
	Hold
	// Receive: as Hold, but with the payload of the link: Receiver.Receive is called next.
	Receive
)

// A Receiver is an [Execution] of an executor that exchanges frames with other ranks.
type Receiver interface {
	Execution
	// ArriveLocked takes a frame from a rank with the call of this operation. Before Run
	// it does not return Receive. An error, for a frame that breaks the protocol, ends the link.
	ArriveLocked(rank int, f *Frame) (Disposition, error)
	// Receive uses a frame after ArriveLocked has returned Receive, and makes the progress that
	// the frame allows. It does not block.
	Receive(f *Frame)
	// PeersLocked returns the ranks that the operation exchanges frames with. The result must not be changed.
	PeersLocked() []int
}
