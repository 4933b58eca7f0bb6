package link

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/deadline"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// newPending returns a pending link with the settings of cfg.
func newPending(h Handler, cfg Config, need func()) *Link {
	return NewCommon(h, cfg, func(*Link) { need() }).NewPending(7)
}

// pending returns a pending link and a channel with a value for each call of its function need.
func pending(t testing.TB, h Handler) (l *Link, needs chan struct{}) {
	t.Helper()
	needs = make(chan struct{}, 8)
	l = newPending(h, Config{}, func() { needs <- struct{}{} })
	t.Cleanup(l.Abort)
	return l, needs
}

// connect gives two pending links a connection: a has dialed.
func connect(t testing.TB, a, b *Link, ca, cb transport.Conn, admit func() error) (atA, atB error) {
	t.Helper()
	accepted := make(chan error, 1)
	go func() {
		err := b.Accept(t.Context(), cb, Config{}, admit)
		if err != nil {
			cb.Close()
		}
		accepted <- err
	}()
	soon(t, "Connect", func() { atA = a.Connect(t.Context(), ca, Config{}) })
	return atA, <-accepted
}

func admitAll() error { return nil }

// TestPending: frames wait for a connection, in order, and need one once.
func TestPending(t *testing.T) {
	ha, hb := newHandler(), newHandler()
	got := make(chan string, 16)
	var b *Link
	hb.message = func(m wire.Message, p []byte) {
		got <- fmt.Sprint("message ", m.Tag, " ", string(p))
		b.Credit().Consumed(wire.Messages, len(p))
	}
	hb.closed = func(c wire.Closed) { got <- fmt.Sprint("closed ", c.Last.Seq) }
	ha.message = func(m wire.Message, p []byte) { got <- fmt.Sprint("back ", m.Tag) }
	a, needs := pending(t, ha)
	b, needsB := pending(t, hb)
	a.Closed((&wire.Closed{Last: wire.Call{Comm: 1, Seq: 5}}).Append(nil))
	if !a.IsPending() || a.IsNeeded() {
		t.Error("a notice that a communicator was closed needs a connection")
	}
	for i := range int64(3) {
		if !a.Credit().Take(wire.Messages, 1) {
			t.Fatal("no credit")
		}
		a.SendMessage(wire.Message{Tag: i}, []byte{'x'})
	}
	if len(needs) != 1 || len(needsB) != 0 {
		t.Errorf("a needs %d connections and b %d, want 1 and 0", len(needs), len(needsB))
	}
	ca, cb := conns(t)
	if atA, atB := connect(t, a, b, ca, cb, admitAll); atA != nil || atB != nil {
		t.Fatal(atA, atB)
	}
	b.SendMessage(wire.Message{Tag: 9}, nil)
	a.SendMessage(wire.Message{Tag: 3}, []byte{'y'})
	want := map[string]bool{"back 9": true}
	order := []string{"closed 5", "message 0 x", "message 1 x", "message 2 x", "message 3 y"}
	for len(order) > 0 || len(want) > 0 {
		select {
		case m := <-got:
			switch {
			case want[m]:
				delete(want, m)
			case len(order) > 0 && order[0] == m:
				order = order[1:]
			default:
				t.Fatalf("got %q, want %q", m, order)
			}
		case <-time.After(time.Minute):
			t.Fatalf("missing: %q and %v", order, want)
		}
	}
	if a.IsPending() || b.IsPending() {
		t.Error("a connected link is still pending")
	}
}

