package link

import (
	"bytes"
	"errors"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// TestRelease: a connection in use is closed, by one side or by both at once, and replaced by another one. Each message and transfer
// arrives once, in order, over one of the two.
func TestRelease(t *testing.T) {
	const rounds, messages = 10, 100
	p := newKeptPair(t)
	close(p.ca.gate)
	var mu sync.Mutex
	var atA, atB []int64
	p.ha.message = func(m wire.Message, b []byte) {
		mu.Lock()
		defer mu.Unlock()
		atA = append(atA, m.Tag)
		p.a.Consumed(wire.Messages, len(b))
	}
	p.hb.message = func(m wire.Message, b []byte) {
		mu.Lock()
		defer mu.Unlock()
		atB = append(atB, m.Tag)
		p.b.Consumed(wire.Messages, len(b))
	}
	p.a.Wait(1)
	for round := range rounds {
		var all sync.WaitGroup
		began := make(chan struct{}, 2)
		for _, l := range []*Link{p.a, p.b} {
			all.Go(func() {
				for i := range messages {
					for !l.TakeCredit(wire.Messages, 1) {
						time.Sleep(time.Millisecond)
					}
					l.SendMessage(wire.Message{Tag: int64(round*messages + i)}, []byte{1})
					if i == messages/2 {
						began <- struct{}{}
					}
				}
			})
		}
		loads := []*load{send(p.a, p.b, 3<<20, round), send(p.b, p.a, 3<<20, round)}
		<-began
		if p.a.Detach() {
			t.Fatal("a link with a waiting goroutine is detached")
		}
		if round%2 == 0 {
			all.Go(func() { p.b.Release() })
		}
		if isFirst := p.a.Release(); !isFirst && round%2 == 1 || isFirst && p.a.Release() {
			t.Fatal("the connection is not released, or twice")
		}
		loads = append(loads, send(p.a, p.b, 1<<20, round), send(p.b, p.a, 1<<20, round))
		if reasons := p.awaitPending(t); reasons != [2]error{} {
			t.Fatalf("the connection ended because of %v, want that both sides closed it", reasons)
		}
		if p.a.Release() {
			t.Error("a pending link is released")
		}
		p.connect(t)
		close(p.ca.gate)
		all.Wait()
		for _, x := range loads {
			x.wait(t)
		}
	}
	var want []int64
	for i := range rounds * messages {
		want = append(want, int64(i))
	}
	soon(t, "the last message", func() {
		for isDone := false; !isDone; runtime.Gosched() {
			mu.Lock()
			isDone = len(atA) >= len(want) && len(atB) >= len(want)
			mu.Unlock()
		}
	})
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(atA, want) || !slices.Equal(atB, want) {
		t.Errorf("%d and %d messages have arrived, want %d at each side, in order", len(atA), len(atB), len(want))
	}
}

// TestBothSidesCountTheSameFrames sends a frame of each type, releases the connection, and makes another one. Both sides then compare
// their counts.
func TestBothSidesCountTheSameFrames(t *testing.T) {
	frames := map[wire.Type]func(l *Link){
		wire.TypeMessage: func(l *Link) {
			const payload = "payload"
			if !l.TakeCredit(wire.Messages, len(payload)) {
				panic("no credit")
			}
			l.SendMessage(wire.Message{Tag: 1}, []byte(payload))
		},
		wire.TypeOffer:       func(l *Link) { l.OfferMessage(wire.Offer{}) },
		wire.TypeStep:        func(l *Link) { l.SendStep(wire.Step{}, []byte("payload")) },
		wire.TypeStepOffer:   func(l *Link) { l.OfferStep(wire.Step{}) },
		wire.TypeStepGrant:   func(l *Link) { l.GrantStep(wire.Step{Grant: 1}) },
		wire.TypeOfferGrant:  func(l *Link) { l.GrantOffer(wire.OfferGrant{Grant: 1}) },
		wire.TypeOfferRefuse: func(l *Link) { l.RefuseOffer(wire.OfferRefuse{}) },
		wire.TypeCredit: func(l *Link) {
			for range creditBytes / 2 / (1<<10 + frameCharge) { // A credit is for a fourth of creditBytes.
				if !l.TakeCredit(wire.Messages, 1<<10) {
					panic("no credit")
				}
				l.SendMessage(wire.Message{}, make([]byte, 1<<10))
			}
		},
		wire.TypePing:    (*Link).Ping,
		wire.TypePong:    (*Link).Beat,
		wire.TypeQuery:   func(l *Link) { l.Query(wire.Query{}) },
		wire.TypeWhere:   func(l *Link) { l.Answer(wire.Where{}) },
		wire.TypeRevoke:  func(l *Link) { l.Revoke(wire.Revoke{Cause: wire.CauseFailed}, "text") },
		wire.TypeFailed:  func(l *Link) { l.Failed(wire.Failed{}, "text") },
		wire.TypeSegment: func(l *Link) {}, // TestRelease sends segments, and a Bye ends each connection.
		wire.TypeBye:     func(l *Link) {},
		wire.TypeByeAck:  func(l *Link) {},
		wire.TypeClosed:  func(l *Link) { l.Closed((&wire.Closed{}).Append(nil)) },
		wire.TypeReason:  func(l *Link) { l.Reason(wire.Reason{}, "text") },
		wire.TypeGone:    func(l *Link) { l.Gone(wire.Gone{}) },
		wire.TypeAsk:     func(l *Link) { l.Ask(wire.Ask{}) },
		wire.TypeWaits:   func(l *Link) { l.AnswerAsk(wire.Waits{}, nil) },
		wire.TypeView:    func(l *Link) { l.View([]byte("view")) },
		wire.TypeKey:     func(l *Link) { k := wire.Key{Grant: 1, Length: 1}; l.replies().post(k.Append) },
		wire.TypeWritten: func(l *Link) {}, // Only a remote write sends it.
		wire.TypeLeaving: func(l *Link) { l.Leaving(wire.Leaving{}) },
	}
	p := newKeptPair(t)
	p.ha.message = func(m wire.Message, b []byte) { p.a.Consumed(wire.Messages, len(b)) }
	for typ := wire.Type(1); ; typ++ {
		if _, err := wire.Size(typ); err != nil {
			break // after the last type
		}
		send, ok := frames[typ]
		if !ok {
			t.Errorf("no frame of type %d, want one of each type", typ)
			continue
		}
		close(p.ca.gate)
		for range 2 {
			send(p.b)
		}
		if !p.a.Release() {
			t.Fatalf("type %d: the connection is not released", typ)
		}
		if reasons := p.awaitPending(t); reasons != [2]error{} {
			t.Fatalf("type %d: the connection ended because of %v, want that both sides closed it", typ, reasons)
		}
		p.conns(t)
		if atA, atB := connect(t, p.a, p.b, p.ca, p.cb, admitAll); atA != nil || atB != nil {
			t.Fatalf("type %d: no connection after the frames: %v, %v", typ, atA, atB)
		}
		soon(t, "Settled", func() { <-p.a.Settled(); <-p.b.Settled() })
	}
}

// TestBreakWhileReleasing: a connection breaks before goodbyes and their acknowledgements are written. The next one does not begin with
// them, and has the frames that were sent before and after the goodbyes.
func TestBreakWhileReleasing(t *testing.T) {
	p := newKeptPair(t)
	close(p.ca.gate)
	got := make(chan uint64, 4)
	p.hb.revoke = func(r wire.Revoke, _ string) { got <- r.Comm }
	if !p.a.Release() {
		t.Fatal("the first connection is not released")
	}
	p.awaitPending(t)
	p.conns(t)
	control := newValve(nil, 1<<40)
	p.ca.Conn = &wrappedConn{Conn: p.ca.Conn, make: func(i int, s transport.Sender) transport.Sender {
		if i > 0 {
			return s
		}
		control.Sender = s
		return control
	}}
	if atA, atB := connect(t, p.a, p.b, p.ca, p.cb, admitAll); atA != nil || atB != nil {
		t.Fatal(atA, atB)
	}
	close(p.ca.gate)
	soon(t, "Settled", func() { <-p.a.Settled(); <-p.b.Settled() })

	control.mu.Lock()
	control.left = 0
	control.mu.Unlock()
	p.a.Ping() // It is lost with the connection, and not counted.
	soon(t, "the write of a ping", control.waitStuck)
	p.a.Revoke(wire.Revoke{Comm: 1, Cause: wire.CauseFailed}, "before")
	if !p.a.Release() {
		t.Fatal("the second connection is not released")
	}
	p.a.Revoke(wire.Revoke{Comm: 2, Cause: wire.CauseFailed}, "after")
	soon(t, "the acknowledgement of a goodbye of b", func() {
		for o := &p.a.exchange().control; ; runtime.Gosched() {
			o.mu.Lock()
			n := len(o.pending) - o.ending
			o.mu.Unlock()
			if n > 3*2 { // the goodbyes of the control and the bulk lane, and an acknowledgement
				return
			}
		}
	})
	p.ca.Close()
	control.allow(1 << 40)
	p.awaitPending(t)

	p.connect(t)
	close(p.ca.gate)
	soon(t, "the frames", func() {
		for want := uint64(1); want <= 2; want++ {
			if r := <-got; r != want {
				t.Errorf("frame %d has arrived, want %d", r, want)
			}
		}
	})
	if !p.b.Release() {
		t.Fatal("the third connection is not released")
	}
	if reasons := p.awaitPending(t); reasons != [2]error{} {
		t.Fatalf("the third connection ended because of %v, want that both sides closed it", reasons)
	}
}

// TestProposalWithOldCounts: a proposal waits while the link uses another connection and releases it. Its counts are old then, but no frame
// was lost.
func TestProposalWithOldCounts(t *testing.T) {
	p := newKeptPair(t)
	close(p.ca.gate)
	p.a.Release()
	p.awaitPending(t)
	ca, cb := conns(t)
	waiting, admitted := make(chan struct{}), make(chan struct{})
	results := make(chan error, 2)
	go func() { results <- p.a.Connect(t.Context(), ca, Config{}) }()
	go func() {
		err := p.b.Accept(t.Context(), cb, Config{}, func() error { close(waiting); <-admitted; return nil })
		cb.Close()
		results <- err
	}()
	soon(t, "the proposal", func() { <-waiting })

	got := make(chan struct{}, 2)
	p.ha.revoke = func(wire.Revoke, string) { got <- struct{}{} }
	p.hb.revoke = p.ha.revoke
	for round := range 2 {
		p.connect(t)
		close(p.ca.gate)
		for _, l := range []*Link{p.a, p.b} {
			l.Revoke(wire.Revoke{Cause: wire.CauseFailed}, "text")
			soon(t, "a frame", func() { <-got })
		}
		p.a.Release()
		if reasons := p.awaitPending(t); reasons != [2]error{} {
			t.Fatalf("the connection ended because of %v, want that both sides closed it", reasons)
		}
		if round == 1 {
			return
		}
		close(admitted)
		soon(t, "the end of the proposal", func() {
			for range 2 {
				if err := <-results; err == nil || errors.Is(err, ErrFramesLost) {
					t.Errorf("the old proposal ended with %v, want an error, and no loss of frames", err)
				}
			}
		})
		if t.Failed() {
			return
		}
	}
}

// A plainSender takes all frames, and has no capabilities.
type plainSender struct{ transport.Sender }

func (plainSender) Write(p []byte) (int, error) { return len(p), nil }

// TestPreambleEndsWithItsConnection: a connection ends before the preamble of a lane is written. The next one gets the frames without it.
func TestPreambleEndsWithItsConnection(t *testing.T) {
	l := newPending(newHandler(), Config{}, func() {})
	t.Cleanup(l.Abort)
	var frame wire.Closed
	want := frame.Append(nil)
	for range 100 { // The goroutine of the outbox may be faster.
		var o outbox
		o.init(l, wire.Data)
		o.post(frame.Append)
		a := newAttachment(l, new(path), Config{})
		o.open(a.first, plainSender{}, wire.Preamble{Lane: wire.Data}.Append(nil))
		o.detach()
		a.writers.Wait()
		a.cancel()
		if len(o.pending) > 0 && !bytes.Equal(o.pending, want) || len(o.pending) == 0 != (o.written == 1) {
			t.Fatalf("%x waits for the next connection, and %d frames are written; want %x, or one frame", o.pending, o.written, want)
		}
	}
}

// connectKept gives both links of a pair the connection ca, which link b accepts as cb and keeps while keep returns true. It must be called in a
// synctest bubble.
func (p *gatedPair) connectKept(t *testing.T, cb transport.Conn, keep func() bool) {
	t.Helper()
	close(p.ca.gate)
	accepted := make(chan error, 1)
	go func() { accepted <- p.b.Accept(t.Context(), cb, Config{Keep: keep}, admitAll) }()
	if err := p.a.Connect(t.Context(), p.ca, Config{}); err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// TestKeep: the peer releases the connection. While Config.Keep returns true, this side sends frames over it, and then closes it as well; after
// keepMax also if Keep still returns true.
func TestKeep(t *testing.T) {
	for name, kept := range map[string]time.Duration{"for a while": keepMax / 2, "for too long": 2 * keepMax} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPendingPair(t)
				p.conns(t)
				var keeps atomic.Bool
				keeps.Store(true)
				p.connectKept(t, p.cb, keeps.Load)
				got := make(chan struct{}, 1)
				p.ha.revoke = func(wire.Revoke, string) { got <- struct{}{} }
				began := time.Now()
				time.AfterFunc(kept, func() { keeps.Store(false) })
				if !p.a.Release() {
					t.Fatal("the connection is not released")
				}
				time.Sleep(keepMax / 4)
				p.b.Revoke(wire.Revoke{Cause: wire.CauseFailed}, "text")
				synctest.Wait()
				if len(got) == 0 || p.a.IsPending() || p.b.IsPending() {
					t.Error("the connection does not carry frames of the side that keeps it")
				}
				if reasons := p.awaitPending(t); reasons != [2]error{} {
					t.Errorf("the connection ended because of %v, want that both sides closed it", reasons)
				}
				if took, least := time.Since(began), min(kept, keepMax); took < least || took > least+2*keepTick {
					t.Errorf("the connection has ended after %v, want %v", took, least)
				}
			})
		})
	}
}

