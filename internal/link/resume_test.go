package link

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/nexar-go/nexar/internal/link/lane"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A writtenSender closes a channel after its first write.
type writtenSender struct {
	transport.Sender
	once    *sync.Once
	written chan struct{}
}

func (s writtenSender) Write(p []byte) (int, error) {
	defer s.once.Do(func() { close(s.written) })
	return s.Sender.Write(p)
}

// propose makes link a of a pair propose a connection that b does not see yet. result gets the error of a.
func (p *gatedPair) propose(t *testing.T) (cb transport.Conn, result <-chan error) {
	t.Helper()
	ca, cb := conns(t)
	written, done := make(chan struct{}), make(chan error, 1)
	announced := &wrappedConn{Conn: ca, make: func(_ int, s transport.Sender) transport.Sender {
		return writtenSender{s, new(sync.Once), written}
	}}
	l := p.a
	go func() { done <- l.Connect(t.Context(), announced, Config{}) }()
	soon(t, "a proposal", func() { <-written })
	return cb, done
}

// use makes a connection of a pair, sends a frame in each direction, and releases the connection.
func (p *gatedPair) use(t *testing.T) {
	t.Helper()
	p.connect(t)
	close(p.ca.gate)
	got := make(chan struct{}, 2)
	p.ha.revoke = func(wire.Revoke, string) { got <- struct{}{} }
	p.hb.revoke = p.ha.revoke
	for _, l := range []*Link{p.a, p.b} {
		l.Revoke(wire.Revoke{Cause: wire.CauseFailed}, "text")
		soon(t, "a frame", func() { <-got })
	}
	p.a.Disconnect()
	p.awaitReleased(t)
}

// announce begins the control lane of a connection with counts.
func announce(t *testing.T, c transport.Conn, r wire.Resume) {
	t.Helper()
	s, err := c.OpenPipe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r.From == (wire.LinkID{}) {
		r.From = wire.LinkID{Process: 1, Link: 1}
	}
	s.Write(r.Append(wire.Preamble{Lane: wire.Control, Flags: wire.PreambleResumes}.Append(nil)))
}

// wantOld checks that a proposal was refused because it is old.
func wantOld(t *testing.T, which string, err error) {
	t.Helper()
	if !errors.Is(err, lane.ErrOld) {
		t.Errorf("%s ends with %v, want %v", which, err, lane.ErrOld)
	}
}

// TestLateProposal: the peer sees a proposal only after the link has used and released another connection. Its counts are old, but no frame
// was lost.
func TestLateProposal(t *testing.T) {
	for name, before := range map[string]int{"the first one": 0, "a later one": 1} {
		t.Run(name, func(t *testing.T) {
			p := newPendingPair(t)
			for range before {
				p.use(t)
			}
			cb, result := p.propose(t)
			p.use(t)
			soon(t, "the late proposal", func() { wantOld(t, "the late proposal", p.b.Accept(t.Context(), cb, Config{}, admitAll)) })
			cb.Close()
			soon(t, "the end of the proposal", func() {
				if err := <-result; err == nil {
					t.Errorf("the old proposal ended with %v, want an error", err)
				}
			})
			p.use(t)
		})
	}
}

// TestLateProposalBesideAConnection: the peer has proposed a connection, and the link has got another one since. The proposal says nothing
// about that one.
func TestLateProposalBesideAConnection(t *testing.T) {
	p := newPendingPair(t)
	p.use(t)
	cb, _ := p.propose(t)
	p.connect(t)
	close(p.ca.gate)
	soon(t, "the late proposal", func() { wantConnected(t, "the late proposal", p.b.Accept(t.Context(), cb, Config{}, admitAll)) })
	cb.Close()
	got := make(chan struct{}, 1)
	p.hb.revoke = func(wire.Revoke, string) { got <- struct{}{} }
	p.a.Revoke(wire.Revoke{Cause: wire.CauseFailed}, "text")
	soon(t, "a frame", func() { <-got })
	p.a.Disconnect()
	p.awaitReleased(t)
}

// TestRefuseOfEndedLink: the peer has ended its link while there was no connection. It says so when this node proposes one: the link ends. The
// proposal of a link that it does not know, as that of a node that joins, says nothing.
func TestRefuseOfEndedLink(t *testing.T) {
	for name, isKnown := range map[string]bool{"ended": true, "unknown": false} {
		t.Run(name, func(t *testing.T) {
			p := newPendingPair(t)
			if isKnown {
				p.use(t)
			}
			p.b.Abort()
			cb, result := p.propose(t)
			soon(t, "the proposal", func() { p.b.common.Refuse(t.Context(), cb, nil) })
			cb.Close()
			err := <-result
			if p.a.IsOver() != isKnown || !errors.Is(err, transport.ErrPeerClosed) {
				t.Errorf("%v, and the link has ended: %v; want %v", err, p.a.IsOver(), isKnown)
			}
		})
	}
}

