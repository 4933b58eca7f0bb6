package accord

import (
	"context"
	"encoding/binary"
	"log/slog"
	"math"
	"time"

	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/tune"
)

// hurry is how long an all-reduce may take to be tried more than once.
const hurry = 50 * time.Millisecond

// gauge has all ranks find out how fast the links between them are, where that
// is not what the ways let expect.
func (v voters) gauge(ctx context.Context, ways tune.Ways, hosts plan.Hosts, log *slog.Logger) (l tune.Links, err error) {
	if ways.Tuner(hosts, l) == nil {
		return l, nil
	}
	short, long := tune.Trials(hosts.Size())
	once := long
	once.Times, once.Rows = 1, 1
	var least [2]float64
	for i, t := range []tune.Trial{short, once} {
		if least[i], err = v.try(ctx, t); err != nil {
			return l, err
		}
	}
	if least, err = v.slowest(ctx, least); err != nil {
		return l, err
	}
	if least[1] < hurry.Seconds() && long != once {
		again, err := v.try(ctx, long)
		if err != nil {
			return l, err
		}
		least[1] = min(least[1], again)
		if least, err = v.slowest(ctx, least); err != nil {
			return l, err
		}
	}
	l = ways.Fit(hosts, least[0], least[1])
	log.Debug("links measured", "short", least[0], "long", least[1], "links", l)
	return l, nil
}

// try is how many seconds a trial takes. A single all-reduce tells little: a rank
// that is late finds that others have done their part.
func (v voters) try(ctx context.Context, t tune.Trial) (float64, error) {
	before := v.book.Tuner()
	defer v.book.SetTuner(before)
	v.book.SetTuner(fixed(t.Index))
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
