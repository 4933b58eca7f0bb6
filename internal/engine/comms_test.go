package engine

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// wantLost checks that a link was ended for breaking the protocol.
func wantLost(t *testing.T, lost chan error, text string) {
	t.Helper()
	select {
	case err := <-lost:
		if !strings.Contains(err.Error(), "protocol error") || !strings.Contains(err.Error(), text) {
			t.Errorf("the link is lost: %v, want %q", err, text)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("the link is not lost, want %q", text)
	}
}

// TestCommunicatorsAheadAreBounded: one peer cannot use up what others need.
func TestCommunicatorsAheadAreBounded(t *testing.T) {
	w, puppets, lost := onStage(t, 3)
	for id := range uint64(commsAheadMax) {
		puppets[1].link.Probe(wire.Probe{Call: wire.Call{Comm: 1000 + id, Seq: 1}})
	}
	puppets[2].link.Probe(wire.Probe{Call: wire.Call{Comm: 1, Seq: 1}})
	puppets[2].expect("where")
	for range commsAheadMax {
		puppets[1].expect("where")
	}
	// One that is made counts no longer.
	w.engines[0].NewComm(1000, 0, w.links[0])
	puppets[1].link.Probe(wire.Probe{Call: wire.Call{Comm: 5000, Seq: 1}})
	puppets[1].expect("where")
	puppets[1].link.Probe(wire.Probe{Call: wire.Call{Comm: 5001, Seq: 1}})
	wantLost(t, lost, "communicators")
	// Answers make no communicators.
	before := len(w.engines[0].comms)
	puppets[2].link.Answer(wire.Where{Last: wire.Call{Comm: 7777}})
	puppets[2].link.GrantOffer(wire.OfferGrant{Comm: 7777})
	puppets[2].link.RefuseOffer(wire.OfferRefuse{Comm: 7777})
	puppets[2].link.Probe(wire.Probe{Call: wire.Call{Comm: 1, Seq: 2}})
	puppets[2].expect("where")
	if after := len(w.engines[0].comms); after != before {
		t.Errorf("%d communicators, %d before", after, before)
	}
}

// TestWhatIsKeptIsBounded floods an engine with what costs no credit.
func TestWhatIsKeptIsBounded(t *testing.T) {
	for name, send := range map[string]func(l *link.Link, i uint64){
		"grants": func(l *link.Link, i uint64) {
			l.GrantStep(wire.Step{Call: wire.Call{Comm: commID, Seq: 1 + i}, Grant: 1})
		},
		"probes": func(l *link.Link, i uint64) { l.Probe(wire.Probe{Call: wire.Call{Comm: commID, Seq: 1 + i}}) },
		"offers": func(l *link.Link, i uint64) { l.OfferMessage(wire.Offer{Comm: commID, ID: i, Size: 1 << 40}) },
		"step offers": func(l *link.Link, i uint64) {
			l.OfferStep(wire.Step{Call: wire.Call{Comm: commID, Seq: 1 + i}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, puppets, lost := onStage(t, 2)
			if name == "offers" || name == "probes" { // The others come before it.
				w.comms[0] = w.engines[0].NewComm(commID, 0, w.links[0])
			}
			for i := range uint64(1<<18 + 1) {
				send(puppets[1].link, i)
			}
			wantLost(t, lost, "nobody has asked for")
		})
	}
}

// TestKeptFramesAreCountedOff: what is used or dropped makes room again, so
// that a peer which is ahead for ever, but not far, never meets the limit.
func TestKeptFramesAreCountedOff(t *testing.T) {
	w, puppets, lost := onStage(t, 2)
	p := puppets[1]
	// Three communicators, each closed with a third of the limit kept.
	for id := range uint64(3) {
		c := w.engines[0].NewComm(id, 0, w.links[0])
		for i := range uint64(30_000) {
			p.link.GrantStep(wire.Step{Call: wire.Call{Comm: id, Seq: 2 + i}, Grant: 1})
			p.link.Probe(wire.Probe{Call: wire.Call{Comm: id, Seq: 2 + i}})
			p.link.OfferMessage(wire.Offer{Comm: id, ID: i})
		}
		p.link.OfferMessage(wire.Offer{Comm: id, Tag: 9, Type: 1})
		r, err := c.Recv(t.Context(), nil, 2, 1, 9)
		if !isType[*TypeError](err) || r.Source != 1 {
			t.Fatal(r, err)
		}
		c.Close()
		select {
		case err := <-lost:
			t.Fatal(err)
		default:
		}
	}
}

// TestClosedCommunicators: of those that were closed only the last are
// remembered, and a peer that waits in one is told at once.
func TestClosedCommunicators(t *testing.T) {
	w, puppets, _ := onStage(t, 2)
	e, p := w.engines[0], puppets[1]
	for id := range uint64(closedKeepMax + 100) {
		e.NewComm(id, 0, w.links[0]).Close()
	}
	if len(e.closed) != closedKeepMax || len(e.closedIDs) != closedKeepMax || len(e.comms) != 0 {
		t.Errorf("%d closed communicators are remembered, %d in order, and %d are open", len(e.closed), len(e.closedIDs), len(e.comms))
	}
	const id = closedKeepMax
	for name, send := range map[string]func(){
		"probe":      func() { p.link.Probe(wire.Probe{Call: wire.Call{Comm: id, Seq: 1}}) },
		"step offer": func() { p.link.OfferStep(wire.Step{Call: wire.Call{Comm: id, Seq: 1}}) },
		"grant":      func() { p.link.GrantStep(wire.Step{Call: wire.Call{Comm: id, Seq: 1}, Grant: 1}) },
		"grant of a message": func() {
			p.link.GrantOffer(wire.OfferGrant{Comm: id, ID: 1, Grant: 1})
		},
	} {
		send()
		if r := p.expect("revoke").revoke; r.Comm != id || r.Rank != 0 || r.Peer != 0 || r.Cause != wire.CauseFailed || r.Ours.Seq != 0 {
			t.Errorf("%s: got %+v, want that rank 0 has left", name, r)
		}
	}
	p.link.OfferMessage(wire.Offer{Comm: id, ID: 5})
	if r := p.expect("refusal").refuse; r.Comm != id || r.ID != 5 || r.Room != roomNone {
		t.Errorf("got %+v, want that there is no room", r)
	}
}

// TestCloseTellsWhoWaits: a rank that waits in a collective which the one that
// closes has not begun, or with a large message, hears that it has left the
// communicator. What it had to give to earlier collectives still counts.
func TestCloseTellsWhoWaits(t *testing.T) {
	for _, before := range []bool{false, true} {
		w := newWorld(t, 3, overMem, Config{})
		noError(t, w.on(func(rank int, c *Comm) error { return w.run(t.Context(), rank, ring, vector(rank, 1000)) }))
		if before {
			w.comms[0].Close()
		}
		results := make(chan error, 3)
		for rank := 1; rank < 3; rank++ {
			go func() { results <- w.run(t.Context(), rank, ring, vector(rank, 100_000)) }()
		}
		go func() { results <- w.comms[1].Send(t.Context(), make([]byte, 100_000), 1, 0, 4) }()
		if !before {
			time.Sleep(100 * time.Millisecond)
			w.comms[0].Close()
		}
		for range 3 {
			select {
			case err := <-results:
				p, left := errors.AsType[*PeerError](err)
				r, revoked := errors.AsType[*RevokedError](err)
				if !(left && p.Left && p.Rank == 0) && !(revoked && r.Cause == wire.CauseFailed && r.Peer == 0) {
					t.Errorf("closed before %v: %v, want that rank 0 has left", before, err)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("closed before %v: a rank waits for ever", before)
			}
		}
	}
}

// TestLinksThatHaveEnded: a communicator that is made of one is not waited in.
func TestLinksThatHaveEnded(t *testing.T) {
	w := newWorld(t, 3, overMem, Config{}, 0, 1)
	w.links[2][0].Fail(errors.New("boom"))
	e := w.engines[0]
	until(t, "the end of the link", func() bool { _, ended := e.endOf(w.links[0][2]); return ended })
	w.open(0)
	if err := w.comms[0].Err(); !errors.Is(err, transport.ErrPeerClosed) || !isType[*PeerError](err) {
		t.Errorf("rank 0: %v, want a PeerError", err)
	}
	w.leave(2)
	until(t, "the goodbye", func() bool { _, ended := w.engines[1].endOf(w.links[1][2]); return ended })
	w.open(1)
	err := w.run(t.Context(), 1, ring, vector(1, 10))
	if p, ok := errors.AsType[*PeerError](err); !ok || !p.Left || p.Rank != 2 {
		t.Errorf("rank 1: %v, want that rank 2 has left", err)
	}
}

// TestRevokeBeforeOpen: a communicator may end before this node has made it.
func TestRevokeBeforeOpen(t *testing.T) {
	for name, test := range map[string]struct {
		revoke wire.Revoke
		want   func(err error) bool
	}{
		"cancelled": {wire.Revoke{Cause: wire.CauseCancelled, Rank: 1}, func(err error) bool {
			r, ok := errors.AsType[*RevokedError](err)
			return ok && r.Rank == 1 && r.Cause == wire.CauseCancelled && r.Text == "enough"
		}},
		"mismatch": {wire.Revoke{Cause: wire.CauseMismatch, Rank: 1, Peer: 0}, isType[*MismatchError]},
		"by a rank that there is not": {wire.Revoke{Cause: wire.CauseMismatch, Rank: 1, Peer: 9}, func(err error) bool {
			r, ok := errors.AsType[*RevokedError](err)
			return ok && r.Rank == -1
		}},
	} {
		w, puppets, _ := onStage(t, 2)
		test.revoke.Comm = commID
		puppets[1].link.Revoke(test.revoke, "enough")
		until(t, "the revocation", func() bool { c := w.engines[0].known(commID); return c != nil && c.Err() != nil })
		c := w.engines[0].NewComm(commID, 0, w.links[0])
		_, err := c.Start(w.workOf(pairwise, vector(0, 10)))
		if !isType[*EndedError](err) || !test.want(err) {
			t.Errorf("%s: got %v", name, err)
		}
		if err := c.Send(t.Context(), nil, 1, 1, 0); !isType[*EndedError](err) {
			t.Errorf("%s: Send: got %v", name, err)
		}
		if _, err := c.Recv(t.Context(), nil, 1, 1, 0); !isType[*EndedError](err) {
			t.Errorf("%s: Recv: got %v", name, err)
		}
	}
}

// TestStrangers: a peer that is no rank of a communicator has no business
// there, and ranks that there are not end no communicator.
func TestStrangers(t *testing.T) {
	call := wire.Call{Comm: commID, Seq: 1}
	for name, send := range map[string]func(p *puppet){
		"step": func(p *puppet) {
			p.credit(wire.Collectives, 4)
			p.link.SendStep(wire.Step{Call: call}, make([]byte, 4))
		},
		"grant": func(p *puppet) { p.link.GrantStep(wire.Step{Call: call, Grant: 1}) },
		"message": func(p *puppet) {
			p.credit(wire.Messages, 4)
			p.link.SendMessage(wire.Message{Comm: commID}, make([]byte, 4))
		},
		"offer":  func(p *puppet) { p.link.OfferMessage(wire.Offer{Comm: commID}) },
		"revoke": func(p *puppet) { p.link.Revoke(wire.Revoke{Comm: commID, Cause: wire.CauseFailed}, "x") },
	} {
		t.Run(name, func(t *testing.T) {
			w, puppets, lost := onStage(t, 3)
			c := w.engines[0].NewComm(commID, 0, w.links[0][:2])
			send(puppets[2])
			wantLost(t, lost, "communicator 3")
			if err := c.Err(); err != nil {
				t.Errorf("the communicator has ended: %v", err)
			}
		})
	}
	t.Run("a rank that there is not", func(t *testing.T) {
		w, puppets, lost := onStage(t, 3)
		w.engines[0].NewComm(commID, 0, w.links[0])
		puppets[1].link.Revoke(wire.Revoke{Comm: commID, Cause: wire.CauseFailed, Peer: 3}, "x")
		wantLost(t, lost, "a rank that there is not")
	})
	t.Run("before the communicator", func(t *testing.T) {
		w, puppets, lost := onStage(t, 3)
		puppets[2].credit(wire.Collectives, 4)
		puppets[2].link.SendStep(wire.Step{Call: call}, make([]byte, 4))
		puppets[2].credit(wire.Messages, 4)
		puppets[2].link.SendMessage(wire.Message{Comm: commID}, make([]byte, 4))
		puppets[2].link.OfferMessage(wire.Offer{Comm: commID})
		until(t, "the offer", func() bool {
			c := w.engines[0].known(commID)
			if c == nil {
				return false
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.unopened) == 2
		})
		c := w.engines[0].NewComm(commID, 0, w.links[0][:2])
		if c.messages.Queued() > 0 {
			t.Errorf("%d messages of a stranger wait", c.messages.Queued())
		}
		op, err := c.Start(w.work0(2, choice{plan.AllReduce, "recursive-doubling", 1, 0}, vector(0, 1)))
		if err != nil {
			t.Fatal(err)
		}
		wantLost(t, lost, "communicator 3")
		c.Close()
		if err := op.Wait(t.Context()); err != ErrClosed {
			t.Errorf("got %v, want %v", err, ErrClosed)
		}
	})
}
