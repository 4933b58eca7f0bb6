package link

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nexar-go/nexar/internal/wire"
)

// A Sink is the destination of a granted payload. The exported fields are set before
// Link.Grant and not changed until Owner is notified or Ungrant has returned.
type Sink struct {
	// Dst and then the regions of More receive the payload, which has their total length. More
	// is for payloads that are not reduced.
	Dst  []byte
	More [][]byte
	// Landing, if not nil, says that Dst is memory of a device, from byte At of Landing on. More and Reduce are then nil.
	Landing *Landing
	At      int
	// Reduce, if not nil, computes Dst = A op payload, or payload op A if Left,
	// as the payload arrives. It is called with whole elements of Elem bytes.
	Reduce func(dst, a, b []byte)
	A      []byte
	Left   bool
	Elem   int
	Owner  interface {
		// Filled is called when the whole payload has arrived. It must not block.
		Filled(s *Sink)
	}
	// Move and Channel identify the sink for its owner.
	Move, Channel int

	of   *grants // the set that contains it
	id   uint64
	size int
	next cursor
	got  int   // arrived bytes
	seen int   // got after the last complete segment
	busy bool  // a flow is using Dst, or Dst is being registered or withdrawn from the peer
	from *flow // the pipe of the payload
	// With remote the peer can write the payload directly.
	remote *remoteGrant
	unsent bool // Dst is being registered: the peer does not know the grant yet
	split  [16]byte
	part   int // bytes of an element in split
}

// take reduces the next piece of the payload into Dst. An element may be split between
// pieces.
func (s *Sink) take(view []byte) {
	for s.part > 0 && len(view) > 0 {
		n := copy(s.split[s.part:s.Elem], view)
		s.part, s.got, view = s.part+n, s.got+n, view[n:]
		if s.part == s.Elem {
			s.part = 0
			s.reduce(s.got-s.Elem, s.split[:s.Elem])
		}
	}
	if len(view) == 0 {
		return // possibly with an incomplete element
	}
	whole := len(view) - len(view)%s.Elem
	s.reduce(s.got, view[:whole])
	s.part = copy(s.split[:], view[whole:])
	s.got += len(view)
}

func (s *Sink) reduce(at int, b []byte) {
	if len(b) == 0 {
		return
	}
	dst, a := s.Dst[at:at+len(b)], s.A[at:at+len(b)]
	if s.Left {
		s.Reduce(dst, b, a)
	} else {
		s.Reduce(dst, a, b)
	}
}

// piece returns the memory for the next piece of a payload that arrives through a pipe, of at most n bytes.
func (s *Sink) piece(n int) []byte {
	if s.Landing != nil {
		return s.Landing.room(payload{s.At, s.size}, s.At+s.got, min(n, s.size-s.got))
	}
	return s.next.piece(s.Dst, s.More, n)
}

// arrive notes that the first n bytes of a piece have arrived.
func (s *Sink) arrive(n int) {
	if s.Landing != nil {
		s.Landing.arrived(payload{s.At, s.size}, s.At+s.got, n)
	}
	s.got += n
	s.next.advance(n)
}

// grants are the open sinks of the peer.
type grants struct {
	mu   sync.Mutex
	wake sync.Cond
	last uint64
	open []*Sink      // by their numbers, ascending
	some atomic.Int32 // how many are open

	ignored atomic.Bool // the peer did not answer when remote memory was recalled
}

func (g *grants) init() {
	g.wake.L = &g.mu
}

// Grant allows the peer to send to s and returns the number of the grant. The caller sends the
// number to the peer.
func (l *Link) Grant(s *Sink) uint64 {
	if s.Reduce != nil && (s.Elem < 1 || s.Elem > len(s.split) || len(s.Dst)%s.Elem != 0 || len(s.A) != len(s.Dst) || len(s.More) > 0 || s.Landing != nil) {
		panic("link: grant of a reduction of incomplete elements")
	}
	return l.exchange().grants.add(s)
}

