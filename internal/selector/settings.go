package selector

import (
	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/engine/shmexec"
	"github.com/nexar-go/nexar/internal/plan"
)

// A Tuner chooses the algorithms of one executor, the same on all ranks: see [cost.Tuner].
type Tuner interface {
	Choose(n cost.Need) cost.Choice
	Choices(n cost.Need) []cost.Choice
	ChoiceWith(n cost.Need, index, channels int) (c cost.Choice, ok bool)
}

// A Chooser is a [Tuner] with a single choice.
type Chooser func(cost.Need) cost.Choice

// Choose calls f.
func (f Chooser) Choose(n cost.Need) cost.Choice { return f(n) }

// Choices returns the choice.
func (f Chooser) Choices(n cost.Need) []cost.Choice { return []cost.Choice{f(n)} }

// ChoiceWith returns the choice, if its index and number of channels are the given ones.
func (f Chooser) ChoiceWith(n cost.Need, index, channels int) (c cost.Choice, ok bool) {
	c = f(n)
	return c, c.Index == index && (channels == 0 || c.Channels == channels)
}

// settings are immutable and replaced as a whole, so that a cached schedule can be compared
// with the settings that it was made for.
type settings struct {
	links     *Executor
	preferred *Executor // over links; nil if there is none
	hosts     plan.Hosts
	pins      map[plan.Collective]Pin
	hints     Hints
}

// executor returns the executor with an ID.
func (s *settings) executor(id exec.ID) *Executor {
	if s.preferred != nil && s.preferred.ID == id {
		return s.preferred
	}
	return s.links
}

// change replaces the settings.
func (s *Selector) change(f func(cfg *settings)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cfg := *s.cfg.Load()
	f(&cfg)
	s.cfg.Store(&cfg)
}

// Tuner returns the Tuner of the executor in use.
func (s *Selector) Tuner() Tuner {
	cfg := s.cfg.Load()
	if cfg.preferred != nil {
		return cfg.preferred.Tuner
	}
	return cfg.links.Tuner
}

// SetTuner replaces the Tuner for links.
func (s *Selector) SetTuner(t Tuner) {
	s.change(func(cfg *settings) { cfg.links = overLinks(s.rank, s.size, t) })
}

// UseExecutor sets the preferred executor, for all calls that it can carry out.
func (s *Selector) UseExecutor(x *Executor) {
	if x.ID == exec.Links || x.ID > executorMax {
		panic("selector: executor ID does not fit in a fingerprint")
	}
	s.change(func(cfg *settings) { cfg.preferred = x })
}

// UseSharedMemory makes the executor in shared memory the preferred one, with the groups of the
// ranks for hierarchical algorithms. See [Selector.UseExecutor].
func (s *Selector) UseSharedMemory(b *shmexec.Memory, groups plan.Hosts) {
	s.UseExecutor(inSharedMemory(s.rank, s.size, b, groups))
}

// UseHosts sets the hosts of the ranks, for hierarchical algorithms.
func (s *Selector) UseHosts(h plan.Hosts) { s.change(func(cfg *settings) { cfg.hosts = h }) }

// Pin fixes the algorithms of collectives. A pin does not apply if its algorithm does not
// support the number of ranks, or the order of an ordered reduction. A pin without a number of
// channels selects the preferred executor if it can run the algorithm, and links otherwise.
func (s *Selector) Pin(pins map[plan.Collective]Pin) {
	s.change(func(cfg *settings) { cfg.pins = pins })
}

// choose returns the choice for a collective.
func (s *settings) choose(n cost.Need) Choice {
	x := s.preferred
	if x == nil {
		return s.chooseLinks(n)
	}
	if p, ok := s.pins[n.Collective]; ok && p.Channels == 0 {
		if c, ok := x.Tuner.ChoiceWith(n, p.Index, 0); ok {
			return Choice{c, x.ID, ByPin}
		}
	}
	if c, ok := s.pinnedLinks(n); ok {
		return c
	}
	if c, ok := s.hinted(n); ok {
		return c
	}
	c := x.Tuner.Choose(n)
	if n.Bytes >= x.LinksFrom {
		if links := s.links.Tuner.Choose(n); links.Seconds < c.Seconds {
			return Choice{links, exec.Links, ByModel}
		}
	}
	return Choice{c, x.ID, ByModel}
}

// chooseLinks returns the choice for a collective over links.
func (s *settings) chooseLinks(n cost.Need) Choice {
	if c, ok := s.pinnedLinks(n); ok {
		return c
	}
	if c, ok := s.hinted(n); ok {
		return c
	}
	return Choice{s.links.Tuner.Choose(n), exec.Links, ByModel}
}

// pinnedLinks returns the pinned choice over links, if it can carry out n.
func (s *settings) pinnedLinks(n cost.Need) (c Choice, ok bool) {
	p, ok := s.pins[n.Collective]
	if !ok {
		return Choice{}, false
	}
	if c, ok := s.links.Tuner.ChoiceWith(n, p.Index, p.Channels); ok {
		return Choice{c, exec.Links, ByPin}, true
	}
	// The model may have no figures of an algorithm for hosts. The algorithm is correct without
	// them.
	a := plan.AlgorithmsOn(n.Collective, s.hosts)[p.Index]
	if a.Shared || !n.Allows(a) {
		return Choice{}, false
	}
	c.Index, c.Algorithm, c.Channels, c.By = p.Index, a, max(1, p.Channels), ByPin
	if n.Blocks && !cost.Cuttable(a, n) {
		c.Channels = 1
	}
	return c, true
}
