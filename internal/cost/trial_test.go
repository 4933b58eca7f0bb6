package cost

import (
	"math"
	"testing"

	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/transport"
)

// gauged returns the classes and numbers of ranks of the tests.
func gauged() map[string]struct {
	class transport.Class
	ranks int
} {
	type world = struct {
		class transport.Class
		ranks int
	}
	return map[string]world{
		"two ranks, TCP":    {transport.ClassTCP, 2},
		"four ranks, TLS":   {transport.ClassTLS, 4},
		"seven ranks, QUIC": {transport.ClassQUIC, 7},
		"eight ranks, TCP":  {transport.ClassTCP, 8},
	}
}

// seconds returns the predicted times of the trials on given links.
func seconds(class transport.Class, ranks int, l Links) (short, long float64) {
	a, b := Trials()
	net, _ := NetworkOf(class)
	of := func(t Trial) float64 {
		c, _ := New(l.as(net)).ChoiceWith(Need{Collective: plan.AllReduce, Size: ranks, Bytes: t.Bytes}, t.Index, 1)
		return c.Seconds
	}
	return of(a), of(b)
}

// TestFit: for links of any speed, the model with the result of Fit predicts the measured times.
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
			short, long := seconds(w.class, w.ranks, l)
			found := Fit(w.class, w.ranks, short, long)
			gotShort, gotLong := seconds(w.class, w.ranks, found)
			near := func(got, want float64) bool { return got < want*ordinary*1.01 && got > want/ordinary/1.01 }
			if !near(gotShort, short) || !near(gotLong, long) {
				t.Errorf("%s, %s: trials of %.3g and %.3g s; with %+v they would take %.3g and %.3g", name, what, short, long, found, gotShort, gotLong)
			}
		}
	}
}

// TestFitLeavesOrdinaryLinks: times close to the prediction leave the Network unchanged, so that noise
// does not change choices.
func TestFitLeavesOrdinaryLinks(t *testing.T) {
	for name, w := range gauged() {
		short, long := seconds(w.class, w.ranks, Links{})
		for _, times := range []float64{1 / ordinary * 1.01, 1, ordinary * 0.99} {
			if l := Fit(w.class, w.ranks, short*times, long*times); l != (Links{}) {
				t.Errorf("%s: %+v for %v times the expected time", name, l, times)
			}
		}
	}
}

// TestFitOfNonsense: a choice exists for any measured times.
func TestFitOfNonsense(t *testing.T) {
	w := gauged()["four ranks, TLS"]
	for _, short := range []float64{-1, 0, 1e-12, 1e3, math.Inf(1), math.NaN()} {
		for _, long := range []float64{-1, 0, 1e-12, 1e3, math.Inf(1), math.NaN()} {
			l := Fit(w.class, w.ranks, short, long)
			for _, v := range []float64{l.Delay, l.Work, l.Byte} {
				if v < 0 || v > 1e9 || math.IsNaN(v) {
					t.Errorf("%v and %v s: %+v", short, long, l)
				}
			}
		}
	}
}

// TestLinksCount: with slow bytes, ranks choose a plan that sends fewer of them between hosts
// than with long latency.
func TestLinksCount(t *testing.T) {
	classes, hosts := PathClasses{All: transport.ClassQUIC, Far: transport.ClassQUIC}, alike(true, 7, 1)
	sent := func(l Links) (share float64) {
		c := classes.Tuner(hosts, l, nil).Choose(Need{Collective: plan.AllReduce, Size: 7, Bytes: 256 << 10})
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
		t.Errorf("%.1f vectors are sent with long latency, %.1f with slow bytes", far, narrow)
	}
}
