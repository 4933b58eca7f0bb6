package negotiate

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/selector"
	"github.com/nexar-go/nexar/transport"
)

// measuringMax bounds the ranks that measure links: more would take longer without a better
// result.
const measuringMax = 8

// MeasuringRanks returns the ranks that measure the links between hosts: the first ranks of
// the first hosts. It returns none if all ranks are on one host.
func MeasuringRanks(h plan.Hosts) []int {
	if h.Count() < 2 {
		return nil
	}
	return h.FirstRanks(measuringMax)
}

// repeatMax is the longest time of an all-reduce that is measured more than once.
const repeatMax = 50 * time.Millisecond

// measureLinks returns the deviation of the links between hosts from the model of their class.
func (n negotiator) measureLinks(ctx context.Context, class transport.Class, cfg Config) (l cost.Links, err error) {
	ranks := MeasuringRanks(cfg.Hosts)
	if _, known := cost.NetworkOf(class); !known || len(ranks) < 2 {
		return l, nil
	}
	var least [2]float64
	if cfg.Trial != nil {
		t := negotiator{comm: cfg.Trial, selector: selector.New(slices.Index(ranks, cfg.Rank), len(ranks), cfg.Pool, fixed(0)), timeout: cfg.Timeout}
		if least, err = t.measure(ctx); err != nil {
			n.comm.Cancel(err) // The other ranks wait in slowest.
			return l, err
		}
	}
	if least, err = n.slowest(ctx, least); err != nil {
		return l, err
	}
	l = cost.Fit(class, len(ranks), least[0], least[1])
	cfg.Log.Debug("links measured", "short", least[0], "long", least[1], "links", l)
	return l, nil
}

// measure returns the times of a short and of a long all-reduce in seconds.
func (n negotiator) measure(ctx context.Context) (least [2]float64, err error) {
	short, long := cost.Trials()
	once := long
	once.Times, once.Rows = 1, 1
	for i, t := range []cost.Trial{short, once} {
		if least[i], err = n.time(ctx, t); err != nil {
			return least, err
		}
	}
	if least, err = n.slowest(ctx, least); err != nil || least[1] > repeatMax.Seconds() {
		return least, err
	}
	again, err := n.time(ctx, long)
	least[1] = min(least[1], again)
	return least, err
}

// time returns the time of an all-reduce of a trial in seconds, averaged over several in a row:
// a single one could be half done before a late rank starts to measure.
func (n negotiator) time(ctx context.Context, t cost.Trial) (float64, error) {
	before := n.selector.Tuner()
	defer n.selector.SetTuner(before)
	n.selector.SetTuner(fixed(t.Index))
	data, least := make([]byte, t.Bytes), math.Inf(1)
	for range t.Rows {
		start := time.Now()
		for range t.Times {
			if err := n.allReduce(ctx, data, t.Bytes/kernel.Float32.Size(), kernel.Float32, kernel.Sum); err != nil {
				return 0, err
			}
		}
		least = min(least, time.Since(start).Seconds()/float64(t.Times))
	}
	return least, nil
}

// slowest returns the maximum over all ranks.
func (n negotiator) slowest(ctx context.Context, seconds [2]float64) ([2]float64, error) {
	var b []byte
	for _, s := range seconds {
		b = binary.NativeEndian.AppendUint64(b, math.Float64bits(s))
	}
	err := n.allReduce(ctx, b, len(seconds), kernel.Float64, kernel.Max)
	for i := range seconds {
		seconds[i] = math.Float64frombits(binary.NativeEndian.Uint64(b[8*i:]))
	}
	return seconds, err
}