// TestPendingRefused: a connection that the peer refuses or that ends early loses no frame.
func TestPendingRefused(t *testing.T) {
	hb := newHandler()
	got := make(chan int64, 4)
	hb.message = func(m wire.Message, _ []byte) { got <- m.Tag }
	a, _ := pending(t, newHandler())
	b, _ := pending(t, hb)
	a.SendMessage(wire.Message{Tag: 1}, []byte("x"))
	refusal := errors.New("refused")
	ca, cb := conns(t)
	atA, atB := connect(t, a, b, ca, cb, func() error { return refusal })
	if atA == nil || !errors.Is(atB, refusal) {
		t.Fatalf("got errors %v and %v, want one at each end", atA, atB)
	}
	ca, cb = conns(t)
	cb.Close()
	if err := a.Connect(t.Context(), ca, Config{}); err == nil {
		t.Fatal("Connect succeeds over a connection that the peer has closed")
	}
	ca, _ = conns(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := a.Connect(ctx, ca, Config{}); err == nil {
		t.Fatal("Connect succeeds over a connection that the peer does not answer")
	}
	ca, cb = conns(t)
	if atA, atB := connect(t, a, b, ca, cb, admitAll); atA != nil || atB != nil {
		t.Fatal(atA, atB)
	}
	a.SendMessage(wire.Message{Tag: 2}, []byte("x"))
	for want := range int64(2) {
		if tag := <-got; tag != want+1 {
			t.Errorf("got message %d, want %d", tag, want+1)
		}
	}
	ca, _ = conns(t)
	if err := a.Connect(t.Context(), ca, Config{}); err == nil {
		t.Error("a link takes a second connection")
	}
	ca.Close()
}

// TestPendingUnconfirmed: a node closes a connection that its peer has accepted, before it has read the acceptance: as
// one that leaves, or that has another connection. The link of the peer stays pending, and its frames wait for the next
// connection.
func TestPendingUnconfirmed(t *testing.T) {
	ha, hb := newHandler(), newHandler()
	got := make(chan int64, 4)
	ha.message = func(m wire.Message, _ []byte) { got <- m.Tag }
	a, _ := pending(t, ha)
	b, _ := pending(t, hb)
	b.SendMessage(wire.Message{Tag: 1}, []byte("x"))
	ca, cb := conns(t)
	announce(t, ca, wire.Resume{Number: 1})
	accepted := make(chan error, 1)
	go func() { accepted <- b.Accept(t.Context(), cb, Config{}, admitAll) }()
	if laneOf(t, ca, wire.Control) == nil {
		t.Fatal("no control lane")
	}
	ca.Close()
	soon(t, "Accept", func() {
		if err := <-accepted; err == nil {
			t.Error("a link has a connection that the peer has not confirmed")
		}
	})
	cb.Close()
	if !b.IsPending() || len(hb.ends) > 0 {
		t.Fatal("the link is not pending any more")
	}
	ca, cb = conns(t)
	if atA, atB := connect(t, a, b, ca, cb, admitAll); atA != nil || atB != nil {
		t.Fatal(atA, atB)
	}
	soon(t, "the message", func() {
		if tag := <-got; tag != 1 {
			t.Errorf("got message %d, want 1", tag)
		}
	})
}

// TestPendingSilentDialer: a peer that stops after it has read the acceptance of its connection holds a link for deadline.Handshake.
// The error names the peer, the link stays pending, and Close does not wait longer.
func TestPendingSilentDialer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := pending(t, newHandler())
		ca, cb := conns(t)
		announce(t, ca, wire.Resume{Number: 1})
		accepted := make(chan error, 1)
		go func() { accepted <- b.Accept(t.Context(), cb, Config{}, admitAll) }()
		if laneOf(t, ca, wire.Control) == nil {
			t.Fatal("no control lane")
		}
		var err error
		if d := took(func() { err = <-accepted }); d != deadline.Handshake {
			t.Errorf("Accept took %v, want %v", d, deadline.Handshake)
		}
		want := fmt.Sprintf("link: the peer %s at %s has not confirmed the connection: no answer within 20s", cb.Peer(), cb.RemoteAddr())
		if err == nil || err.Error() != want {
			t.Errorf("got error %v, want %q", err, want)
		}
		if !b.IsPending() {
			t.Error("the link is not pending any more")
		}
		if d := took(func() { b.Close(t.Context()) }); d > 0 {
			t.Errorf("Close took %v after Accept had failed", d)
		}
		ca.Close()
		cb.Close()
	})
}

// TestPendingEnds: a pending link ends like others.
func TestPendingEnds(t *testing.T) {
	boom := errors.New("boom")
	for name, test := range map[string]struct {
		end  func(l *Link)
		want error // of Handler.Lost; nil if it is not called
	}{
		"Fail":        {func(l *Link) { l.Fail(boom) }, boom},
		"FailPending": {func(l *Link) { l.FailPending(boom) }, boom},
		"Abort":       {func(l *Link) { l.Abort() }, nil},
		"Close":       {func(l *Link) { l.Close(context.Background()) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHandler()
			l, needs := pending(t, h)
			soon(t, name, func() { test.end(l) })
			if test.want != nil {
				if err := <-h.ends; !errors.Is(err, test.want) {
					t.Errorf("Lost is called with %v, want %v", err, test.want)
				}
			}
			<-l.Done()
			l.SendMessage(wire.Message{}, nil)
			ca, _ := conns(t)
			if err := l.Connect(t.Context(), ca, Config{}); err == nil {
				t.Error("a link that has ended takes a connection")
			}
			ca.Close()
			if test.want == nil && len(h.ends) > 0 || l.FailPending(boom) {
				t.Error("the handler learns of the end of this side, or the link ends twice")
			}
			_ = needs
		})
	}
}

