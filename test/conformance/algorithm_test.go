package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// pinOf returns the argument of SetAlgorithms that pins a.
func pinOf(collective string, a nexar.Algorithm) string {
	if a.Shared {
		return collective + "=" + a.Name
	}
	return fmt.Sprintf("%s=%s/%d", collective, a.Name, a.Channels)
}

// TestEveryAlgorithmCanBePinned: every algorithm that Algorithms lists gives the right
// result when it is pinned, and is then the first of the list, in shared memory and over
// links.
func TestEveryAlgorithmCanBePinned(t *testing.T) {
	const ranks, count = 4, 100_000
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks()) {
		t.Run(m.Name, func(t *testing.T) {
			comms := m.Cluster(t, ranks, nexar.Config{})
			worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
				list, err := c.Algorithms("all_reduce", 4*count)
				if err != nil {
					return err
				}
				if shared := slices.ContainsFunc(list, func(a nexar.Algorithm) bool { return a.Shared }); shared != (m.Name == worldtest.Mem().Name) || len(list) < 5 {
					return fmt.Errorf("got algorithms %v", list)
				}
				for _, a := range list {
					if a.Predicted <= 0 || a.Channels < 1 {
						return fmt.Errorf("got algorithm %+v", a)
					}
					if err := c.SetAlgorithms(pinOf("all_reduce", a)); err != nil {
						return err
					}
					now, err := c.Algorithms("all_reduce", 4*count)
					a.ChosenBy = "setting"
					if err != nil || now[0] != a || len(now) != len(list) {
						return fmt.Errorf("pinned is %+v, the first of %d is %+v (%v)", a, len(now), now[0], err)
					}
					x := make([]float32, count)
					worldtest.FillRamp(x, rank)
					if err := nexar.AllReduce(t.Context(), c, x, nexar.Sum); err != nil {
						return err
					}
					if wrong, first := worldtest.CheckRamps(x, ranks); wrong > 0 {
						return fmt.Errorf("%v: %d elements are wrong, the first is %d", a, wrong, first)
					}
				}
				if err := c.SetAlgorithms(); err != nil {
					return err
				}
				if again, err := c.Algorithms("all_reduce", 4*count); err != nil || !slices.Equal(again, list) {
					return fmt.Errorf("without pins: got %v, want %v as before (%v)", again, list, err)
				}
				return nil
			})
		})
	}
}

// TestAlgorithmsOfEveryCollective: every collective has algorithms, also on a single
// rank, and a pin of the configuration counts.
func TestAlgorithmsOfEveryCollective(t *testing.T) {
	for _, ranks := range []int{1, 3} {
		c := worldtest.Mem().Cluster(t, ranks, nexar.Config{Algorithms: []string{"gather=direct/2"}})[0]
		for _, name := range []string{
			"barrier", "broadcast", "reduce", "all_reduce", "gather", "all_gather", "scatter", "reduce_scatter",
			"all_to_all", "scan", "exclusive_scan",
		} {
			for _, bytes := range []int{0, 1, 1 << 20} {
				list, err := c.Algorithms(name, bytes)
				if err != nil || len(list) == 0 {
					t.Errorf("%d ranks, %s of %d bytes: got %v, error %v", ranks, name, bytes, list, err)
				}
				if name == "gather" && (list[0].Name != "direct" || list[0].Channels != 2 || list[0].Shared) {
					t.Errorf("%d ranks: the first is %+v, pinned is direct/2", ranks, list[0])
				}
			}
		}
	}
}

func TestAlgorithmErrors(t *testing.T) {
	c := worldtest.Mem().Cluster(t, 1, nexar.Config{})[0]
	if _, err := c.Algorithms("all_sum", 8); err == nil || !strings.Contains(err.Error(), `unknown collective "all_sum": want one of barrier, broadcast`) {
		t.Errorf("an unknown collective: %v", err)
	}
	if _, err := c.Algorithms("all_reduce", -1); !errors.Is(err, nexar.ErrInvalidLength) {
		t.Errorf("a negative length: %v, want ErrInvalidLength", err)
	}
	before, err := c.Algorithms("all_reduce", 8)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetAlgorithms("all_reduce=ring", "all_reduce=direct"); !errors.Is(err, nexar.ErrConfig) || !strings.Contains(err.Error(), "nexar: set_algorithms: ") {
		t.Errorf("two pins of one collective: %v, want ErrConfig", err)
	}
	if after, err := c.Algorithms("all_reduce", 8); err != nil || !slices.Equal(before, after) {
		t.Errorf("an invalid pin has changed the algorithms from %v to %v (%v)", before, after, err)
	}
}

// TestMismatchOfPins: if the ranks have different pins, the next call fails with an error
// that names the algorithms, in shared memory, over links, and with some ranks in each.
func TestMismatchOfPins(t *testing.T) {
	for _, test := range []struct {
		name  string
		over  worldtest.Medium
		pins  [2]string // of rank 0 and of all others
		names [2]string
	}{
		{"shared", worldtest.Mem(), [2]string{"all_reduce=ring", "all_reduce=direct"}, [2]string{"ring in shared memory", "direct in shared memory"}},
		{"links", worldtest.MemLinks(), [2]string{"all_reduce=ring/2", "all_reduce=direct/1"}, [2]string{"ring on several channels", "direct"}},
		{"channels", worldtest.QUIC(), [2]string{"all_reduce=ring/1", "all_reduce=ring/8"}, [2]string{"ring", "ring on several channels"}},
		{"shared and links", worldtest.Mem(), [2]string{"all_reduce=ring", "all_reduce=ring/1"}, [2]string{"ring in shared memory", "ring"}},
		{"links and shared", worldtest.Mem(), [2]string{"all_reduce=ring/4", "all_reduce=staged"}, [2]string{"ring on several channels", "staged in shared memory"}},
	} {
		for _, ranks := range []int{2, 3} {
			t.Run(fmt.Sprintf("%s/ranks=%d", test.name, ranks), func(t *testing.T) {
				t.Parallel()
				comms := test.over.Cluster(t, ranks, nexar.Config{})
				ctx, cancel := context.WithTimeout(t.Context(), 2*worldtest.Patience)
				defer cancel()
				worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
					err := nexar.AllReduce(ctx, c, make([]float32, 100), nexar.Sum)
					if err == nil { // Other ranks may be ahead, and may have failed.
						if err := c.SetAlgorithms(test.pins[min(rank, 1)]); err != nil {
							return err
						}
						err = nexar.AllReduce(ctx, c, make([]float32, 100), nexar.Sum)
					}
					for err == nil {
						err = c.Barrier(ctx) // The part of this rank had ended.
					}
					e, ok := errors.AsType[*nexar.MismatchError](err)
					if !ok || !strings.Contains(err.Error(), "their settings differ") {
						return fmt.Errorf("%w, want a MismatchError that tells of settings", err)
					}
					got := []string{e.Call.Plan, e.PeerCall.Plan}
					if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(test.names[:]))) {
						return fmt.Errorf("%w: got plans %q, want %q", err, got, test.names)
					}
					return nil
				})
			})
		}
	}
}
