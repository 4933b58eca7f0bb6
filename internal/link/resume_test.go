package link

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

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
	p.a.Release()
	if reasons := p.awaitPending(t); reasons != [2]error{} {
		t.Fatalf("the connection ended because of %v, want that both sides closed it", reasons)
	}
}

// announce begins the control lane of a connection with counts.
func announce(t *testing.T, c transport.Conn, r wire.Resume) {
	t.Helper()
	s, err := c.OpenPipe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Write(r.Append(wire.Preamble{Lane: wire.Control, Flags: wire.PreambleResumes}.Append(nil)))
}

// wantOld checks that a proposal was refused because it is old.
func wantOld(t *testing.T, which string, err error) {
	t.Helper()
	if !errors.Is(err, errOld) {
		t.Errorf("%s ends with %v, want %v", which, err, errOld)
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
				if err := <-result; err == nil || errors.Is(err, ErrFramesLost) {
					t.Errorf("the old proposal ended with %v, want an error, and no loss of frames", err)
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
	soon(t, "the late proposal", func() { p.b.Refuse(t.Context(), cb) })
	cb.Close()
	got := make(chan struct{}, 1)
	p.hb.revoke = func(wire.Revoke, string) { got <- struct{}{} }
	p.a.Revoke(wire.Revoke{Cause: wire.CauseFailed}, "text")
	soon(t, "a frame", func() { <-got })
	p.a.Release()
	if reasons := p.awaitPending(t); reasons != [2]error{} {
		t.Fatalf("the connection ended because of %v, want that both sides closed it", reasons)
	}
}

// TestLateAcceptance: the acceptance of a proposal arrives only after the link has used and released another connection. It belongs to old
// counts: the link has sent frames since.
func TestLateAcceptance(t *testing.T) {
	p := newPendingPair(t)
	cb, result := p.propose(t)
	p.use(t)
	announce(t, cb, wire.Resume{Number: 1 << 40})
	soon(t, "the end of the proposal", func() { wantOld(t, "the proposal", <-result) })
	p.use(t)
}

// TestLateProposalOfAnEarlierLink: frames are lost, and both sides replace the link. A proposal of the earlier link arrives late, and does
// not end the new one.
func TestLateProposalOfAnEarlierLink(t *testing.T) {
	p := newPendingPair(t)
	p.use(t)
	late, _ := p.propose(t)
	o := &p.a.exchange().control
	o.mu.Lock()
	o.written++ // and b has not received it
	o.mu.Unlock()
	ca, cb := conns(t)
	accepted := make(chan error, 1)
	go func() { accepted <- p.a.Accept(t.Context(), ca, Config{}, admitAll) }()
	atB := p.b.Connect(t.Context(), cb, Config{})
	cb.Close()
	if atA := <-accepted; !errors.Is(atA, ErrFramesLost) || !errors.Is(atB, ErrFramesLost) {
		t.Fatalf("got errors %v and %v, want that frames were lost", atA, atB)
	}
	for _, l := range []**Link{&p.a, &p.b} {
		next := (*l).common.NewPending(7)
		next.Follow(*l)
		t.Cleanup(next.Abort)
		*l = next
	}
	soon(t, "the late proposal", func() { wantOld(t, "the late proposal", p.b.Accept(t.Context(), late, Config{}, admitAll)) })
	late.Close()
	p.use(t)
}

// TestLossThatOneSideKnows: frames are lost, and one side has replaced its link when the connection ends before the other side knows. The
// next connection tells that side, and does not end the new link. Each of the two sides may propose it. A side that has neither sent nor
// received a frame learns of the loss as well.
func TestLossThatOneSideKnows(t *testing.T) {
	for name, trial := range map[string]struct {
		knows int
		used  bool
	}{
		"the side that proposes": {0, true}, "the side that accepts": {1, true},
		"the side that proposes, first frame": {0, false}, "the side that accepts, first frame": {1, false},
	} {
		t.Run(name, func(t *testing.T) {
			p, knows := newPendingPair(t), trial.knows
			if trial.used {
				p.use(t)
			}
			links := []**Link{&p.a, &p.b}
			replace := func(l **Link) {
				next := (*l).common.NewPending(7)
				next.Follow(*l)
				t.Cleanup(next.Abort)
				*l = next
			}
			(*links[knows]).Abort()
			replace(links[knows])
			ca, cb := conns(t)
			results := make([]error, 2)
			accepted := make(chan error, 1)
			go func() { accepted <- p.b.Accept(t.Context(), cb, Config{}, admitAll) }()
			results[0] = p.a.Connect(t.Context(), ca, Config{})
			ca.Close()
			results[1] = <-accepted
			if !errors.Is(results[knows], errEarlier) || !errors.Is(results[1-knows], ErrFramesLost) {
				t.Errorf("the side that knows of the loss gets the error %v, and the other one %v", results[knows], results[1-knows])
			}
			if (*links[knows]).IsOver() {
				t.Error("the new link has ended")
			}
			replace(links[1-knows])
			p.use(t)
		})
	}
}

// TestConnectWhileAccepting: a link proposes no connection while it accepts one. The peer could not tell new counts from old ones.
func TestConnectWhileAccepting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := pending(t, newHandler())
		ca, cb := conns(t)
		open(t, ca, wire.Control)
		accepted := make(chan error, 1)
		go func() { accepted <- l.Accept(t.Context(), cb, Config{}, admitAll) }()
		synctest.Wait()
		other, _ := conns(t)
		if err := l.Connect(t.Context(), other, Config{}); !errors.Is(err, errAnswering) {
			t.Errorf("a proposal beside an acceptance ends with %v, want %v", err, errAnswering)
		}
		ca.Close()
		if err := <-accepted; err == nil {
			t.Error("the connection was accepted, want an error")
		}
		if err := l.Connect(t.Context(), closedConn(t), Config{}); err == nil || errors.Is(err, errAnswering) {
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
	if err := p.a.Connect(t.Context(), other, Config{}); !errors.Is(err, errProposing) {
		t.Errorf("a second proposal ends with %v, want %v", err, errProposing)
	}
	cb.Close()
	soon(t, "the end of the first proposal", func() { <-result })
	p.use(t)
}

// TestRefuse: a link with a connection refuses two proposals. One is older than the connection and changes nothing. The other one
// is newer, so the peer has lost the connection, and the link becomes pending.
func TestRefuse(t *testing.T) {
	p := newPendingPair(t)
	older, result := p.propose(t)
	p.connect(t)
	close(p.ca.gate)
	soon(t, "the older proposal", func() { p.b.Refuse(t.Context(), older) })
	older.Close()
	soon(t, "the end of the older proposal", func() { <-result })
	if p.cb.Err() != nil || p.b.IsPending() {
		t.Fatalf("a proposal that is older than the connection has ended the connection: %v", p.cb.Err())
	}
	mine, newer := conns(t)
	announce(t, mine, wire.Resume{Number: p.b.exchange().newest + 1})
	soon(t, "the newer proposal", func() { p.b.Refuse(t.Context(), newer) })
	if reasons := p.awaitPending(t); !slices.Contains(reasons[:], errLost) {
		t.Errorf("the connection ended because of %v, want %v at the side that refuses", reasons, errLost)
	}
}

// closedConn returns a connection that the peer has closed.
func closedConn(t *testing.T) transport.Conn {
	ca, cb := conns(t)
	cb.Close()
	<-ca.Done()
	return ca
}
