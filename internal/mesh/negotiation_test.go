package mesh

import (
	"testing"
	"time"
)

// TestTwoProposals: what happens to a proposal for a link while there is an earlier one.
func TestTwoProposals(t *testing.T) {
	const answer = time.Second
	small, large := idOf(1), idOf(2)
	direct, relay := &Path{}, &Path{Relay: true}
	own, ownRelayed := &route{path: direct}, &route{path: relay}
	of := func(path *Path) *route { return &route{peer: large, path: path} }
	for name, test := range map[string]struct {
		r, before *route
		isBroken  bool
		wins      bool // if the peer has the larger NodeID
		repeats   bool
		delay     time.Duration
	}{
		"own after own":                        {r: own, before: own},
		"own after the peer's":                 {r: own, before: of(direct)},
		"own after the peer's over relays":     {r: own, before: of(relay), delay: answer / delayShare},
		"own over relays after the peer's":     {r: ownRelayed, before: of(direct)},
		"the peer's after own":                 {r: of(direct), before: own, wins: true, delay: unansweredMax},
		"the peer's after own, broken":         {r: of(direct), before: own, isBroken: true, wins: true, delay: answer / delayShare},
		"the peer's after own over relays":     {r: of(direct), before: ownRelayed, wins: true, delay: answer / delayShare},
		"the peer's over relays after own":     {r: of(relay), before: own, wins: true},
		"both over relays":                     {r: of(relay), before: ownRelayed, wins: true, delay: unansweredMax},
		"both over relays, broken":             {r: of(relay), before: ownRelayed, isBroken: true, wins: true, delay: answer / delayShare},
		"the peer's again":                     {r: of(direct), before: of(direct), repeats: true},
		"the peer's again, broken":             {r: of(direct), before: of(direct), isBroken: true, repeats: true},
		"the peer's over another path":         {r: of(direct), before: of(new(Path))},
		"the peer's after one over relays":     {r: of(direct), before: of(relay), delay: answer / delayShare},
		"the peer's over relays after another": {r: of(relay), before: of(direct)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.r.winsOver(test.before, small, large); got != test.wins {
				t.Errorf("the later one wins against a smaller NodeID: %v, want %v", got, test.wins)
			}
			if test.r.winsOver(test.before, large, small) {
				t.Error("the later one wins against a larger NodeID")
			}
			if got := test.r.repeats(test.before); got != test.repeats {
				t.Errorf("it repeats the earlier one: %v, want %v", got, test.repeats)
			}
			if got := test.r.delayBy(test.before, test.isBroken, answer); got != test.delay {
				t.Errorf("it is delayed by %v, want %v", got, test.delay)
			}
		})
	}
}

// TestDeclines: a node declines proposals over the path that has failed last, if the last connections have delivered nothing, and accepts one in the end.
func TestDeclines(t *testing.T) {
	bad, good := &Path{Transport: namedTransport{}}, &Path{Transport: namedTransport{}}
	over := func(p *Path) *route { return &route{path: p, conn: addrConn{addr: "10.0.0.1:1"}} }
	var n negotiation
	n.noteFailure(over(good), errUnlinked)
	n.noteFailure(over(bad), errUnlinked)
	for n.fruitless = range fruitlessMax {
		if n.declines(over(bad), nil) {
			t.Errorf("declined after %d connections that delivered nothing", n.fruitless)
		}
	}
	n.fruitless = fruitlessMax
	if n.declines(over(good), nil) {
		t.Error("declined another path")
	}
	for i := range 2 * declinedMax {
		r, bulk := over(bad), (*Path)(nil)
		if i%2 == 1 {
			r, bulk = over(good), bad
		}
		if got, want := n.declines(r, bulk), i < declinedMax; got != want {
			t.Errorf("proposal %d is declined: %v, want %v", i+1, got, want)
		}
	}
}
