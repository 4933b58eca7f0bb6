package selector

import (
	"cmp"
	"slices"

	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/plan"
)

// Choices returns all choices for a collective of the given length, of the vector or of all blocks
// together: first the one that Schedule makes, which depends on pins, then the others, by all
// executors, in the order of their predicted cost. Each can be pinned. Canonical is
// [Shape.Canonical].
func (s *Selector) Choices(k plan.Collective, bytes int, canonical bool) []Choice {
	t := s.shapeOf(k, bytes)
	t.Canonical = canonical
	cfg, need := s.cfg.Load(), s.need(t)
	var choices []Choice
	if x := cfg.preferred; x != nil {
		for _, c := range x.Tuner.Choices(need) {
			if w := (Choice{c, x.ID, ByModel}); s.fits(cfg, t, w) {
				choices = append(choices, w)
			}
		}
	}
	for _, c := range cfg.links.Tuner.Choices(need) {
		choices = append(choices, Choice{c, exec.Links, ByModel})
	}
	slices.SortStableFunc(choices, func(a, b Choice) int { return cmp.Compare(a.Seconds, b.Seconds) })

	first := s.choose(cfg, t)
	i := slices.IndexFunc(choices, func(c Choice) bool { return c.Index == first.Index && c.Executor == first.Executor })
	if i >= 0 {
		if choices[i].Channels == first.Channels {
			first.Choice = choices[i].Choice // Seconds is for this length, not for its class.
		}
		choices = slices.Delete(choices, i, i+1)
	}
	return slices.Insert(choices, 0, first)
}

// shapeOf returns the Shape of a typical call.
func (s *Selector) shapeOf(k plan.Collective, bytes int) Shape {
	d := k.Descriptor()
	t := Shape{Kind: k, Elem: 1, Count: bytes, Blocks: !d.Both, Ordered: d.Operands.Prefix()}
	switch {
	case d.Empty():
		t.Count = 0
	case t.Blocks:
		t.Count = bytes / s.size
	}
	return t
}
