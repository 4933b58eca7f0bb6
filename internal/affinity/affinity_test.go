//race:none it starts no goroutine

package affinity

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/spin"
)

// newPlace returns the Place of a rank. All ranks show each other their processors.
func newPlace(shown []*atomic.Uint32, rank, processors int) *Place {
	others := slices.Delete(slices.Clone(shown), rank, rank+1)
	return New(Config{
		Processors: processors, Others: len(others), Before: rank,
		Show: func(cpu int) { shown[rank].Store(uint32(cpu + 1)) },
		Where: func(on []int) {
			for i, other := range others {
				on[i] = int(other.Load()) - 1
			}
		},
	})
}

// TestPlaces: ranks on one processor spread over all processors, and then stay.
func TestPlaces(t *testing.T) {
	for _, test := range []struct{ ranks, processors int }{{2, 2}, {3, 2}, {4, 2}, {5, 2}, {8, 3}, {4, 8}} {
		shown := make([]*atomic.Uint32, test.ranks)
		for i := range shown {
			shown[i] = new(atomic.Uint32)
			shown[i].Store(1)
		}
		hops := 0
		for round := range 3 {
			for i := range shown {
				p := newPlace(shown, i, test.processors)
				cpu := int(shown[i].Load()) - 1
				p.delays = func() (time.Duration, int) { return 0, 0 }
				p.hop = func(others []int) (to int, hopped bool) {
					hops++
					return fewest(others, cpu, test.processors), true
				}
				before := hops
				p.check(cpu)
				if hops > before && round > 0 {
					t.Errorf("%d ranks, %d processors: one moves again in round %d", test.ranks, test.processors, round)
				}
			}
		}
		on := make([]int, test.processors)
		for _, s := range shown {
			on[s.Load()-1]++
		}
		for cpu, n := range on {
			if most := (test.ranks + test.processors - 1) / test.processors; n > most {
				t.Errorf("%d ranks, %d processors: %d are on number %d, want %d at most", test.ranks, test.processors, n, cpu, most)
			}
		}
	}
}

// TestPlaceAmongSleepers: the two ranks that are awake among many do not share a processor.
func TestPlaceAmongSleepers(t *testing.T) {
	shown := make([]*atomic.Uint32, 8)
	for i := range shown {
		shown[i] = new(atomic.Uint32)
	}
	shown[0].Store(1)
	p, hops := newPlace(shown, 7, 2), 0
	p.delays = func() (time.Duration, int) { return 0, 0 }
	p.hop = func([]int) (to int, hopped bool) { hops++; return 1, true }
	if p.check(1); hops != 0 {
		t.Error("a rank moves from a processor of its own")
	}
	if p.check(0); hops != 1 {
		t.Errorf("%d moves of a rank on the processor of the other one that is awake, want 1", hops)
	}
}

// TestPlacesAtOnce: ranks on one processor that all check it at the same time spread over all processors, and then stay.
func TestPlacesAtOnce(t *testing.T) {
	for _, test := range []struct{ ranks, processors, rounds int }{{2, 2, 1}, {3, 2, 2}, {4, 2, 2}, {5, 2, 3}, {8, 3, 5}, {4, 8, 3}} {
		shown, next := make([]*atomic.Uint32, test.ranks), make([]uint32, test.ranks)
		for i := range shown {
			shown[i], next[i] = new(atomic.Uint32), 1
		}
		hops := 0
		for round := range 2 * test.rounds {
			for i, cpu := range next {
				shown[i].Store(cpu)
			}
			for i := range shown {
				p, cpu := newPlace(shown, i, test.processors), int(shown[i].Load())-1
				p.cfg.Show = func(cpu int) { next[i] = uint32(cpu + 1) }
				p.delays = func() (time.Duration, int) { return 0, 0 }
				p.hop = func(others []int) (to int, hopped bool) {
					hops++
					if round >= test.rounds {
						t.Errorf("%d ranks, %d processors: rank %d moves in round %d", test.ranks, test.processors, i, round)
					}
					return fewest(others, cpu, test.processors), true
				}
				p.check(cpu)
			}
		}
		on := make([]int, test.processors)
		for _, cpu := range next {
			on[cpu-1]++
		}
		if most := (test.ranks + test.processors - 1) / test.processors; slices.Max(on) > most || hops == 0 {
			t.Errorf("%d ranks, %d processors: %d on each after %d moves, want %d at most", test.ranks, test.processors, on, hops, most)
		}
	}
}

// fewest returns the processor with the fewest ranks.
func fewest(others []int, from, processors int) (to int) {
	on := make([]int, processors)
	for _, cpu := range others {
		on[cpu]++
	}
	to = from
	for cpu, n := range on {
		if n < on[to] {
			to = cpu
		}
	}
	return to
}

