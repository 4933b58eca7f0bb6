package tcp

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestRace checks when race starts calls, which result it returns, and that it discards
// the others.
func TestRace(t *testing.T) {
	errDial := errors.New("dial")
	type call struct {
		takes time.Duration
		err   error
	}
	for name, test := range map[string]struct {
		calls     []call // number i returns i
		result    int
		err       error
		after     time.Duration
		discarded int // later results
	}{
		"the first succeeds":                  {calls: []call{{takes: 500 * time.Millisecond}}, result: 0, after: 500 * time.Millisecond},
		"the first stalls":                    {calls: []call{{takes: time.Hour}, {takes: time.Second}}, result: 1, after: 2 * time.Second},
		"the first is slow, and not given up": {calls: []call{{takes: 2500 * time.Millisecond}, {takes: time.Hour}}, result: 0, after: 2500 * time.Millisecond},
		"one error beside a running call":     {calls: []call{{takes: 3 * time.Second}, {err: errDial}, {takes: time.Hour}}, result: 0, after: 3 * time.Second},
		"the only call fails":                 {calls: []call{{takes: time.Millisecond, err: errDial}}, err: errDial, after: time.Millisecond},
		"all stall":                           {calls: []call{{takes: time.Hour}, {takes: time.Hour}, {takes: time.Hour}}, err: context.DeadlineExceeded, after: 10 * time.Second},
		"a result after the first one":        {calls: []call{{takes: 1200 * time.Millisecond}, {takes: 300 * time.Millisecond}}, result: 0, after: 1200 * time.Millisecond, discarded: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &conn{t: newIdleTransport()}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				var next, discarded atomic.Int64
				began := time.Now()
				got, err := race(ctx, c.spawn, []time.Duration{time.Second, 2 * time.Second}, func() (int, error) {
					i := int(next.Add(1)) - 1
					select {
					case <-time.After(test.calls[i].takes):
						return i, test.calls[i].err
					case <-ctx.Done():
						return 0, ctx.Err()
					}
				}, func(int) { discarded.Add(1) })
				if got != test.result || err != test.err || time.Since(began) != test.after {
					t.Errorf("race returns %d, %v after %v, want %d, %v after %v", got, err, time.Since(began), test.result, test.err, test.after)
				}
				synctest.Wait()
				time.Sleep(test.calls[len(test.calls)-1].takes) // for late results
				cancel()
				c.t.tasks.Wait()
				if n := int(discarded.Load()); n != test.discarded {
					t.Errorf("%d results are discarded, want %d", n, test.discarded)
				}
			})
		})
	}
}

// TestRaceDelays: a race dials its second socket later while handshakes take long, and dials one in any case.
func TestRaceDelays(t *testing.T) {
	const timeout = 10 * time.Second
	now := time.Now()
	for _, c := range []struct {
		name  string
		took  []time.Duration
		ago   time.Duration
		first time.Duration
		count int
	}{
		{"no handshake", nil, 0, time.Second, 3},
		{"short ones", []time.Duration{time.Millisecond, 2 * time.Millisecond}, 0, time.Second, 3},
		{"some with lost packets", []time.Duration{time.Millisecond, time.Millisecond, 3 * time.Second, 3 * time.Second, time.Second}, 0, time.Second, 3},
		{"busy hosts", []time.Duration{300 * time.Millisecond, 350 * time.Millisecond, 400 * time.Millisecond}, 0, 2400 * time.Millisecond, 2},
		{"very busy hosts", []time.Duration{5 * time.Second}, 0, 4 * time.Second, 1},
		{"long ago", []time.Duration{5 * time.Second}, handshakesLast, time.Second, 3},
	} {
		var k handshakeClock
		for _, d := range c.took {
			k.note(now.Add(-d-c.ago), now.Add(-c.ago))
		}
		if got := k.delays(now, timeout); len(got) != c.count || got[0] != c.first {
			t.Errorf("%s: delays %v, want %d, the first of %v", c.name, got, c.count, c.first)
		}
	}
}
