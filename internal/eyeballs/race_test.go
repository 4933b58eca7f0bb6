package eyeballs

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const ms = time.Millisecond

var errDial = errors.New("dial")

// An address is a fake: it answers after some time. 0 means never.
type address struct {
	after time.Duration
	err   error
}

// attempts returns attempts that dial addresses. The result is the index.
func attempts(addrs []address) (list []Attempt[int]) {
	for i, a := range addrs {
		list = append(list, func(ctx context.Context, _ func()) (int, error) {
			var answer <-chan time.Time
			if a.after > 0 {
				answer = time.After(a.after)
			}
			select {
			case <-answer:
				return i, a.err
			case <-ctx.Done():
				return -1, context.Cause(ctx)
			}
		})
	}
	return list
}

// TestRace: dead addresses before the right one cost a delay each, and those that refuse cost only their answer. A slow address still
// wins if no other one is faster, and results of other addresses are discarded.
func TestRace(t *testing.T) {
	dead, refuses := address{}, address{after: ms, err: errDial}
	for name, test := range map[string]struct {
		addrs     []address
		delays    []time.Duration
		limit     time.Duration // of the context
		winner    int
		took      time.Duration
		discarded int
		errs      int // not nil
	}{
		"one":                            {addrs: []address{{after: 20 * ms}}, winner: 0, took: 20 * ms},
		"one dead address before":        {addrs: []address{dead, {after: 20 * ms}}, winner: 1, took: 270 * ms},
		"three dead addresses before":    {addrs: []address{dead, dead, dead, {after: 20 * ms}}, winner: 3, took: 770 * ms},
		"dead addresses after":           {addrs: []address{{after: 20 * ms}, dead, dead}, winner: 0, took: 20 * ms},
		"addresses that refuse":          {addrs: []address{refuses, refuses, {after: 20 * ms}}, winner: 2, took: 22 * ms, errs: 2},
		"a dead one, then one refuses":   {addrs: []address{dead, refuses, {after: 20 * ms}}, winner: 2, took: 271 * ms, errs: 1},
		"a slow one, others dead":        {addrs: []address{{after: 2 * time.Second}, dead, dead}, winner: 0, took: 2 * time.Second},
		"a slow one, then one refuses":   {addrs: []address{{after: 2 * time.Second}, refuses}, winner: 0, took: 2 * time.Second, errs: 1},
		"two answer at the same time":    {addrs: []address{{after: 300 * ms}, {after: 50 * ms}}, took: 300 * ms, winner: -2, discarded: 1},
		"all refuse":                     {addrs: []address{refuses, refuses}, winner: -1, took: 2 * ms, errs: 2},
		"all dead":                       {addrs: []address{dead, dead}, limit: time.Second, winner: -1, took: time.Second, errs: 2},
		"the time ends before the third": {addrs: []address{dead, dead, {after: ms}}, limit: 400 * ms, winner: -1, took: 400 * ms, errs: 2},
		"no time":                        {addrs: []address{{after: ms}}, limit: -ms, winner: -1, errs: 1},
		"other delays":                   {addrs: []address{dead, dead, dead, {after: 20 * ms}}, delays: []time.Duration{100 * ms, 200 * ms}, winner: 3, took: 520 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if test.limit != 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, test.limit)
					defer cancel()
				}
				discarded, began := 0, time.Now()
				winner, result, errs := Race[int]{Attempts: attempts(test.addrs), Delays: test.delays, Discard: func(int) { discarded++ }}.Run(ctx)
				if took := time.Since(began); took != test.took {
					t.Errorf("took %v, want %v", took, test.took)
				}
				if test.winner != -2 && winner != test.winner || winner >= 0 && result != winner {
					t.Errorf("won by %d, result %d, want %d", winner, result, test.winner)
				}
				if n := len(errs) - len(slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err != nil })); n != test.errs {
					t.Errorf("errors %v, want %d", errs, test.errs)
				}
				if discarded > test.discarded {
					t.Errorf("%d results are discarded, want at most %d", discarded, test.discarded)
				}
			})
		})
	}
}

// TestRaceContexts: the context of an attempt that has lost has ended when Run returns. That of the winner ends with the context of the race.
func TestRaceContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		addrs := attempts([]address{{}, {after: ms}})
		var contexts [2]context.Context
		for i, dial := range addrs {
			addrs[i] = func(ctx context.Context, answered func()) (int, error) {
				contexts[i] = ctx //nolint:fatcontext // The test looks at them after the race.
				return dial(ctx, answered)
			}
		}
		if winner, _, _ := (Race[int]{Attempts: addrs, Discard: func(int) {}}).Run(ctx); winner != 1 {
			t.Fatalf("won by %d, want 1", winner)
		}
		if contexts[0].Err() == nil || contexts[1].Err() != nil {
			t.Errorf("errors of the contexts: %v, %v, want that only the first has ended", contexts[0].Err(), contexts[1].Err())
		}
		cancel()
		if contexts[1].Err() == nil {
			t.Error("the context of the winner has not ended with that of the race")
		}
	})
}