// TestPlacePause: a rank that is moved back repeatedly hops less and less often; after a while
// without that it hops soon again.
func TestPlacePause(t *testing.T) {
	shown := []*atomic.Uint32{new(atomic.Uint32), new(atomic.Uint32)}
	p := newPlace(shown, 0, 2)
	hops := 0
	p.hop = func([]int) (int, bool) { hops++; return 0, true }
	p.delays = func() (time.Duration, int) { return 0, 0 }
	now := time.Now()
	for range 3000 {
		now = now.Add(time.Millisecond)
		p.move(0, 1, now)
	}
	if hops < 5 || hops > 20 {
		t.Errorf("%d hops in 3 s of which each was in vain, want a dozen", hops)
	}
	for range 20 {
		now = now.Add(2 * hopPauseMax)
		p.move(0, 1, now)
	}
	if p.pause != hopPause {
		t.Errorf("after a quiet time the pause is %v, want %v", p.pause, hopPause)
	}
}

// TestPlaceIsShown: a waiting rank shows its processor, and a sleeping rank none.
func TestPlaceIsShown(t *testing.T) {
	shown := []*atomic.Uint32{new(atomic.Uint32), new(atomic.Uint32)}
	p := newPlace(shown, 1, 64)
	for range checkEvery {
		p.Settle()
	}
	if got, known := shown[1].Load(), spin.Processor() >= 0; (got > 0) != known {
		t.Errorf("shows %d, want a processor: %v", got, known)
	}
	if p.Away(); shown[1].Load() != 0 {
		t.Error("shows a processor while it sleeps")
	}
}

// TestHopOnTrial: a rank with another program on its new processor returns, and stays longer each
// time; otherwise it stays on the new processor.
func TestHopOnTrial(t *testing.T) {
	for _, test := range []struct {
		name     string
		delayed  time.Duration // in 20 ms
		thread   int           // at the end of the trial
		wantBack bool
		pause    time.Duration
	}{
		{"alone", 0, 7, false, hopPause},
		{"a little", trialTime / 5, 7, false, hopPause},
		{"another program", trialTime / 2, 7, true, returnPause},
		{"on another thread", trialTime, 8, false, hopPause},
	} {
		shown := []*atomic.Uint32{new(atomic.Uint32), new(atomic.Uint32)}
		p := newPlace(shown, 0, 2)
		delay, thread, back := time.Second, 7, -1
		p.hop = func([]int) (int, bool) { return 1, true }
		p.back = func(to int) { back = to }
		p.delays = func() (time.Duration, int) { return delay, thread }
		now := time.Now()
		p.move(0, 1, now)
		if p.judge(now.Add(trialTime / 2)); !p.onTrial.Load() {
			t.Errorf("%s: judged before the time", test.name)
		}
		delay, thread = delay+test.delayed, test.thread
		p.judge(now.Add(trialTime))
		if (back == 0) != test.wantBack || p.pause != test.pause || p.onTrial.Load() {
			t.Errorf("%s: went back to %d, with a pause of %v; want to go back: %v, and %v", test.name, back, p.pause, test.wantBack, test.pause)
		}
		if want := uint32(2); !test.wantBack && shown[0].Load() != want {
			t.Errorf("%s: shows %d, want %d", test.name, shown[0].Load(), want)
		}
	}
	p := newPlace([]*atomic.Uint32{new(atomic.Uint32), new(atomic.Uint32)}, 0, 2)
	backs, delay := 0, time.Duration(0)
	p.hop = func([]int) (int, bool) { return 1, true }
	p.back = func(int) { backs++ }
	p.delays = func() (time.Duration, int) { return delay, 7 }
	now := time.Now()
	for range 100_000 {
		now = now.Add(time.Millisecond)
		delay += time.Millisecond
		p.move(0, 1, now)
		p.judge(now)
	}
	if backs < 8 || backs > 14 {
		t.Errorf("hopped back %d times in 100 s, want a dozen", backs)
	}
}

// TestSightings: a rank moves only after Sightings crowded checks in a row, and avoids only the
// ranks before it.
func TestSightings(t *testing.T) {
	other, hops := 0, 0
	p := New(Config{Processors: 3, Others: 1, Before: 1, Sightings: 3, Where: func(on []int) { on[0] = other }})
	p.hop = func([]int) (int, bool) { hops++; return 1, true }
	p.delays = func() (time.Duration, int) { return 0, 0 }
	for _, step := range []struct{ cpu, other, hops int }{
		{0, 0, 0}, {0, 0, 0}, {0, 2, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 1},
		{1, 0, 1}, {1, -1, 1}, {-1, -1, 1}, {-1, -1, 1}, {-1, -1, 1},
	} {
		other = step.other
		if p.check(step.cpu); hops != step.hops {
			t.Fatalf("on %d, the other on %d: %d hops, want %d", step.cpu, step.other, hops, step.hops)
		}
	}
	var none *Place
	none.Settle()
	none.Judge()
	none.Away()
}
