package link

import (
	"bytes"
	"testing"

	"github.com/nexar-go/nexar/internal/wire"
)

// TestDelivery: payloads of which nothing arrives over a connection are stuck, but not those that either side withdraws meanwhile, nor those that
// have come to wait since it began.
func TestDelivery(t *testing.T) {
	const size = 1000
	for name, c := range map[string]struct {
		meanwhile func(p *gatedPair, x *Transfer, s *Sink)
		stuck     int
	}{
		"waits":     {func(*gatedPair, *Transfer, *Sink) {}, size},
		"withdrawn": {func(p *gatedPair, _ *Transfer, s *Sink) { p.b.Ungrant(s) }, 0},
		"recalled":  {func(p *gatedPair, x *Transfer, _ *Sink) { p.a.Recall(x) }, 0},
		"replaced": {func(p *gatedPair, _ *Transfer, s *Sink) {
			p.b.Ungrant(s)
			p.a.Deliver(&Transfer{Grant: p.b.Grant(&Sink{Dst: make([]byte, size), Owner: make(signal)}), Data: make([]byte, size), Owner: make(signal)})
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPendingPair(t)
			s := &Sink{Dst: make([]byte, size), Owner: make(signal)}
			x := &Transfer{Grant: p.b.Grant(s), Data: make([]byte, size), Owner: make(signal)}
			p.a.Deliver(x)
			p.connect(t) // Its bulk lane does not open.
			c.meanwhile(p, x, s)
			p.a.Disconnect()
			p.awaitPending(t)
			p.connect(t)
			want := Delivery{Stuck: c.stuck}
			if c.stuck > 0 {
				want.Lane, want.InRow = wire.Bulk, 1
			}
			got := p.a.LastDelivery()
			if got.Since.IsZero() != (c.stuck == 0) {
				t.Errorf("in a row since %v", got.Since)
			}
			if got.Since = want.Since; got != want {
				t.Errorf("the connection before is said to have delivered %+v, want %+v", got, want)
			}
		})
	}
}

// TestDeliveriesInRow: connections that deliver nothing count from the last one on that has delivered something, even if the one after that ended before
// anybody asked.
func TestDeliveriesInRow(t *testing.T) {
	const size = 1000
	p := newPendingPair(t)
	again := func() Delivery {
		t.Helper()
		p.a.Disconnect()
		p.awaitPending(t)
		p.connect(t)
		return p.a.LastDelivery()
	}
	p.a.Deliver(&Transfer{Grant: p.b.Grant(&Sink{Dst: make([]byte, size), Owner: make(signal)}), Data: make([]byte, size), Owner: make(signal)})
	p.connect(t) // Its bulk lane does not open.
	first := again()
	second := again()
	if first.InRow != 1 || second.InRow != 2 || second.Since != first.Since {
		t.Errorf("deliveries %+v and %+v, want 1 and 2 in a row since the same time", first, second)
	}
	p.a.exchange().began.received[wire.Bulk]-- // The connection delivers something.
	if d := again(); d.InRow != 0 || !d.Since.IsZero() {
		t.Errorf("after a connection that has delivered something: %+v, want none in a row", d)
	}
	if third := again(); third.InRow != 1 || third.Since == first.Since {
		t.Errorf("the next one: %+v, want 1 in a row since now", third)
	}
	p.a.ForgetDeliveries()
	if d := again(); d.InRow != 1 {
		t.Errorf("after those before are forgotten: %+v, want 1 in a row", d)
	}
}

// TestGrantsWait: with as many open grants as a statement lists, the peer hears of further ones when others have been closed, and of those that
// were withdrawn meanwhile too.
func TestGrantsWait(t *testing.T) {
	const more = 3
	p := newPendingPair(t)
	granted := make(chan uint64, more)
	p.ha.offerGrant = func(g wire.OfferGrant) {
		if g.Grant > wire.GrantsMax-more {
			granted <- g.Grant
		}
	}
	sinks := make([]Sink, wire.GrantsMax+more)
	memory, owner := make([]byte, 1), make(signal)
	for i := range sinks {
		sinks[i] = Sink{Dst: memory, Owner: owner}
		if id := p.b.Grant(&sinks[i]); id > wire.GrantsMax-more {
			p.b.GrantOffer(wire.OfferGrant{Grant: id})
		}
	}
	r := (&attachment{link: p.b}).received()
	if _, err := wire.ResumeLength(r.Append(nil)[:wire.ResumeSize]); err != nil || len(r.Grants) != wire.GrantsMax {
		t.Errorf("the statement lists %d grants (%v), want %d", len(r.Grants), err, wire.GrantsMax)
	}
	p.connect(t)
	want := func(ids ...uint64) {
		t.Helper()
		for _, id := range ids {
			soon(t, "a grant", func() {
				if got := <-granted; got != id {
					t.Errorf("the peer hears of grant %d, want %d", got, id)
				}
			})
		}
		agree(t, p.a, p.b)
		if len(granted) > 0 {
			t.Errorf("the peer hears of grant %d, want none", <-granted)
		}
	}
	want(wire.GrantsMax-2, wire.GrantsMax-1, wire.GrantsMax)
	p.b.Ungrant(&sinks[wire.GrantsMax+1]) // held
	want()
	p.b.Ungrant(&sinks[0])
	want(wire.GrantsMax+1, wire.GrantsMax+2)

	done := make(signal) // A grant that is filled makes room too.
	close(p.ca.gate)
	sinks[1].Owner = done
	p.a.Deliver(&Transfer{Grant: 2, Data: []byte{1}, Owner: make(signal)})
	done.wait(t, "the sink")
	want(wire.GrantsMax + 3)
	if !bytes.Equal(memory, []byte{1}) {
		t.Error("the payload differs")
	}
}
