package engine

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// wantLost checks that a link ends with a protocol error that contains text.
func wantLost(t *testing.T, lost chan error, text string) {
	t.Helper()
	select {
	case err := <-lost:
		if !strings.Contains(err.Error(), "protocol error") || !strings.Contains(err.Error(), text) {
			t.Errorf("the link is lost: %v, want %q", err, text)
		}
	case <-time.After(time.Minute):
		t.Fatalf("the link is not lost, want %q", text)
	}
}

// TestCommsAheadAreBounded: a peer that begins too many communicators loses its link. Others are not
// affected.
func TestCommsAheadAreBounded(t *testing.T) {
	w, peers, lost := newFakePeers(t, 3)
	for id := range uint64(commsAheadMax) {
		peers[1].link.Query(wire.Query{Call: wire.Call{Comm: 1000 + id, Seq: 1}})
	}
	peers[2].link.Query(wire.Query{Call: wire.Call{Comm: 1, Seq: 1}})
	peers[2].expect("where")
	for range commsAheadMax {
		peers[1].expect("where")
	}
	// A communicator that is made does not count.
	w.engines[0].NewComm(1000, 0, w.links[0])
	peers[1].link.Query(wire.Query{Call: wire.Call{Comm: 5000, Seq: 1}})
	peers[1].expect("where")
	peers[1].link.Query(wire.Query{Call: wire.Call{Comm: 5001, Seq: 1}})
	wantLost(t, lost, "communicators")
	// Answers create no communicators.
	before := len(w.engines[0].comms)
	peers[2].link.Answer(wire.Where{Last: wire.Call{Comm: 7777}})
	peers[2].link.GrantOffer(wire.OfferGrant{Comm: 7777})
	peers[2].link.RefuseOffer(wire.OfferRefuse{Comm: 7777})
	peers[2].link.Query(wire.Query{Call: wire.Call{Comm: 1, Seq: 2}})
	peers[2].expect("where")
	if after := len(w.engines[0].comms); after != before {
		t.Errorf("%d communicators, %d before", after, before)
	}
}

// TestKeptFramesAreBounded: a peer that sends too many frames without credit loses its link.
func TestKeptFramesAreBounded(t *testing.T) {
	require.NoRace(t, "it counts up to a limit")
	for name, send := range map[string]func(l *link.Link, i uint64){
		"grants": func(l *link.Link, i uint64) {
			l.GrantStep(wire.Step{Call: wire.Call{Comm: commID, Seq: 1 + i}, Grant: 1})
		},
		"queries":     func(l *link.Link, i uint64) { l.Query(wire.Query{Call: wire.Call{Comm: commID, Seq: 1 + i}}) },
		"offers":      func(l *link.Link, i uint64) { l.OfferMessage(wire.Offer{Comm: commID, ID: i, Size: 1 << 40}) },
		"step offers": func(l *link.Link, i uint64) { l.OfferStep(wire.Step{Call: wire.Call{Comm: commID, Seq: 1 + i}}) },
	} {
		t.Run(name, func(t *testing.T) {
			w, peers, lost := newFakePeers(t, 2)
			if name == "offers" || name == "queries" { // The other kinds arrive before the communicator is made.
				w.comms[0] = w.engines[0].NewComm(commID, 0, w.links[0])
			}
			for i := range uint64(1<<18 + 1) {
				send(peers[1].link, i)
			}
			wantLost(t, lost, "unanswered offers")
		})
	}
}