// TestLateAcceptance: the acceptance of a proposal arrives only after the link has used and released another connection. It belongs to old
// counts: the link has sent frames since.
func TestLateAcceptance(t *testing.T) {
	p := newPendingPair(t)
	cb, result := p.propose(t)
	p.use(t)
	announce(t, cb, wire.Resume{Number: 1 << 40, From: p.b.exchange().session.Self})
	soon(t, "the end of the proposal", func() { wantOld(t, "the proposal", <-result) })
	p.use(t)
}

// TestConnectWhileAccepting: a link proposes no connection while it accepts one. The peer could not tell new counts from old ones.
func TestConnectWhileAccepting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := pending(t, newHandler())
		ca, cb := conns(t)
		announce(t, ca, wire.Resume{Number: 1})
		accepted := make(chan error, 1)
		go func() { accepted <- l.Accept(t.Context(), cb, Config{}, admitAll) }()
		synctest.Wait()
		other, _ := conns(t)
		if err := l.Connect(t.Context(), other, Config{}); !errors.Is(err, lane.ErrAnswering) {
			t.Errorf("a proposal beside an acceptance ends with %v, want %v", err, lane.ErrAnswering)
		}
		ca.Close()
		if err := <-accepted; err == nil {
			t.Error("the connection was accepted, want an error")
		}
		if err := l.Connect(t.Context(), closedConn(t), Config{}); err == nil || errors.Is(err, lane.ErrAnswering) {
			t.Errorf("the next proposal ends with %v, want another error", err)
		}
		other.Close()
		cb.Close()
	})
}

// TestConnectWhileProposing: a link proposes one connection at a time. The peer takes a newer proposal for the end of an earlier one.
func TestConnectWhileProposing(t *testing.T) {
	p := newPendingPair(t)
	cb, result := p.propose(t)
	other, _ := conns(t)
	if err := p.a.Connect(t.Context(), other, Config{}); !errors.Is(err, lane.ErrProposing) {
		t.Errorf("a second proposal ends with %v, want %v", err, lane.ErrProposing)
	}
	cb.Close()
	soon(t, "the end of the first proposal", func() { <-result })
	p.use(t)
}

// TestAcceptBesideAConnection: a link with a connection gets two proposals. One is older than the connection and changes nothing. The other one
// is newer, so the peer has lost the connection, and the new one replaces it.
func TestAcceptBesideAConnection(t *testing.T) {
	p := newPendingPair(t)
	older, result := p.propose(t)
	p.connect(t)
	close(p.ca.gate)
	soon(t, "the older proposal", func() {
		wantConnected(t, "the older proposal", p.b.Accept(t.Context(), older, Config{}, admitAll))
	})
	older.Close()
	soon(t, "the end of the older proposal", func() { <-result })
	if p.cb.Err() != nil || p.b.IsPending() {
		t.Fatalf("a proposal that is older than the connection has ended the connection: %v", p.cb.Err())
	}
	mine, newer := conns(t)
	announce(t, mine, wire.Resume{Number: 1 << 20})
	refusal := errors.New("refused")
	soon(t, "the newer proposal", func() {
		err := p.b.Accept(t.Context(), newer, Config{}, func() error {
			if !p.b.IsPending() {
				t.Error("the link has a connection when the newer proposal is admitted")
			}
			return refusal
		})
		if !errors.Is(err, refusal) {
			t.Errorf("the newer proposal ends with %v, want %v", err, refusal)
		}
	})
	if reasons := p.awaitPending(t); !slices.Contains(reasons[:], ErrLost) {
		t.Errorf("the connection ended because of %v, want %v at the side that accepts", reasons, ErrLost)
	}
}

// wantConnected fails the test unless a proposal has ended because the link has a connection.
func wantConnected(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, ErrConnected) {
		t.Errorf("%s ends with %v, want %v", what, err, ErrConnected)
	}
}

// closedConn returns a connection that the peer has closed.
func closedConn(t *testing.T) transport.Conn {
	ca, cb := conns(t)
	cb.Close()
	<-ca.Done()
	return ca
}