// Claim is Grant for the message of a call of Handler.Claim.
func (l *Link) Claim(s *Sink) uint64 { return l.exchange().claims.add(s) }

func (g *grants) add(s *Sink) uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last++
	s.of, s.id, s.got, s.seen, s.part, s.busy, s.from, s.remote, s.unsent = g, g.last, 0, 0, 0, false, nil, nil, false
	s.size, s.next = size(s.Dst, s.More), cursor{}
	g.open = append(g.open, s)
	g.some.Add(1)
	return s.id
}

// Ungrant withdraws a grant or claim and returns when its memory is no longer used. Further
// payload for it is discarded. If s was filled just before, the notification of its owner may
// be in progress. If the peer may write the memory directly, Ungrant asks it to stop, and waits for the
// answer of its transport for at most a second.
func (l *Link) Ungrant(s *Sink) {
	g := s.of
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop(s)
	for s.busy {
		if s.from != nil {
			s.from.pipe.SetReadDeadline(past)
		}
		g.wake.Wait()
	}
	if r := s.remote; r != nil {
		s.remote = nil
		g.mu.Unlock()
		l.withdraw(r)
		g.mu.Lock()
	}
}

// IsShared reports whether the peer may write the memory of a grant directly, or the permission is being made: Ungrant may then
// wait for the peer.
func (l *Link) IsShared(s *Sink) bool {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	return s.remote != nil || s.unsent
}

// Filling returns the bytes of s that have arrived in complete segments.
func (l *Link) Filling(s *Sink) int {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	return s.seen
}

// check checks the header of a segment.
func (g *grants) check(f wire.Segment, from *flow) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.find(f.Grant)
	switch {
	case f.Grant == 0 || f.Grant > g.last:
		return fmt.Errorf("data for grant %d, which was never made", f.Grant)
	case s == nil: // It was withdrawn.
	case s.unsent:
		return fmt.Errorf("data for grant %d, which was not sent", f.Grant)
	case s.from != nil && s.from != from:
		return fmt.Errorf("data for grant %d through several pipes", f.Grant)
	case f.Length > s.size-s.got:
		return fmt.Errorf("%d bytes for grant %d, which has room for %d", f.Length, f.Grant, s.size-s.got)
	default:
		s.from = from
	}
	return nil
}

// hold marks the sink of a grant busy and returns it, or nil if the grant was withdrawn.
func (g *grants) hold(id uint64) *Sink {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.find(id)
	if s != nil {
		s.busy = true
	}
	return s
}

// release ends the use of s by a flow. whole is set at the end of a segment. It reports
// whether s is full. The peer can then no longer write its memory.
func (g *grants) release(s *Sink, whole bool) (isFull bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if whole {
		s.seen = s.got
		if isFull = g.find(s.id) == s && s.got == s.size; isFull {
			g.drop(s)
		}
	}
	if r := s.remote; isFull && r != nil {
		s.remote = nil
		g.mu.Unlock()
		r.end()
		g.mu.Lock()
	}
	s.busy = false
	g.wake.Broadcast()
	return isFull
}

// detach forgets the pipes of open sinks: the rest of their payloads arrives over the next connection.
func (g *grants) detach() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.open {
		s.from = nil
	}
}

// find returns the sink of an open grant, or nil.
func (g *grants) find(id uint64) *Sink {
	if i, ok := g.index(id); ok {
		return g.open[i]
	}
	return nil
}

func (g *grants) index(id uint64) (i int, ok bool) {
	return slices.BinarySearchFunc(g.open, id, func(s *Sink, id uint64) int { return cmp.Compare(s.id, id) })
}

// drop removes a sink from the set.
func (g *grants) drop(s *Sink) {
	if i, ok := g.index(s.id); ok && g.open[i] == s {
		g.open = slices.Delete(g.open, i, i+1)
		g.some.Add(-1)
	}
}