// TestKeptFramesAreCountedOff: frames that are used or dropped do not count, so a peer that is
// always ahead, but not far, does not reach the bound.
func TestKeptFramesAreCountedOff(t *testing.T) {
	require.NoRace(t, "it counts up to a limit")
	w, peers, lost := newFakePeers(t, 2)
	p := peers[1]
	// Three communicators, each closed with a third of the limit kept.
	for id := range uint64(3) {
		c := w.engines[0].NewComm(id, 0, w.links[0])
		for i := range uint64(46_000) {
			p.link.GrantStep(wire.Step{Call: wire.Call{Comm: id, Seq: 2 + i}, Grant: 1})
			p.link.Query(wire.Query{Call: wire.Call{Comm: id, Seq: 2 + i}})
			p.link.OfferMessage(wire.Offer{Comm: id, ID: i})
		}
		until(t, "the last grant", func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.early) == 46_000
		})
		p.link.OfferMessage(wire.Offer{Comm: id, Tag: 9, Type: 1})
		r, err := recvOn(t.Context(), c, nil, 2, 1, 9)
		if !isType[*p2p.MisfitError](err) || r.Source != 1 {
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

// TestClosedCommunicators: peers are told of each communicator that is closed. The last ones are
// remembered, and late frames for them are dropped.
func TestClosedCommunicators(t *testing.T) {
	require.NoRace(t, "it counts up to a limit")
	w, peers, lost := newFakePeers(t, 2)
	e, p := w.engines[0], peers[1]
	for id := range uint64(closedKeepMax + 100) {
		e.NewComm(id, 0, w.links[0]).Close()
	}
	if len(e.closed) != closedKeepMax || len(e.closedIDs) != closedKeepMax || len(e.comms) != 0 {
		t.Errorf("%d closed communicators are remembered, %d in order, and %d are open", len(e.closed), len(e.closedIDs), len(e.comms))
	}
	for id := range uint64(10) {
		if c := p.expect("closed").closed; c.Last != (wire.Call{Comm: id}) {
			t.Errorf("got %+v, want that communicator %d was closed", c, id)
		}
	}
	const id = closedKeepMax
	p.link.Query(wire.Query{Call: wire.Call{Comm: id, Seq: 1}})
	p.link.OfferStep(wire.Step{Call: wire.Call{Comm: id, Seq: 1}})
	p.link.GrantStep(wire.Step{Call: wire.Call{Comm: id, Seq: 1}, Grant: 1})
	p.link.GrantOffer(wire.OfferGrant{Comm: id, ID: 1, Grant: 1})
	p.link.OfferMessage(wire.Offer{Comm: id, ID: 5})
	p.link.Closed((&wire.Closed{Last: wire.Call{Comm: id}}).Append(nil))
	c := e.NewComm(closedKeepMax+200, 0, w.links[0])
	p.credit(wire.Messages, 1)
	p.link.SendMessage(wire.Message{Comm: closedKeepMax + 200, Type: byteType}, []byte{1})
	if _, err := recvOn(t.Context(), c, make([]byte, 1), byteType, 1, 0); err != nil || len(lost) > 0 {
		t.Errorf("a message of an open communicator: %v; %d links were lost", err, len(lost))
	}
}

// TestCloseArrivesAfterData: messages that a rank has sent before it closes the communicator are
// received. Later receives from it, and sends to it, fail. Other ranks are not affected.
func TestCloseArrivesAfterData(t *testing.T) {
	for name, later := range map[string][]int{"known": nil, "made later": {1}} {
		w := newWorld(t, 3, overMem, Config{}, later...)
		closer := w.comms[0]
		if err := sendOn(t.Context(), closer, payload(10, 1), byteType, 1, 1); err != nil {
			t.Fatal(err)
		}
		closer.Close()
		if later != nil {
			time.Sleep(20 * time.Millisecond)
			w.open(1)
		}
		c := w.comms[1]
		received := make(chan error, 2)
		go func() {
			_, err := recvOn(t.Context(), c, make([]byte, 10), byteType, 0, 7)
			received <- err
		}()
		if got, err := recvOn(t.Context(), c, make([]byte, 10), byteType, 0, 1); err != nil || got.Bytes != 10 {
			t.Errorf("%s: a message that was sent: %+v, %v", name, got, err)
		}
		for what, err := range map[string]error{
			"a message that was not sent": <-received,
			"a large message to it":       sendOn(t.Context(), c, make([]byte, 1<<20), byteType, 0, 0),
		} {
			if p, ok := errors.AsType[*PeerError](err); !ok || !p.Left || !isRank(p.Rank, 0) {
				t.Errorf("%s: %s: %v, want that rank 0 has left", name, what, err)
			}
		}
		sent := make(chan error, 1)
		go func() { sent <- sendOn(t.Context(), w.comms[2], make([]byte, 1<<20), byteType, 1, 3) }()
		if _, err := recvOn(t.Context(), c, make([]byte, 1<<20), byteType, 2, 3); err != nil || <-sent != nil {
			t.Errorf("%s: between the others: %v", name, err)
		}
	}
}

// TestCloseDuringASend: closing a communicator during a send ends it on all ranks.
func TestCloseDuringASend(t *testing.T) {
	w := newWorld(t, 2, overMem, Config{})
	sent := make(chan error, 1)
	go func() { sent <- sendOn(t.Context(), w.comms[0], make([]byte, 1<<20), byteType, 1, 0) }()
	until(t, "the offer", func() bool {
		w.comms[1].mu.Lock()
		defer w.comms[1].mu.Unlock()
		return w.comms[1].messages.Waiting() == 1
	})
	w.comms[0].Close()
	if err := <-sent; err != ErrClosed {
		t.Errorf("the sender: %v, want %v", err, ErrClosed)
	}
	until(t, "the revocation", func() bool { return w.comms[1].Err() != nil })
	if r, ok := errors.AsType[*RevokedError](w.comms[1].Err()); !ok || r.Cause != wire.CauseClosed || !isRank(r.Rank, 0) {
		t.Errorf("the receiver: %v, want that rank 0 has closed", w.comms[1].Err())
	}
}

// TestCloseEndsWaitingRanks: ranks that wait for a rank in a collective, or with a long message,
// fail when the rank closes the communicator before it has begun its part. Earlier collectives
// are not affected.
func TestCloseEndsWaitingRanks(t *testing.T) {
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
		go func() { results <- sendOn(t.Context(), w.comms[1], make([]byte, wire.PayloadMax+1), 1, 0, 4) }()
		if !before {
			time.Sleep(100 * time.Millisecond)
			w.comms[0].Close()
		}
		for range 3 {
			select {
			case err := <-results:
				p, left := errors.AsType[*PeerError](err)
				r, revoked := errors.AsType[*RevokedError](err)
				if !(left && p.Left && isRank(p.Rank, 0)) && !(revoked && r.Cause == wire.CauseLeft && isRank(r.Peer, 0)) {
					t.Errorf("closed before %v: %v, want that rank 0 has left", before, err)
				}
			case <-time.After(time.Minute):
				t.Fatalf("closed before %v: a rank waits for ever", before)
			}
		}
	}
}

