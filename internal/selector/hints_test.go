package selector

import (
	"testing"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/plan"
)

// An all-reduce runs along a ring if a hint says so, and by the model otherwise.
func TestHints(t *testing.T) {
	const mib = 1 << 20
	for name, test := range map[string]struct {
		hints    Hints
		ranks    int
		bytes    int
		ring     bool
		channels int // 0: any
	}{
		"no hints":              {Hints{}, 4, 1000, false, 0},
		"large":                 {Hints{LargeBytes: 1000}, 4, 1000, true, 0},
		"not large":             {Hints{LargeBytes: 1000}, 4, 996, false, 0},
		"segments":              {Hints{LargeBytes: mib, SegmentBytes: mib}, 4, 3*mib + 4, true, 4},
		"segments by default":   {Hints{SegmentBytes: 4 * mib}, 4, 8 * mib, true, 2},
		"too many segments":     {Hints{LargeBytes: 1, SegmentBytes: 1}, 4, 8 * mib, true, cost.ChannelsMax},
		"few ranks":             {Hints{RingRanks: 4}, 4, 64 << 10, true, 0},
		"few ranks, short":      {Hints{RingRanks: 4}, 4, 1000, false, 0},
		"more ranks than hint":  {Hints{RingRanks: 3}, 4, 64 << 10, false, 0},
		"long, more than large": {Hints{RingRanks: 4, LargeBytes: mib, SegmentBytes: mib}, 4, mib, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			ring := index(t, plan.AllReduce, "ring")
			s := newSelector(t, test.ranks)
			model := s.Schedule(new(sum(test.bytes / 4)))
			s.UseHints(test.hints)
			w := s.Schedule(new(sum(test.bytes / 4)))
			switch {
			case !test.ring && (w.Call.Plan != model.Call.Plan || w.Channels != model.Channels):
				t.Errorf("plan %d on %d channels, want the choice of the model, %d on %d", w.Call.Plan, w.Channels, model.Call.Plan, model.Channels)
			case test.ring && (int(w.Call.Plan) != ring || test.channels > 0 && w.Channels != test.channels):
				t.Errorf("plan %d on %d channels, want the ring, %d, on %d", w.Call.Plan, w.Channels, ring, test.channels)
			}
			if first := s.Choices(plan.AllReduce, test.bytes, false)[0]; uint8(first.Index) != w.Call.Plan || first.Channels != w.Channels {
				t.Errorf("the first choice is %+v, want that of the schedule", first)
			} else if want := map[bool]Reason{false: ByModel, true: ByHint}[test.ring]; first.By != want {
				t.Errorf("the first choice is made by %d, want %d", first.By, want)
			}
		})
	}
}

// Hints do not apply to other collectives, nor where the ring does not keep the order of
// operands, and pins override them. They apply in shared memory.
func TestHintsAndOthers(t *testing.T) {
	ring := index(t, plan.AllReduce, "ring")
	s := newSelector(t, 4)
	s.UseHints(Hints{LargeBytes: 1})
	ordered := sum(1000)
	ordered.Ordered = true
	if w := s.Schedule(new(ordered)); int(w.Call.Plan) == ring {
		t.Error("an ordered reduction runs along a ring")
	}
	before := newSelector(t, 4).Schedule(&Shape{Kind: plan.Broadcast, Type: 9, Elem: 4, Count: 1000})
	if w := s.Schedule(&Shape{Kind: plan.Broadcast, Type: 9, Elem: 4, Count: 1000}); w.Call.Plan != before.Call.Plan {
		t.Error("a hint changes a broadcast")
	}
	pin(t, s, "all_reduce=circulant")
	if w := s.Schedule(new(sum(1000))); int(w.Call.Plan) != index(t, plan.AllReduce, "circulant") {
		t.Error("a hint overrides a pin")
	}
	if first := s.Choices(plan.AllReduce, 4000, false)[0]; first.By != ByPin {
		t.Errorf("the first choice is made by %d, want a pin, %d", first.By, ByPin)
	}
	pin(t, s)
	s.UseSharedMemory(newMemory(4), plan.Groups(4))
	if first := s.Choices(plan.AllReduce, 4000, false)[0]; first.Index != ring || first.Executor != exec.Shared && first.Executor != exec.Links {
		t.Errorf("with shared memory the first choice is %+v, want the ring", first)
	}
}
