package simulate

import "github.com/nexar-go/nexar/internal/plan"

// A span is the chunks lo ≤ i < hi of a buffer, or none if lo and hi are the same.
type span struct {
	lo, hi int32
	buf    plan.Buf
}

func chunksOf(s plan.Span) span { return span{int32(s.Lo), int32(s.Hi), s.Buf} }

// overlaps reports whether two spans have a chunk in common.
func (s span) overlaps(o span) bool { return s.lo < o.hi && o.lo < s.hi && s.buf == o.buf }

// The states of a move.
type state uint8

const (
	blocked state = iota // it waits for earlier moves of the rank
	ready                // it is in progress; a receive waits for its message
	matched              // a receive with a known message
	done
)

// A move is one move of a plan.
type move struct {
	kind      plan.Kind
	state     state
	peer      int32
	dst, a, b span
	round     int32
	waits     int32 // earlier moves that must end first
	since     picos // a receive: since when it is ready
}

// receives reports whether the move takes a message.
func (m *move) receives() bool { return m.kind == plan.Recv || m.kind == plan.Reduce }

// follows reports whether m has to wait for a move e of an earlier round: one of them writes chunks
// that the other touches, or both send to the same rank, and messages keep their order.
func (m *move) follows(e *move) bool {
	return m.dst.overlaps(e.dst) || m.dst.overlaps(e.a) || m.dst.overlaps(e.b) || m.a.overlaps(e.dst) || m.b.overlaps(e.dst) ||
		m.kind == plan.Send && e.kind == plan.Send && m.peer == e.peer
}

// A rank is the state of one rank.
type rank struct {
	open    []move  // those that have begun, in order; the first ones may be done
	first   int32   // number of the first of open since the beginning
	head    int32   // index in open of the first that is not done
	next    int32   // the next round to open
	blocked int32   // open moves that wait for others
	held    int32   // blocked moves that are no receives
	busy    picos   // until when it uses a processor
	turn    picos   // when it looks for messages next, if it waits
	early   []early // messages without a receive that is ready
}

// An early message was sent, or offered if it needs a grant, before its receive was ready.
type early struct{ from, message int32 }

// move returns a move by its number since the beginning.
func (r *rank) move(number int32) *move { return &r.open[number-r.first] }

// trim forgets moves that are done, when they are the larger part of open.
func (r *rank) trim() {
	for int(r.head) < len(r.open) && r.open[r.head].state == done {
		r.head++
	}
	if r.head > 8 && int(r.head) > len(r.open)/2 || int(r.head) == len(r.open) {
		n := copy(r.open, r.open[r.head:])
		r.open = r.open[:n]
		r.first += r.head
		r.head = 0
	}
}

// receive returns the number of the first receive from a peer that has no message yet.
func (r *rank) receive(peer int32) (number int32, found bool) {
	for i := int(r.head); i < len(r.open); i++ {
		if m := &r.open[i]; m.peer == peer && m.state < matched && m.receives() {
			return r.first + int32(i), true
		}
	}
	return 0, false
}

// take removes and returns the first early message of a peer.
func (r *rank) take(peer int32) (message int32, found bool) {
	for i, e := range r.early {
		if e.from == peer {
			r.early = append(r.early[:i], r.early[i+1:]...)
			return e.message, true
		}
	}
	return 0, false
}