// TestCloseDuringStart: a rank closes a communicator while it begins a collective. The collective
// ends on the other rank, in any order of the two.
func TestCloseDuringStart(t *testing.T) {
	w := newWorld(t, 2, overMem, Config{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	times := uint64(10_000)
	if testing.Short() {
		times = 2000
	}
	for id := uint64(1000); id < 1000+times; id++ {
		comms := []*Comm{w.engines[0].NewComm(id, 0, w.links[0]), w.engines[1].NewComm(id, 1, w.links[1])}
		var all sync.WaitGroup
		ready := make(chan struct{})
		call := func(rank int) {
			<-ready
			if op, err := comms[rank].start(w.work(rank, ring, vector(rank, 10))); err == nil {
				op.Wait(ctx)
			}
		}
		all.Go(func() { call(0) })
		all.Go(func() {
			<-ready
			for range id % 8 {
				runtime.Gosched()
			}
			comms[0].Close()
		})
		close(ready)
		time.Sleep(20 * time.Microsecond)
		all.Go(func() { call(1) })
		all.Wait()
		comms[1].Close()
		if ctx.Err() != nil {
			t.Fatal("a rank waits for one that has closed the communicator")
		}
	}
}

// TestLinksThatHaveEnded: a communicator that is made with a link that has ended ends at once, or
// after a goodbye, with the first collective that needs the rank.
func TestLinksThatHaveEnded(t *testing.T) {
	w := newWorld(t, 3, overMem, Config{}, 0, 1)
	w.links[2][0].Fail(errors.New("boom"))
	e := w.engines[0]
	until(t, "the end of the link", func() bool { ended, _ := e.linkEnd(w.links[0][2]); return ended })
	w.open(0)
	if err := w.comms[0].Err(); !errors.Is(err, transport.ErrPeerClosed) || !isType[*PeerError](err) {
		t.Errorf("rank 0: %v, want a PeerError", err)
	}
	w.leave(2)
	until(t, "the goodbye", func() bool { ended, _ := w.engines[1].linkEnd(w.links[1][2]); return ended })
	w.open(1)
	err := w.run(t.Context(), 1, ring, vector(1, 10))
	if p, ok := errors.AsType[*PeerError](err); !ok || !p.Left || !isRank(p.Rank, 2) {
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
			return ok && isRank(r.Rank, 1) && r.Cause == wire.CauseCancelled && r.Text == "enough"
		}},
		"mismatch": {wire.Revoke{Cause: wire.CauseMismatch, Rank: 1, Peer: 0}, isType[*MismatchError]},
		"by an unknown rank": {wire.Revoke{Cause: wire.CauseMismatch, Rank: 1, Peer: 9}, func(err error) bool {
			p, ok := errors.AsType[*PeerError](err) // The peer breaks the protocol.
			return ok && isRank(p.Rank, 1) && strings.Contains(err.Error(), "unknown rank")
		}},
	} {
		w, peers, _ := newFakePeers(t, 2)
		test.revoke.Comm = commID
		peers[1].link.Revoke(test.revoke, "enough")
		until(t, "the revocation", func() bool { return hasHeardOfEnd(w.engines[0], commID) })
		c := w.engines[0].NewComm(commID, 0, w.links[0])
		until(t, "the end", func() bool { return c.Err() != nil })
		_, err := c.start(w.workOf(pairwise, vector(0, 10)))
		if !isType[*EndedError](err) || !test.want(err) {
			t.Errorf("%s: got %v", name, err)
		}
		if err := sendOn(t.Context(), c, nil, 1, 1, 0); !isType[*EndedError](err) || !errors.Is(err, c.Err()) {
			t.Errorf("%s: Send: got %v", name, err)
		}
		if _, err := recvOn(t.Context(), c, nil, 1, 1, 0); !isType[*EndedError](err) || !errors.Is(err, c.Err()) {
			t.Errorf("%s: Recv: got %v", name, err)
		}
	}
}