// TestPendingClose: Close waits for the connection if frames wait, and they arrive before the goodbye.
func TestPendingClose(t *testing.T) {
	hb := newHandler()
	var arrived []int64
	hb.message = func(m wire.Message, _ []byte) { arrived = append(arrived, m.Tag) }
	a, needs := pending(t, newHandler())
	b, _ := pending(t, hb)
	a.SendMessage(wire.Message{Tag: 1}, []byte("x"))
	<-needs
	closed := make(chan struct{})
	go func() { defer close(closed); a.Close(within(t, time.Minute)) }()
	ca, cb := conns(t)
	if atA, atB := connect(t, a, b, ca, cb, admitAll); atA != nil || atB != nil {
		t.Fatal(atA, atB)
	}
	<-closed
	if err := <-hb.ends; err != errLeft || len(arrived) != 1 {
		t.Errorf("the peer got %v and then the end %v, want a message and a goodbye", arrived, err)
	}
}

// TestPendingCloseDuringAccept: a link that is closed while it accepts a connection says goodbye, or
// the peer learns that the connection was not accepted: it never loses a link.
func TestPendingCloseDuringAccept(t *testing.T) {
	for i := range 200 {
		ha := newHandler()
		a, _ := pending(t, ha)
		b, _ := pending(t, newHandler())
		ca, cb := conns(t)
		closed := make(chan struct{})
		atA, _ := connect(t, a, b, ca, cb, func() error {
			go func() { defer close(closed); b.Close(within(t, time.Minute)) }()
			for range i % 20 {
				runtime.Gosched()
			}
			return nil
		})
		<-closed
		if atA != nil {
			continue
		}
		if err := <-ha.ends; err != errLeft {
			t.Fatalf("round %d: the peer sees the end %v, want a goodbye", i, err)
		}
	}
}

// TestPendingQuiet: frames that need no connection need one when there are too many.
func TestPendingQuiet(t *testing.T) {
	l, needs := pending(t, newHandler())
	l.Revoke(wire.Revoke{}, strings.Repeat("x", wire.TextMax))
	if len(needs) > 0 {
		t.Error("a revocation needs a connection")
	}
	for range quietMax {
		l.Closed((&wire.Closed{}).Append(nil))
	}
	if len(needs) != 1 {
		t.Errorf("%d connections are needed, want 1", len(needs))
	}
	l.Ping()
	if len(needs) != 1 {
		t.Errorf("%d connections are needed after another frame, want 1", len(needs))
	}
}

// TestPendingBound: the payloads that wait for a connection are bounded by the credit of each class, with their headers, for
// payloads of any length.
func TestPendingBound(t *testing.T) {
	for _, n := range []int{0, 1, 1000, wire.PayloadMax} {
		l, needs := pending(t, newHandler())
		sent := 0
		for l.Credit().Take(wire.Messages, n) {
			l.SendMessage(wire.Message{Tag: int64(sent)}, make([]byte, n))
			sent++
		}
		messages := sent
		for l.Credit().Take(wire.Collectives, n) {
			l.SendStep(wire.Step{}, make([]byte, n))
			sent++
		}
		if want := creditBytes / (n + frameCharge); messages != want || sent != 2*want {
			t.Errorf("payloads of %d bytes: %d messages and %d steps wait, want %d each", n, messages, sent-messages, want)
		}
		// Each frame has a header of less than frameCharge bytes.
		if got := waitingBytes(l); got <= sent*n || got > 2*creditBytes {
			t.Errorf("payloads of %d bytes: %d bytes wait, want more than %d and at most %d", n, got, sent*n, 2*creditBytes)
		}
		if len(needs) != 1 {
			t.Errorf("payloads of %d bytes: %d connections are needed, want 1", n, len(needs))
		}
	}
}

// waitingBytes returns the number of bytes that wait for the connection of a pending link.
func waitingBytes(l *Link) (n int) {
	for _, o := range []*outbox{&l.exchange().control, &l.exchange().data} {
		o.mu.Lock()
		n += o.out.Kept()
		o.mu.Unlock()
	}
	return n
}

