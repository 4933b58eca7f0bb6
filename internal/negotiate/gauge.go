package negotiate

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/selector"
	"github.com/nexar-go/nexar/transport"
)

// trialRanks is how many ranks measure links at most. More of them would tell
// no more, and take longer the more there are.
const trialRanks = 8

// TrialRanks are the ranks that measure the links between hosts for all: those
// that come first on the first hosts. There are none if all are on one host.
func TrialRanks(h plan.Hosts) []int {
	if h.Count() < 2 {
		return nil
	}
	return h.Heads(trialRanks)
}

// hurry is how long an all-reduce may take to be tried more than once.
const hurry = 50 * time.Millisecond

// gauge has all ranks find out how fast the links between hosts are, where that
// is not what their class predicts.
func (v voters) gauge(ctx context.Context, class transport.Class, cfg Config) (l cost.Links, err error) {
	ranks := TrialRanks(cfg.Hosts)
	if _, known := cost.NetworkOf(class); !known || len(ranks) < 2 {
		return l, nil
	}
	var least [2]float64
	if cfg.Trial != nil {
		t := voters{comm: cfg.Trial, selector: selector.New(slices.Index(ranks, cfg.Rank), len(ranks), cfg.Pool, fixed(0)), timeout: cfg.Timeout}
		if least, err = t.measure(ctx); err != nil {
			err = amongAll(err, ranks)
			v.comm.Cancel(err) // Others wait there for this rank.
			return l, err
		}
	}
	if least, err = v.slowest(ctx, least); err != nil {
		return l, err
	}
	l = cost.Fit(class, len(ranks), least[0], least[1])
	cfg.Log.Debug("links measured", "short", least[0], "long", least[1], "links", l)
	return l, nil
}

// amongAll is an error of the ranks of a trial, which has the numbers that these have among
// all.
func amongAll(err error, ranks []int) error {
	if p, ok := errors.AsType[*engine.PeerError](err); ok {
		return &engine.PeerError{Rank: ranks[p.Rank], Left: p.Left, Err: p.Err}
	}
	if r, ok := errors.AsType[*engine.RevokedError](err); ok && r.Rank >= 0 {
		return &engine.RevokedError{Rank: ranks[r.Rank], Cause: r.Cause, Peer: ranks[r.Peer], Text: r.Text}
	}
	if late, ok := errors.AsType[*engine.TimeoutError](err); ok {
		all := *late
		all.Waiting = slices.Clone(late.Waiting)
		for i := range all.Waiting {
			all.Waiting[i].Rank = ranks[all.Waiting[i].Rank]
		}
		return &all
	}
	return err
}

// measure is how many seconds a short and a long all-reduce take.
func (v voters) measure(ctx context.Context) (least [2]float64, err error) {
	short, long := cost.Trials()
	once := long
	once.Times, once.Rows = 1, 1
	for i, t := range []cost.Trial{short, once} {
		if least[i], err = v.try(ctx, t); err != nil {
			return least, err
		}
	}
	if least, err = v.slowest(ctx, least); err != nil || least[1] > hurry.Seconds() {
		return least, err
	}
	again, err := v.try(ctx, long)
	least[1] = min(least[1], again)
	return least, err
}

// try is how many seconds a trial takes. A single all-reduce tells little: a rank
// that is late finds that others have done their part.
func (v voters) try(ctx context.Context, t cost.Trial) (float64, error) {
	before := v.selector.Tuner()
	defer v.selector.SetTuner(before)
	v.selector.SetTuner(fixed(t.Index))
	data, least := make([]byte, t.Bytes), math.Inf(1)
	for range t.Rows {
		start := time.Now()
		for range t.Times {
			if err := v.allReduce(ctx, data, t.Bytes/kernel.Float32.Size(), kernel.Float32, kernel.Sum); err != nil {
				return 0, err
			}
		}
		least = min(least, time.Since(start).Seconds()/float64(t.Times))
	}
	return least, nil
}

// slowest are the longest times of all ranks.
func (v voters) slowest(ctx context.Context, seconds [2]float64) ([2]float64, error) {
	var b []byte
	for _, s := range seconds {
		b = binary.NativeEndian.AppendUint64(b, math.Float64bits(s))
	}
	err := v.allReduce(ctx, b, len(seconds), kernel.Float64, kernel.Max)
	for i := range seconds {
		seconds[i] = math.Float64frombits(binary.NativeEndian.Uint64(b[8*i:]))
	}
	return seconds, err
}