// TestKeptGoodbyeEndsWithItsConnection: the peer releases the connection, and this side keeps it. The connection breaks while a frame waits to be
// written. The next connection does not begin with the acknowledgements of the goodbyes of the peer.
func TestKeptGoodbyeEndsWithItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPendingPair(t)
		p.conns(t)
		var control *valve
		cb := &conn{Conn: p.cb, sender: func(lane wire.Lane, s transport.Sender) transport.Sender {
			if lane != wire.Control {
				return s
			}
			control = newValve(s, math.MaxInt)
			return control
		}}
		p.connectKept(t, cb, func() bool { return true })
		control.mu.Lock()
		control.left = 0
		control.mu.Unlock()
		p.b.Beat() // It is not counted, so its loss does no harm.
		synctest.Wait()
		if !p.a.Release() {
			t.Fatal("the connection is not released")
		}
		synctest.Wait()
		p.cb.Close()
		control.SetWriteDeadline(time.Now())
		p.awaitPending(t)

		p.connect(t)
		close(p.ca.gate)
		got := make(chan struct{}, 1)
		p.ha.revoke = func(wire.Revoke, string) { got <- struct{}{} }
		p.b.Revoke(wire.Revoke{Cause: wire.CauseFailed}, "text")
		synctest.Wait()
		if len(got) == 0 || p.a.IsPending() || p.b.IsPending() {
			t.Error("the next connection does not work")
		}
		for len(p.detached) > 0 {
			t.Errorf("it ended because of: %v", <-p.detached)
		}
	})
}

// TestCloseOfAKeptConnection: the peer releases the connection, and this side keeps it and closes the link. The peer gets all frames, and
// neither side waits.
func TestCloseOfAKeptConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPendingPair(t)
		p.conns(t)
		p.connectKept(t, p.cb, func() bool { return true })
		got := make(chan struct{}, 1)
		p.ha.revoke = func(wire.Revoke, string) { got <- struct{}{} }
		began := time.Now()
		if !p.a.Release() {
			t.Fatal("the connection is not released")
		}
		synctest.Wait()
		p.b.Revoke(wire.Revoke{Cause: wire.CauseFailed}, "text")
		if !p.b.Close(t.Context()) {
			t.Error("the peer has not read everything")
		}
		if err := p.ha.wait(t); err != errLeft || len(got) == 0 {
			t.Errorf("the link of the peer ended with %v, and %d frames have arrived; want %v and one frame", err, len(got), errLeft)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v", took)
		}
		p.hb.quiet(t)
	})
}