// TestDetach: both sides close an idle connection. Frames that are sent meanwhile and later wait for the next
// connection, in order, and the byte counts of both sides stay equal.
func TestDetach(t *testing.T) {
	ha, hb := newHandler(), newHandler()
	got := make(chan int64, 16)
	var b *Link
	hb.message = func(m wire.Message, p []byte) {
		b.Credit().Consumed(wire.Messages, len(p))
		got <- m.Tag
	}
	detached := make(chan error, 8)
	cfg := Config{Detached: func(_ *Link, _ transport.MemorySharer, _ Purpose, err error) { detached <- err }}
	needs := make(chan struct{}, 8)
	a := newPending(ha, cfg, func() { needs <- struct{}{} })
	b = newPending(hb, cfg, func() {})
	t.Cleanup(a.Abort)
	t.Cleanup(b.Abort)
	tag := int64(0)
	send := func() {
		tag++
		if !a.Credit().Take(wire.Messages, 1) {
			t.Fatal("no credit")
		}
		a.SendMessage(wire.Message{Tag: tag}, []byte{1})
	}
	want := int64(0)
	receive := func() {
		t.Helper()
		want++
		soon(t, "the message", func() {
			if at := <-got; at != want {
				t.Errorf("got message %d, want %d", at, want)
			}
		})
	}
	for round := range 3 {
		send()
		soon(t, "the need", func() { <-needs })
		ca, cb := conns(t)
		if atA, atB := connect(t, a, b, ca, cb, admitAll); atA != nil || atB != nil {
			t.Fatalf("round %d: Connect: %v, Accept: %v", round, atA, atB)
		}
		receive()
		a.Wait(1)
		if a.CloseIdle() {
			t.Error("a link with a waiting goroutine is detached")
		}
		a.Wait(-1)
		soon(t, "Settled", func() { <-a.Settled() })
		detach(t, a)
		if round == 1 {
			send()
		}
		for range 2 {
			soon(t, "Detached", func() {
				if err := <-detached; err != nil {
					t.Errorf("detached for the reason %v", err)
				}
			})
		}
		for !a.IsPending() || !b.IsPending() {
			runtime.Gosched()
		}
		if sent, received := a.Traffic().Sent, b.Traffic().Received; round != 1 && sent != received {
			t.Errorf("round %d: %d bytes were sent, and %d received", round, sent, received)
		}
		if round == 1 {
			soon(t, "the need of a frame that was sent meanwhile", func() { <-needs })
			ca, cb := conns(t)
			if atA, atB := connect(t, a, b, ca, cb, admitAll); atA != nil || atB != nil {
				t.Fatalf("Connect: %v, Accept: %v", atA, atB)
			}
			receive()
			soon(t, "Settled", func() { <-a.Settled() })
			detach(t, a)
			for range 2 {
				<-detached
			}
			for !a.IsPending() || !b.IsPending() {
				runtime.Gosched()
			}
		}
	}
}

// detach asks the peer of an idle link to close the connection until it does: the peer may not have handled the last frame yet.
func detach(t *testing.T, l *Link) {
	t.Helper()
	soon(t, "the end of an idle connection", func() {
		for !l.IsPending() {
			l.CloseIdle()
			time.Sleep(time.Millisecond)
		}
	})
}

// TestFailPendingDuringAccept: a dial of this node fails while it accepts a connection of the peer. The link uses that connection, and ends if the
// peer does not confirm it.
func TestFailPendingDuringAccept(t *testing.T) {
	boom := errors.New("boom")
	for name, confirms := range map[string]bool{"confirmed": true, "not confirmed": false} {
		t.Run(name, func(t *testing.T) {
			h := newHandler()
			l, _ := pending(t, h)
			conn, peer := conns(t)
			accepted := make(chan error)
			go func() { accepted <- l.Accept(t.Context(), conn, Config{}, func() error { return nil }) }()
			control := propose(t, peer, wire.Resume{Number: 1, From: wire.LinkID{Process: 1, Link: 1}})
			if _, _, _, err := firstLane(t.Context(), peer); err != nil { // It is being accepted.
				t.Fatal(err)
			}
			if !l.FailPending(boom) {
				t.Error("the link does not count as pending")
			}
			if confirms {
				control.Write(confirmation())
				if err := <-accepted; err != nil || l.IsPending() || l.IsOver() {
					t.Errorf("the peer has confirmed the connection: %v, and the link has ended: %t", err, l.IsOver())
				}
				return
			}
			peer.Close()
			if err := <-accepted; err == nil {
				t.Error("a connection that has ended was accepted")
			}
			soon(t, "the end of the link", func() {
				if err := <-h.ends; err != boom {
					t.Errorf("the link ends with %v, want %v", err, boom)
				}
			})
		})
	}
}
