package selector

import (
	"slices"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/plan"
)

// Hints make all-reduces prefer a ring. The zero value leaves the choice to the cost model.
// A hint does not apply where a ring does not support the call, and pins override it.
type Hints struct {
	// LargeBytes is the minimum length of an all-reduce along a ring; 0 disables the hint.
	LargeBytes int
	// SegmentBytes is the length of the slices of a long vector: over links, the ring has a
	// channel for each. Without LargeBytes it applies to vectors of at least defaultLargeBytes.
	SegmentBytes int
	// RingRanks is the largest number of ranks that all-reduce shorter vectors, of at least
	// ringBytes, along a ring.
	RingRanks int
}

const (
	// defaultLargeBytes is the default minimum length for SegmentBytes.
	defaultLargeBytes = 8 << 20
	// ringBytes is the minimum length for RingRanks; latency dominates below it.
	ringBytes = 64 << 10
)

// UseHints replaces the hints.
func (s *Selector) UseHints(h Hints) { s.change(func(cfg *settings) { cfg.hints = h }) }

// ring reports whether a call should run along a ring, and on how many channels over links; 0
// leaves their number to the model.
func (h Hints) ring(n cost.Need) (channels int, ok bool) {
	if n.Collective != plan.AllReduce {
		return 0, false
	}
	large := h.LargeBytes
	if large == 0 && h.SegmentBytes > 0 {
		large = defaultLargeBytes
	}
	if large > 0 && n.Bytes >= large {
		if h.SegmentBytes > 0 {
			channels = min((n.Bytes+h.SegmentBytes-1)/h.SegmentBytes, cost.ChannelsMax)
		}
		return channels, true
	}
	return 0, n.Size <= h.RingRanks && n.Bytes >= ringBytes
}

// hinted returns the choice of the hints, if it can carry out n.
func (s *settings) hinted(n cost.Need) (c Choice, ok bool) {
	channels, ok := s.hints.ring(n)
	if !ok {
		return Choice{}, false
	}
	list := plan.AlgorithmsOn(plan.AllReduce, s.hosts)
	ring := slices.IndexFunc(list, func(a plan.Algorithm) bool { return a.Name == "ring" })
	if ring < 0 {
		return Choice{}, false
	}
	if x := s.preferred; x != nil {
		if w, ok := x.Tuner.ChoiceWith(n, ring, 0); ok {
			return Choice{w, x.ID, ByHint}, true
		}
	}
	w, ok := s.links.Tuner.ChoiceWith(n, ring, channels)
	return Choice{w, exec.Links, ByHint}, ok
}
