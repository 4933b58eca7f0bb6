package link

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/nexar-go/nexar/internal/link/lane"
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

	of    *grants // the set that contains it
	grant lane.Grant
	size  int
	next  cursor // behind the bytes that have arrived
	busy  bool   // a flow is using Dst, or Dst is being registered or withdrawn from the peer
	from  *flow  // the pipe of the payload
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
		s.part, view = s.part+n, view[n:]
		s.next.advance(n)
		if s.part == s.Elem {
			s.part = 0
			s.reduce(s.next.at-s.Elem, s.split[:s.Elem])
		}
	}
	if len(view) == 0 {
		return // possibly with an incomplete element
	}
	whole := len(view) - len(view)%s.Elem
	s.reduce(s.next.at, view[:whole])
	s.part = copy(s.split[:], view[whole:])
	s.next.advance(len(view))
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
		return s.Landing.room(payload{s.At, s.size}, s.At+s.next.at, min(n, s.size-s.next.at))
	}
	return s.next.piece(s.Dst, s.More, n)
}

// arrive notes that the first n bytes of a piece have arrived.
func (s *Sink) arrive(n int) {
	if s.Landing != nil {
		s.Landing.arrived(payload{s.At, s.size}, s.At+s.next.at, n)
	}
	s.next.advance(n)
}

// grants are the open sinks of the peer.
type grants struct {
	mu   sync.Mutex
	wake sync.Cond
	set  lane.Grants
	held []heldGrant  // the oldest first
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

// A heldGrant is the frame that announces a grant when there is room for it.
type heldGrant struct {
	id    uint64
	frame []byte
}

// announce sends the frame that add appends: it tells the peer the number of a grant. With wire.GrantsMax open grants that waits until one
// of them is closed.
func (l *Link) announce(id uint64, add func(b []byte) []byte) {
	if l.exchange().grants.holds(id, add) {
		return
	}
	o := l.replies()
	l.shareSink(o, id)
	o.post(add)
}

func (g *grants) holds(id uint64, add func(b []byte) []byte) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	open := g.set.Find(id)
	isHeld := open != nil && !g.set.Admit(open)
	if isHeld {
		g.held = append(g.held, heldGrant{id, add(nil)})
	}
	return isHeld
}

// announceHeld announces the grants for which there is room now. The peer also waits for those that were withdrawn meanwhile.
func (l *Link) announceHeld() {
	g := &l.exchange().grants
	for h, ok := g.nextHeld(); ok; h, ok = g.nextHeld() {
		l.announce(h.id, func(b []byte) []byte { return append(b, h.frame...) })
	}
}

func (g *grants) nextHeld() (h heldGrant, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.held) > 0 {
		open := g.set.Find(g.held[0].id)
		ok = open == nil || g.set.Admit(open)
	}
	if ok {
		h, g.held = g.held[0], g.held[1:]
	}
	return h, ok
}

// Claim is Grant for the message of a call of Handler.Claim.
func (l *Link) Claim(s *Sink) uint64 { return l.exchange().claims.add(s) }

func (g *grants) add(s *Sink) uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	s.of, s.part, s.busy, s.from, s.remote, s.unsent = g, 0, false, nil, nil, false
	s.size, s.next = size(s.Dst, s.More), cursor{}
	s.grant.Of = s
	g.set.Add(&s.grant, s.size)
	g.some.Add(1)
	return s.grant.ID()
}

// Ungrant withdraws a grant or claim and returns when its memory is no longer used. Further
// payload for it is discarded. If s was filled just before, the notification of its owner may
// be in progress. If the peer may write the memory directly, Ungrant asks it to stop, and waits for the
// answer of its transport for at most a second.
func (l *Link) Ungrant(s *Sink) {
	defer l.announceHeld()
	g := s.of
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.set.Withdraw(&s.grant) {
		g.some.Add(-1)
	}
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

// Filling returns the bytes of s that have arrived.
func (l *Link) Filling(s *Sink) int {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	return s.grant.Got()
}

// check checks the header of a segment.
func (g *grants) check(f wire.Segment, from *flow) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	open, err := g.set.Segment(f.Grant, f.Offset, f.Length)
	if err != nil || open == nil {
		return err
	}
	switch s := open.Of.(*Sink); {
	case s.unsent:
		return fmt.Errorf("data for grant %d, which was not sent", f.Grant)
	case s.from != nil && s.from != from:
		return fmt.Errorf("data for grant %d through several pipes", f.Grant)
	default:
		s.from = from
	}
	return nil
}

// restart makes the payload of a claim arrive from its beginning.
func (g *grants) restart(id uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.find(id); s != nil {
		s.next, s.from = cursor{}, nil
		s.grant.Restart()
	}
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

// release ends the use of s by a flow, for which n bytes have arrived. It reports
// whether s is open, or full: the peer can then no longer write its memory.
func (g *grants) release(s *Sink, n int) (isOpen, isFull bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if isOpen = g.find(s.grant.ID()) == s; isOpen { // It was not withdrawn.
		if isFull = g.set.Arrived(&s.grant, n); isFull {
			isOpen = false
			g.some.Add(-1)
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
	return isOpen, isFull
}

// detach forgets the pipes of open sinks: the rest of their payloads arrives over the next connection.
func (g *grants) detach() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, open := range g.set.All() {
		open.Of.(*Sink).from = nil
	}
}

// find returns the sink of an open grant, or nil.
func (g *grants) find(id uint64) *Sink {
	if open := g.set.Find(id); open != nil {
		return open.Of.(*Sink)
	}
	return nil
}

// state adds the open grants to the numbers of this side. No flow uses them.
func (g *grants) state(r *wire.Resume) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.set.State(r)
}
