package tune

import (
	"math"
	"testing"

	"github.com/nexar-go/nexar/internal/plan"
)

// gauged are the ways and hosts of the tests, in which links can be measured.
func gauged() map[string]struct {
	ways  Ways
	hosts plan.Hosts
} {
	type world = struct {
		ways  Ways
		hosts plan.Hosts
	}
	return map[string]world{
		"two ranks, TCP":          {Ways{All: PlainTCP, Far: PlainTCP}, alike(true, 2, 1)},
		"four ranks, TLS":         {Ways{All: TLS, Far: TLS}, alike(true, 4, 1)},
		"seven ranks, QUIC":       {Ways{All: QUICAlone, Far: QUICAlone}, alike(true, 7, 1)},
		"64 ranks, TCP":           {Ways{All: PlainTCP, Far: PlainTCP}, alike(true, 64, 1)},
		"two hosts of 4, TCP":     {Ways{All: PlainTCP, Near: Memory, Far: PlainTCP}, alike(true, 2, 4)},
		"hosts of many, TLS":      {Ways{All: TLS, Near: Memory, Far: TLS}, plan.HostsOf([]string{"a", "b", "a", "c", "a", "b"})},
		"one host without memory": {Ways{All: TLS, Near: TLS}, alike(true, 1, 4)},
	}
}

// seconds are those that the trials take on some links, by the model.
func seconds(w Ways, h plan.Hosts, l Links) (short, long float64) {
	a, b := Trials(h.Size())
	of := func(t Trial) float64 {
		c, _ := w.Tuner(h, l).Way(Need{Collective: plan.AllReduce, Size: h.Size(), Bytes: t.Bytes}, t.Index, 1)
		return c.Seconds
	}
	return of(a), of(b)
}

// TestFit: from what trials take on links of any kind, those links are found
// again: what trials would take on the links that Fit finds is what they took.
func TestFit(t *testing.T) {
	for name, w := range gauged() {
		for what, l := range map[string]Links{
			"as expected":             {},
			"a little slow":           {Delay: 1e-6, Byte: 1.3},
			"far apart":               {Delay: 500e-6},
			"other continents":        {Delay: 80e-3, Byte: 30},
			"a tenth of the width":    {Byte: 10},
			"a thousandth":            {Byte: 1000, Delay: 100e-6},
			"faster":                  {Work: 0.2, Byte: 0.2},
			"faster and far":          {Delay: 1e-3, Byte: 0.1},
			"slow in work, not bytes": {Delay: 20e-6, Byte: 0.5},
		} {
			short, long := seconds(w.ways, w.hosts, l)
			found := w.ways.Fit(w.hosts, short, long)
			gotShort, gotLong := seconds(w.ways, w.hosts, found)
			near := func(got, want float64) bool { return got < want*ordinary*1.01 && got > want/ordinary/1.01 }
			if !near(gotShort, short) || !near(gotLong, long) {
				t.Errorf("%s, %s: trials of %.3g and %.3g s; with %+v they would take %.3g and %.3g", name, what, short, long, found, gotShort, gotLong)
			}
		}
	}
}

// TestFitLeavesOrdinaryLinks: links that are about as expected are taken as
// expected, so that noise does not change what is chosen.
func TestFitLeavesOrdinaryLinks(t *testing.T) {
	for name, w := range gauged() {
		short, long := seconds(w.ways, w.hosts, Links{})
		for _, times := range []float64{1 / ordinary * 1.01, 1, ordinary * 0.99} {
			if l := w.ways.Fit(w.hosts, short*times, long*times); l != (Links{}) {
				t.Errorf("%s: %+v for %v times what is expected", name, l, times)
			}
		}
	}
}

// TestFitOfNonsense: whatever clocks say, there is a choice.
func TestFitOfNonsense(t *testing.T) {
	w := gauged()["four ranks, TLS"]
	for _, short := range []float64{-1, 0, 1e-12, 1e3, math.Inf(1), math.NaN()} {
		for _, long := range []float64{-1, 0, 1e-12, 1e3, math.Inf(1), math.NaN()} {
			l := w.ways.Fit(w.hosts, short, long)
			for _, v := range []float64{l.Delay, l.Work, l.Byte} {
				if v < 0 || v > 1e9 || math.IsNaN(v) {
					t.Errorf("%v and %v s: %+v", short, long, l)
				}
			}
		}
	}
}

// TestLinksCount: ranks between which bytes are dear choose a plan that moves
// fewer of them than one for ranks that are far apart.
func TestLinksCount(t *testing.T) {
	w := gauged()["seven ranks, QUIC"]
	sent := func(l Links) (share float64) {
		c := w.ways.Tuner(w.hosts, l).Choose(Need{Collective: plan.AllReduce, Size: 7, Bytes: 256 << 10})
		p := c.Algorithm.Plan(0, 7, 0)
		for _, round := range p.Rounds {
			for _, m := range round {
				if m.Kind == plan.Send {
					share += float64(m.A.Len()) / float64(p.Chunks)
				}
			}
		}
		return share
	}
	far, narrow := sent(Links{Delay: 50e-3}), sent(Links{Byte: 300})
	if narrow > 2 || far < 1.5*narrow {
		t.Errorf("%.1f vectors are sent far apart, %.1f where bytes are dear", far, narrow)
	}
}
