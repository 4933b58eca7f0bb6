package lane

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/nexar-go/nexar/internal/wire"
)

// A Grant allows the peer to send a payload.
type Grant struct {
	Of any // for the caller

	id        uint64
	size, got int
	held      bool
}

// ID returns the number of the grant.
func (g *Grant) ID() uint64 { return g.id }

// Got returns the number of bytes that have arrived.
func (g *Grant) Got() int { return g.got }

// Restart says that the payload arrives from its beginning.
func (g *Grant) Restart() { g.got = 0 }

// Grants are the grants of one side, for payloads of the peer. A grant is open until it is filled or withdrawn. With more than wire.GrantsMax
// of them, which a statement lists, further ones are held: the peer does not know them yet.
type Grants struct {
	last uint64   // the number of the latest
	open []*Grant // by their numbers, ascending
	held int      // how many of them are held
}

// Add opens a grant for size bytes. The caller announces it by a numbered frame when Admit allows that.
func (s *Grants) Add(g *Grant, size int) {
	s.last++
	g.id, g.size, g.got, g.held = s.last, size, 0, s.isFull()
	if g.held {
		s.held++
	}
	s.open = append(s.open, g)
}

func (s *Grants) isFull() bool { return len(s.open)-s.held >= wire.GrantsMax }

// Admit reports whether the caller may announce an open grant: it is not held, or there is room for it now.
func (s *Grants) Admit(g *Grant) bool {
	if g.held && s.isFull() {
		return false
	}
	s.unhold(g)
	return true
}

func (s *Grants) unhold(g *Grant) {
	if g.held {
		g.held = false
		s.held--
	}
}

// Find returns an open grant, or nil.
func (s *Grants) Find(id uint64) *Grant {
	if i, ok := s.index(id); ok {
		return s.open[i]
	}
	return nil
}

// All returns the open grants. The caller does not change the list.
func (s *Grants) All() []*Grant { return s.open }

// Withdraw closes a grant. It reports whether the grant was open.
func (s *Grants) Withdraw(g *Grant) (wasOpen bool) {
	i, ok := s.index(g.id)
	if wasOpen = ok && s.open[i] == g; wasOpen {
		s.open = slices.Delete(s.open, i, i+1)
		s.unhold(g)
	}
	return wasOpen
}

// Segment checks the header of a segment of n bytes. It returns nil if the grant was withdrawn: the caller discards the
// payload and reports the grant as finished, so that the peer does not wait.
func (s *Grants) Segment(id, offset uint64, n int) (*Grant, error) {
	if id == 0 || id > s.last {
		return nil, fmt.Errorf("lane: data for grant %d, and the last one made is %d", id, s.last)
	}
	i, ok := s.index(id)
	if !ok {
		return nil, nil
	}
	g := s.open[i]
	switch {
	case offset != uint64(g.got):
		return nil, fmt.Errorf("lane: data for grant %d at offset %d, want %d", id, offset, g.got)
	case n < 0 || n > g.size-g.got:
		return nil, fmt.Errorf("lane: %d bytes for grant %d, which has room for %d", n, id, g.size-g.got)
	}
	return g, nil
}

// Arrived notes that the next n bytes of an open grant have arrived. If the grant is filled, it closes it and reports true: the
// caller reports it as finished, and then notifies its owner.
func (s *Grants) Arrived(g *Grant, n int) (isFilled bool) {
	g.got += n
	return g.got == g.size && s.Withdraw(g)
}

// State adds the open grants to a statement of this side, without those that are held.
func (s *Grants) State(r *wire.Resume) {
	r.Last = s.last
	for _, g := range s.open {
		if !g.held {
			r.Grants = append(r.Grants, wire.Progress{Grant: g.id, Got: uint64(g.got)})
		}
	}
}

func (s *Grants) index(id uint64) (i int, ok bool) {
	return slices.BinarySearchFunc(s.open, id, func(g *Grant, id uint64) int { return cmp.Compare(g.id, id) })
}
