package recorder

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/nexar-go/nexar/trace"
)

func TestDurations(t *testing.T) {
	var c, other trace.Counter
	CountDuration(&c.Durations, time.Second, 64)
	CountDuration(&c.Durations, 3*time.Second, 1)
	CountDuration(&other.Durations, time.Second/4, 2)
	Merge(&c, &other)
	want := trace.Durations{Sum: 67*time.Second + time.Second/2, First: -2, Counts: []uint64{2, 0, 64, 0, 1}}
	if got := c.Durations; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestWaits: the ranks with the longest times are kept, in order, among many others.
func TestWaits(t *testing.T) {
	var w trace.Counter
	CountWait(&w, time.Second, nil)
	CountWait(&w, -time.Second, []int{1})
	CountWait(&w, time.Second, []int{1, 2, 3, 4, 5, 6, 7, 8, 9})
	if w.Waited != time.Second || len(w.WaitedFor) > 0 {
		t.Errorf("after a wait for nine ranks: %+v", w)
	}
	w = trace.Counter{}
	r := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		CountWait(&w, time.Millisecond, []int{r.IntN(100)})
		CountWait(&w, 2*time.Millisecond, []int{200, 300})
		CountWait(&w, time.Millisecond, []int{300})
	}
	if len(w.WaitedFor) != trace.WaitedForMax || w.WaitedFor[0] != (trace.RankTime{Rank: 300, Time: 30 * time.Second}) || w.WaitedFor[1] != (trace.RankTime{Rank: 200, Time: 20 * time.Second}) {
		t.Errorf("got %+v", w.WaitedFor)
	}
	if want := 40 * time.Second; w.Waited != want {
		t.Errorf("sum %v, want %v", w.Waited, want)
	}
}

// TestBucketOf: a duration lies between the bounds of its bucket, powers of two.
func TestBucketOf(t *testing.T) {
	for d, want := range map[time.Duration]int{
		-1: trace.DurationFirst, 0: trace.DurationFirst, 1: trace.DurationFirst, math.MaxInt64: trace.DurationLast,
		time.Second: 0, time.Second + 1: 1, time.Second - 1: 0, time.Second / 2: -1, time.Second/2 + 1: 0, 2 * time.Second: 1, 3 * time.Second: 2,
		time.Second / 1024: -10, // 976,562.5 ns, cut
		time.Millisecond:   -9,
		time.Microsecond:   -19,
	} {
		if got := bucketOf(d); got != want {
			t.Errorf("%v is in bucket %d, want %d", d, got, want)
		}
	}
	for d := time.Duration(1); d < 1<<62; d += d/7 + 1 {
		b := bucketOf(d)
		if b > trace.DurationFirst && d.Seconds() <= math.Ldexp(1, b-1) || b < trace.DurationLast && d.Seconds() > math.Ldexp(1, b) {
			t.Fatalf("%v is in bucket %d", d, b)
		}
	}
}