// TestRepeat: an address without an answer is dialed by several sockets. An error of one of them is that of the address, unless another
// one succeeds.
func TestRepeat(t *testing.T) {
	for name, test := range map[string]struct {
		sockets []address // in the order of dials
		winner  int
		took    time.Duration
		dials   int
	}{
		"the first succeeds":            {[]address{{after: 200 * ms}}, 0, 200 * ms, 1},
		"the first stalls":              {[]address{{}, {after: 20 * ms}}, 1, 270 * ms, 2},
		"two stall":                     {[]address{{}, {}, {after: 20 * ms}}, 2, 520 * ms, 3},
		"the first fails":               {[]address{{after: ms, err: errDial}, {after: ms}}, -1, ms, 1},
		"one fails beside another":      {[]address{{after: time.Second}, {after: ms, err: errDial}}, 0, time.Second, 2},
		"the first fails after a while": {[]address{{after: 300 * ms, err: errDial}, {after: time.Second}}, 1, 1250 * ms, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var dials atomic.Int32
				began := time.Now()
				r := Race[int]{Discard: func(int) {}, Attempts: Repeat(3, func(ctx context.Context, answered func()) (int, error) {
					return attempts(test.sockets)[dials.Add(1)-1](ctx, answered)
				})}
				winner, result, errs := r.Run(t.Context())
				if winner != test.winner || winner >= 0 && result != winner || winner < 0 && !errors.Is(errs[0], errDial) {
					t.Errorf("won by %d, result %d, errors %v, want %d", winner, result, errs, test.winner)
				}
				if took := time.Since(began); took != test.took || int(dials.Load()) != test.dials {
					t.Errorf("took %v and %d dials, want %v and %d", took, dials.Load(), test.took, test.dials)
				}
			})
		})
	}
}

func TestAlternate(t *testing.T) {
	ips := func(list ...string) (ips []netip.Addr) {
		for _, s := range list {
			ips = append(ips, netip.MustParseAddr(s))
		}
		return ips
	}
	for _, test := range []struct{ names, want []netip.Addr }{
		{ips("fd00::1", "10.0.0.1"), ips("10.0.0.1", "fd00::1")},
		{ips("fd00::1", "fd00::2", "fd00::3", "10.0.0.1"), ips("10.0.0.1", "fd00::1", "fd00::2", "fd00::3")},
		{ips("10.0.0.1", "10.0.0.2", "fd00::1"), ips("10.0.0.1", "fd00::1", "10.0.0.2")},
		{ips("10.0.0.1", "::ffff:10.0.0.1", "10.0.0.1"), ips("10.0.0.1")},
		{ips("fe80::1%eth0", "fe80::1%ib0"), ips("fe80::1%eth0", "fe80::1%ib0")},
	} {
		var got []netip.Addr
		for _, ap := range alternate(test.names, 7946) {
			got = append(got, ap.Addr())
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%v are dialed as %v, want %v", test.names, got, test.want)
		}
	}
}

// TestResolve: an address resolves to itself, and a name to addresses of both families if it has them.
func TestResolve(t *testing.T) {
	for addr, want := range map[string][]netip.AddrPort{
		"10.0.0.1:7946":        {netip.MustParseAddrPort("10.0.0.1:7946")},
		"[fe80::1%eth0]:7946":  {netip.MustParseAddrPort("[fe80::1%eth0]:7946")},
		"[::ffff:10.0.0.1]:80": {netip.MustParseAddrPort("10.0.0.1:80")},
		":7946":                {netip.MustParseAddrPort("127.0.0.1:7946"), netip.MustParseAddrPort("[::1]:7946")},
	} {
		if got, err := Resolve(t.Context(), "tcp", addr); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s resolves to %v, %v, want %v", addr, got, err, want)
		}
	}
	for _, addr := range []string{"10.0.0.1", "10.0.0.1:port-of-no-service", "[::1:7946"} {
		if got, err := Resolve(t.Context(), "tcp", addr); err == nil {
			t.Errorf("%s resolves to %v, want an error", addr, got)
		}
	}
}

// TestWithZone: a link-local address gets the zone of the peer that has told it.
func TestWithZone(t *testing.T) {
	for _, test := range []struct{ addr, peer, want string }{
		{"[fe80::1]:7", "[fe80::9%b0]:7946", "[fe80::1%b0]:7"},
		{"[fe80::1%a0]:7", "[fe80::9%b0]:7946", "[fe80::1%b0]:7"},
		{"[fe80::1%a0]:7", "10.0.0.9:7946", "[fe80::1%a0]:7"},
		{"[fd00::1]:7", "[fe80::9%b0]:7946", "[fd00::1]:7"},
		{"169.254.1.1:7", "[fe80::9%b0]:7946", "169.254.1.1:7"},
		{"node.example:7", "[fe80::9%b0]:7946", "node.example:7"},
		{"@socket", "[fe80::9%b0]:7946", "@socket"},
	} {
		if got := WithZone(test.addr, test.peer); got != test.want {
			t.Errorf("%s from %s is dialed as %s, want %s", test.addr, test.peer, got, test.want)
		}
	}
}
