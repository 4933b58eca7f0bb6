package recorder

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/nexar-go/nexar/trace"
)

func TestDurations(t *testing.T) {
	var d, other Durations
	if got := d.Trace(); !got.IsZero() {
		t.Errorf("no durations are %+v", got)
	}
	d.Add(time.Second, 64)
	d.Add(3*time.Second, 1)
	other.Add(time.Second/4, 2)
	d.Merge(&other)
	want := trace.Durations{Sum: 67*time.Second + time.Second/2, First: -2, Counts: []uint64{2, 0, 64, 0, 1}}
	if got := d.Trace(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestWaits: the ranks with the longest times are kept, in order, among many others.
func TestWaits(t *testing.T) {
	var w Waits
	w.Add(time.Second, nil)
	w.Add(-time.Second, []int{1})
	w.Add(time.Second, []int{1, 2, 3, 4, 5, 6, 7, 8, 9})
	if w.Sum != time.Second || len(w.Ranks) > 0 {
		t.Errorf("after a wait for nine ranks: %+v", w)
	}
	w = Waits{}
	r := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		w.Add(time.Millisecond, []int{r.IntN(100)})
		w.Add(2*time.Millisecond, []int{200, 300})
		w.Add(time.Millisecond, []int{300})
	}
	if len(w.Ranks) != trace.WaitedForMax || w.Ranks[0] != (trace.RankTime{Rank: 300, Time: 30 * time.Second}) || w.Ranks[1] != (trace.RankTime{Rank: 200, Time: 20 * time.Second}) {
		t.Errorf("got %+v", w.Ranks)
	}
	if want := 40 * time.Second; w.Sum != want {
		t.Errorf("sum %v, want %v", w.Sum, want)
	}
}
