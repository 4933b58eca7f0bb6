package trace

import (
	"encoding/json"
	"reflect"
	"testing"
)

// TestCounterJSON: a counter without durations and waits is short, and reading returns the same counter.
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
