package selector

import (
	"math"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/engine/shmexec"
	"github.com/nexar-go/nexar/internal/plan"
)

// A Tuner chooses how tasks are carried out, the same on all ranks: see
// cost.Tuner.
type Tuner interface {
	Choose(n cost.Need) cost.Choice
	Ways(n cost.Need) []cost.Choice
	Way(n cost.Need, index, channels int) (c cost.Choice, ok bool)
}

// A Chooser is a Tuner with a single option.
type Chooser func(cost.Need) cost.Choice

// Choose calls f.
func (f Chooser) Choose(n cost.Need) cost.Choice { return f(n) }

// Ways returns the choice.
func (f Chooser) Ways(n cost.Need) []cost.Choice { return []cost.Choice{f(n)} }

// Way returns the choice, if it has this index and number of channels.
func (f Chooser) Way(n cost.Need, index, channels int) (c cost.Choice, ok bool) {
	c = f(n)
	return c, c.Index == index && (channels == 0 || c.Channels == channels)
}

// settings say how tasks are carried out. They are immutable, and replaced as a whole, so
// that a cached recipe can be compared with the settings that it was made for.
type settings struct {
	tuner Tuner
	links Tuner // for links, if tuner is for the board
	board *shmexec.Board
	bare  int // from this size in bytes, links may be chosen even if board is set
	hosts plan.Hosts
	pins  map[plan.Collective]Pin
}

// change replaces the settings.
func (b *Selector) change(f func(s *settings)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := *b.how.Load()
	f(&s)
	b.how.Store(&s)
}

// Tuner returns the Tuner in use.
func (b *Selector) Tuner() Tuner { return b.how.Load().tuner }

// SetTuner replaces the Tuner.
func (b *Selector) SetTuner(t Tuner) { b.change(func(s *settings) { s.tuner = t }) }

// bareMin is the size from which ranks of one process may use links: there a long
// message is copied once, from one vector to the other, and on a board twice.
const bareMin = 1 << 20

// UseBoard has tasks carried out on a board from now on, save for vectors that
// are too long for it. Ranks of one process have those of bareMin and more carried out
// over links where that is cheaper.
func (b *Selector) UseBoard(shared *shmexec.Board) {
	b.change(func(s *settings) {
		s.links, s.tuner, s.board = s.tuner, cost.NewShared(cost.Host(shared.PieceBytes(), shared.Processors())), shared
		if s.bare = math.MaxInt; shared.Within() {
			s.bare = bareMin
		}
	})
}

// UseHosts tells which ranks are on one host, for the algorithms that need it.
func (b *Selector) UseHosts(h plan.Hosts) { b.change(func(s *settings) { s.hosts = h }) }

// Pin fixes the algorithms of collectives. A pin does not apply to a number of ranks that
// its algorithm does not support, nor to an ordered reduction whose order the algorithm
// does not keep. A pin without a number of channels selects shared memory if the
// communicator has it and the algorithm can run there, and links otherwise.
func (b *Selector) Pin(pins map[plan.Collective]Pin) { b.change(func(s *settings) { s.pins = pins }) }

// choose returns how a collective is carried out.
func (s *settings) choose(n cost.Need) cost.Choice {
	if p, ok := s.pins[n.Collective]; ok && s.board != nil && p.Channels == 0 {
		if c, ok := s.tuner.Way(n, p.Index, 0); ok {
			return c
		}
	}
	if c, ok := s.pinnedLinks(n); ok {
		return c
	}
	c := s.tuner.Choose(n)
	if s.board != nil && n.Bytes >= s.bare {
		if bare := s.links.Choose(n); bare.Seconds < c.Seconds {
			return bare
		}
	}
	return c
}

// chooseLinks does the same for a collective that has to run over links.
func (s *settings) chooseLinks(n cost.Need) cost.Choice {
	if c, ok := s.pinnedLinks(n); ok {
		return c
	}
	return s.overLinks().Choose(n)
}

func (s *settings) overLinks() Tuner {
	if s.links != nil {
		return s.links
	}
	return s.tuner
}

// pinnedLinks returns the pinned choice over links, if that can be carried out.
func (s *settings) pinnedLinks(n cost.Need) (c cost.Choice, ok bool) {
	p, ok := s.pins[n.Collective]
	if !ok {
		return cost.Choice{}, false
	}
	if c, ok := s.overLinks().Way(n, p.Index, p.Channels); ok {
		return c, true
	}
	// The model may have no figures of an algorithm for hosts, which is right
	// all the same.
	a := plan.AlgorithmsOn(n.Collective, s.hosts)[p.Index]
	if a.Shared || !n.Allows(a) {
		return cost.Choice{}, false
	}
	c = cost.Choice{Index: p.Index, Algorithm: a, Channels: max(1, p.Channels)}
	if n.Blocks && !cost.Cuttable(a, n) {
		c.Channels = 1
	}
	return c, true
}