// hasHeardOfEnd reports whether a peer has ended a communicator, also before this node has
// made it.
func hasHeardOfEnd(e *Engine, id uint64) bool {
	c := e.known(id)
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.endings) > 0 || c.err != nil
}

// TestUnexpectedPeers: a peer that uses a communicator without being one of its ranks, or names an
// unknown rank, loses its link. The communicator goes on.
func TestUnexpectedPeers(t *testing.T) {
	call := wire.Call{Comm: commID, Seq: 1}
	for name, send := range map[string]func(p *fakePeer){
		"step": func(p *fakePeer) {
			p.credit(wire.Collectives, 4)
			p.link.SendStep(wire.Step{Call: call}, make([]byte, 4))
		},
		"grant": func(p *fakePeer) { p.link.GrantStep(wire.Step{Call: call, Grant: 1}) },
		"message": func(p *fakePeer) {
			p.credit(wire.Messages, 4)
			p.link.SendMessage(wire.Message{Comm: commID}, make([]byte, 4))
		},
		"offer":  func(p *fakePeer) { p.link.OfferMessage(wire.Offer{Comm: commID}) },
		"revoke": func(p *fakePeer) { p.link.Revoke(wire.Revoke{Comm: commID, Cause: wire.CauseFailed}, "x") },
	} {
		t.Run(name, func(t *testing.T) {
			w, peers, lost := newFakePeers(t, 3)
			c := w.engines[0].NewComm(commID, 0, w.links[0][:2])
			send(peers[2])
			wantLost(t, lost, "communicator 3")
			if err := c.Err(); err != nil {
				t.Errorf("the communicator has ended: %v", err)
			}
		})
	}
	t.Run("an unknown rank", func(t *testing.T) {
		w, peers, lost := newFakePeers(t, 3)
		w.engines[0].NewComm(commID, 0, w.links[0])
		peers[1].link.Revoke(wire.Revoke{Comm: commID, Cause: wire.CauseFailed, Peer: 3}, "x")
		wantLost(t, lost, "the unknown rank")
	})
	t.Run("before the communicator", func(t *testing.T) {
		w, peers, lost := newFakePeers(t, 3)
		peers[2].credit(wire.Collectives, 4)
		peers[2].link.SendStep(wire.Step{Call: call}, make([]byte, 4))
		peers[2].credit(wire.Messages, 4)
		peers[2].link.SendMessage(wire.Message{Comm: commID}, make([]byte, 4))
		peers[2].link.OfferMessage(wire.Offer{Comm: commID})
		until(t, "the offer", func() bool {
			c := w.engines[0].known(commID)
			if c == nil {
				return false
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.messages.Waiting() == 2
		})
		c := w.engines[0].NewComm(commID, 0, w.links[0][:2])
		if c.messages.Waiting() > 0 {
			t.Errorf("%d messages of an unexpected peer are kept", c.messages.Waiting())
		}
		op, err := c.start(w.work0(2, choice{plan.AllReduce, "recursive-doubling", 1, 0}, vector(0, 1)))
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

// TestCommOfClosedEngine: a communicator that is made when the engine has been
// closed, or is being closed, ends at once.
func TestCommOfClosedEngine(t *testing.T) {
	w := newWorld(t, 2, overMem, Config{})
	e := New(Config{})
	e.Close()
	c := e.NewComm(commID+1, 0, w.links[0])
	if err := c.Err(); err != ErrClosed {
		t.Errorf("Err = %v, want %v", err, ErrClosed)
	}
	if _, err := recvOn(t.Context(), c, make([]byte, 1), byteType, 1, 4); !errors.Is(err, ErrClosed) {
		t.Errorf("Recv: %v, want %v", err, ErrClosed)
	}
}

// TestForgottenPeer: Forget drops the communicators that a peer has begun and this node has not
// made, with the frames of other peers for them. Later frames create them again.
func TestForgottenPeer(t *testing.T) {
	w, peers, _ := newFakePeers(t, 3)
	e := w.engines[0]
	l := w.links[0][2]
	const begun = 10
	until := func(what string, queued int) *Comm {
		var c *Comm
		until(t, what, func() bool {
			if c = e.known(commID + begun); c == nil {
				return false
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.messages.Waiting() == queued
		})
		return c
	}
	for i := range uint64(begun) {
		peers[2].link.OfferMessage(wire.Offer{Comm: commID + 1 + i})
	}
	until("the communicator of the peer", 1)
	peers[1].credit(wire.Messages, 4)
	peers[1].link.SendMessage(wire.Message{Comm: commID + begun}, make([]byte, 4))
	c := until("the message of another peer", 2)
	e.Forget(l)
	for i := range uint64(begun) {
		if e.known(commID+1+i) != nil {
			t.Errorf("communicator %d is kept", commID+1+i)
		}
	}
	if c.Err() == nil || c.messages.Waiting() > 0 || e.ahead[l] != 0 {
		t.Errorf("the last one has ended: %v, with %d messages; %d communicators are counted", c.Err(), c.messages.Waiting(), e.ahead[l])
	}
	peers[1].link.OfferMessage(wire.Offer{Comm: commID + begun})
	until("a later message", 1)
	if c := e.NewComm(commID+begun, 0, w.links[0][:2]); c.Err() != nil || c.messages.Waiting() != 1 || e.ahead[w.links[0][1]] != 0 {
		t.Errorf("made anew: %v, %d messages; %d communicators are counted", c.Err(), c.messages.Waiting(), e.ahead[w.links[0][1]])
	}
}

// TestForgetKeepsOtherLink: a peer has linked itself again before the state of its first link
// is released. The communicators that it has begun over the second link stay.
func TestForgetKeepsOtherLink(t *testing.T) {
	w, peers, _ := newFakePeers(t, 2)
	e := w.engines[0]
	ends := overMem(t, 2)
	a, b := connect(t, ends[0], ends[1])
	again := &fakePeer{t: t, rank: 1, in: make(chan received, 1<<16)}
	var second *link.Link
	second, again.link = linkPair(t, w.handler(0), again, 0, 1, a, b)
	w.loops = append(w.loops, second)
	t.Cleanup(again.link.Abort)
	known := func(id uint64) func() bool { return func() bool { return e.known(id) != nil } }
	peers[1].link.OfferMessage(wire.Offer{Comm: commID + 1})
	until(t, "a communicator begun over the first link", known(commID+1))
	again.link.OfferMessage(wire.Offer{Comm: commID + 2})
	until(t, "a communicator begun over the second link", known(commID+2))
	e.Forget(w.links[0][1])
	if e.known(commID+1) != nil {
		t.Error("the communicator of the first link is still there")
	}
	if e.known(commID+2) == nil || e.ahead[second] != 1 {
		t.Errorf("the communicator of the second link exists: %t; %d are counted, want 1", e.known(commID+2) != nil, e.ahead[second])
	}
}
