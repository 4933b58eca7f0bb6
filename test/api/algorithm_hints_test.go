package api

import (
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestRingHints: hints of a Config select the algorithm of a call, which Algorithms lists first,
// and do not change the result.
func TestRingHints(t *testing.T) {
	for name, cfg := range map[string]nexar.Config{
		"large":      {LargeMessageBytes: 1000},
		"few ranks":  {RingMaxWorld: 3},
		"by segment": {LargeMessageBytes: 1000, PipelineSegmentBytes: 100 << 10},
	} {
		comms := worldtest.Local(t, 3, cfg)
		const bytes = 300 << 10
		list, err := comms[0].Algorithms("all_reduce", bytes)
		if err != nil || list[0].Name != "ring" || list[0].ChosenBy != "hint" || list[1].ChosenBy != "" {
			t.Errorf("%s: the first algorithms are %+v, %v, want the ring by a hint", name, list[:2], err)
		}
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			x := make([]float32, bytes/4)
			for i := range x {
				x[i] = float32(rank)
			}
			if err := nexar.AllReduce(t.Context(), c, x, nexar.Sum); err != nil {
				return err
			}
			if x[0] != 3 || x[len(x)-1] != 3 {
				t.Errorf("%s: sum %v to %v, want 3", name, x[0], x[len(x)-1])
			}
			return nil
		})
	}
	t.Setenv("NEXAR_RING_MAX_WORLD", "2")
	comms := worldtest.Local(t, 2, nexar.Config{})
	if list, err := comms[0].Algorithms("all_reduce", 1<<20); err != nil || list[0].Name != "ring" || list[0].ChosenBy != "hint" {
		t.Errorf("with NEXAR_RING_MAX_WORLD the first algorithm is %+v, %v, want the ring by a hint", list[0], err)
	}
	if list, err := comms[0].Algorithms("all_reduce", 8); err != nil || list[0].ChosenBy != "model" {
		t.Errorf("for 8 bytes the first algorithm is %+v, %v, want one by the model", list[0], err)
	}
	for _, c := range comms {
		if err := c.SetAlgorithms("all_reduce=recursive-doubling"); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := comms[0].Algorithms("all_reduce", 1<<20); err != nil || list[0].Name != "recursive-doubling" || list[0].ChosenBy != "setting" {
		t.Errorf("after SetAlgorithms the first algorithm is %+v, %v, want recursive-doubling by a setting", list[0], err)
	}
}
