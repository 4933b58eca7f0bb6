package membership

import "testing"

// TestPeerMutants: each of these faults in the table breaks a promise in some world.
func TestPeerMutants(t *testing.T) {
	type next = func(p Peer, e PeerEvent, f PeerFacts) (Peer, PeerEffects)
	without := func(effect PeerEffects) next {
		return func(p Peer, e PeerEvent, f PeerFacts) (Peer, PeerEffects) {
			after, effects := p.Next(e, f)
			return after, effects &^ effect
		}
	}
	as := func(from, to PeerEvent) next { // takes an event for another one
		return func(p Peer, e PeerEvent, f PeerFacts) (Peer, PeerEffects) {
			if e == from {
				e = to
			}
			return p.Next(e, f)
		}
	}
	ignores := func(facts PeerFacts) next {
		return func(p Peer, e PeerEvent, f PeerFacts) (Peer, PeerEffects) { return p.Next(e, f&^facts) }
	}
	assumes := func(facts PeerFacts) next {
		return func(p Peer, e PeerEvent, f PeerFacts) (Peer, PeerEffects) { return p.Next(e, f|facts) }
	}
	after := func(change func(before Peer, e PeerEvent, f PeerFacts, p *Peer, effects *PeerEffects)) next {
		return func(p Peer, e PeerEvent, f PeerFacts) (Peer, PeerEffects) {
			next, effects := p.Next(e, f)
			change(p, e, f, &next, &effects)
			return next, effects
		}
	}
	for name, mutant := range map[string]next{
		"a broken link is not dialed again":            without(Redial),
		"the link to a process that ended stays":       without(EndLink),
		"the link of a node that joins is not renewed": without(Relink),
		"nobody waits for the goodbye over relays":     without(AwaitGoodbye),
		"a report that a peer has left is dropped":     without(AwaitProposal),
		"a failure does not end communicators":         without(EndComms),
		"a goodbye does not end operations":            without(EndOperations),
		"the program hears of each loss": after(func(_ Peer, e PeerEvent, _ PeerFacts, _ *Peer, effects *PeerEffects) {
			if e == LinkLost || e == Goodbye {
				*effects |= NotifyFailed
			}
		}),
		"a stall ends the link":                                 as(ConnStalled, ConnBroke),
		"a connection that both closed broke":                   as(ConnReleased, ConnClosed),
		"a goodbye is a loss":                                   as(Goodbye, LinkLost),
		"a loss is a goodbye":                                   as(LinkLost, Goodbye),
		"a report of a goodbye is one":                          as(ReportedGone, NoGoodbye),
		"the way of a connection is not known":                  as(ConnectedOverRelays, Connected),
		"nothing refuses dials":                                 ignores(RefusesDials),
		"the end of a link does not end the wait for a goodbye": ignores(LinkOver),
		"a node forgets that it leaves":                         ignores(SelfLeaves),
		"a missing relay is a failure":                          ignores(NoWay),
		"all nodes are out of the next view":                    assumes(SelfOut),
		"each connection lasts as long as the peer":             assumes(SharesMemory),
		"a peer that joins is a member": after(func(_ Peer, _ PeerEvent, _ PeerFacts, p *Peer, _ *PeerEffects) {
			if p.State == PeerExpected {
				p.State = PeerLinked
			}
		}),
		"a goodbye over relays ends relaying": after(func(before Peer, e PeerEvent, _ PeerFacts, p *Peer, _ *PeerEffects) {
			if e == Goodbye {
				p.Departure = Stopped
			}
		}),
		"a goodbye does not end relaying": after(func(before Peer, e PeerEvent, _ PeerFacts, p *Peer, _ *PeerEffects) {
			if e == Goodbye || e == NoGoodbye {
				p.Departure = before.Departure
			}
		}),
		"a node that says goodbye ends a link that broke": after(func(before Peer, e PeerEvent, _ PeerFacts, _ *Peer, effects *PeerEffects) {
			if before.State == PeerClosed && e >= ConnClosed {
				*effects = EndLink
			}
		}),
		"a node that leaves does not dial again": after(func(_ Peer, e PeerEvent, f PeerFacts, _ *Peer, effects *PeerEffects) {
			if f.Has(SelfLeaves) {
				*effects &^= Redial
			}
		}),
		"a departure is forgotten": after(func(before Peer, e PeerEvent, _ PeerFacts, p *Peer, _ *PeerEffects) {
			if e == AdoptedOut {
				p.Departure = Stays
			}
		}),
		"the seed does not learn that a node has left before it was in a view": after(func(before Peer, e PeerEvent, _ PeerFacts, _ *Peer, effects *PeerEffects) {
			if e == AdoptedIn && before.State == PeerExpectedLeft {
				*effects &^= ReportLeft
			}
		}),
		"a break is forgotten": after(func(_ Peer, e PeerEvent, _ PeerFacts, p *Peer, effects *PeerEffects) {
			if e == ConnStalled || e == ConnClosed {
				p.Conn, *effects = Unconnected, *effects&^Redial
			}
		}),
	} {
		var found error
		for _, s := range pairSettings() {
			w := &pairWorld{next: mutant, pairSetting: s}
			if _, found = w.run(); found != nil {
				break
			}
		}
		if found == nil {
			t.Errorf("%s: not found", name)
		}
	}
}
