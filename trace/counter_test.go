package trace

import (
	"encoding/json"
	"math"
	"reflect"
	"testing"
	"time"
)

// TestDurationBucket: a duration is in the bucket whose bounds, powers of two, contain it.
func TestDurationBucket(t *testing.T) {
	for d, want := range map[time.Duration]int{
		-1: DurationFirst, 0: DurationFirst, 1: DurationFirst, math.MaxInt64: DurationLast,
		time.Second: 0, time.Second + 1: 1, time.Second - 1: 0, time.Second / 2: -1, time.Second/2 + 1: 0, 2 * time.Second: 1, 3 * time.Second: 2,
		time.Second / 1024: -10, // 976,562.5 ns, cut
		time.Millisecond:   -9,
		time.Microsecond:   -19,
	} {
		if got := DurationBucket(d); got != want {
			t.Errorf("%v is in bucket %d, want %d", d, got, want)
		}
	}
	for d := time.Duration(1); d < 1<<62; d += d/7 + 1 {
		b := DurationBucket(d)
		if b > DurationFirst && d.Seconds() <= math.Ldexp(1, b-1) || b < DurationLast && d.Seconds() > math.Ldexp(1, b) {
			t.Fatalf("%v is in bucket %d", d, b)
		}
	}
}

// TestCounterJSON: a counter without durations and waits is short, and reading returns what was written.
func TestCounterJSON(t *testing.T) {
	for text, c := range map[string]Counter{
		`{"op":"barrier","ranks":2,"calls":3,"bytes":0}`: {Op: "barrier", Ranks: 2, Calls: 3},
		`{"op":"all_reduce","ranks":8,"plan":"ring","calls":9,"failed":1,"bytes":80,"durations":{"sum":5,"first":-3,"counts":[4,0,4]},` +
			`"waited":7,"waited_for":[{"rank":3,"time":6}]}`: {
			Op: "all_reduce", Ranks: 8, Plan: "ring", Calls: 9, Failed: 1, Bytes: 80,
			Durations: Durations{Sum: 5, First: -3, Counts: []uint64{4, 0, 4}}, Waited: 7, WaitedFor: []RankTime{{3, 6}},
		},
	} {
		b, err := json.Marshal(c)
		if err != nil || string(b) != text {
			t.Errorf("%+v is written as %s, %v", c, b, err)
		}
		var got Counter
		if err := json.Unmarshal(b, &got); err != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("%s is read as %+v, %v", b, got, err)
		}
	}
	if n := (Durations{Counts: []uint64{4, 0, 5}}).Count(); n != 9 {
		t.Errorf("%d durations, want 9", n)
	}
}
