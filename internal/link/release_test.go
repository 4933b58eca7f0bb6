package link

import (
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
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
		p.a.Credit().Consumed(wire.Messages, len(b))
	}
	p.hb.message = func(m wire.Message, b []byte) {
		mu.Lock()
		defer mu.Unlock()
		atB = append(atB, m.Tag)
		p.b.Credit().Consumed(wire.Messages, len(b))
	}
	p.a.Wait(1)
	for round := range rounds {
		var all sync.WaitGroup
		began := make(chan struct{}, 2)
		for _, l := range []*Link{p.a, p.b} {
			all.Go(func() {
				for i := range messages {
					for !l.Credit().Take(wire.Messages, 1) {
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
		if p.a.CloseIdle() {
			t.Fatal("a link with a waiting goroutine is detached")
		}
		var both sync.WaitGroup // A late call would release the next connection.
		if round%2 == 0 {
			both.Go(func() { p.b.Disconnect() })
		}
		if !p.a.Disconnect() && round%2 == 1 {
			t.Fatal("the connection is not released")
		}
		both.Wait()
		loads = append(loads, send(p.a, p.b, 1<<20, round), send(p.b, p.a, 1<<20, round))
		p.awaitReleased(t)
		if p.a.Disconnect() {
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
			if !l.Credit().Take(wire.Messages, len(payload)) {
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
				if !l.Credit().Take(wire.Messages, 1<<10) {
					panic("no credit")
				}
				l.SendMessage(wire.Message{}, make([]byte, 1<<10))
			}
		},
		wire.TypePing:     (*Link).Ping,
		wire.TypePong:     func(l *Link) { l.pong(wire.Ping{}) },
		wire.TypeQuery:    func(l *Link) { l.Query(wire.Query{}) },
		wire.TypeWhere:    func(l *Link) { l.Answer(wire.Where{}) },
		wire.TypeRevoke:   func(l *Link) { l.Revoke(wire.Revoke{Cause: wire.CauseFailed}, "text") },
		wire.TypeFailed:   func(l *Link) { l.Failed(wire.Failed{}, "text") },
		wire.TypeSegment:  func(l *Link) {}, // TestRelease sends segments, and a Bye ends each connection.
		wire.TypeBye:      func(l *Link) {},
		wire.TypeByeAck:   func(l *Link) {},
		wire.TypeClosed:   func(l *Link) { l.Closed((&wire.Closed{}).Append(nil)) },
		wire.TypeReason:   func(l *Link) { l.Reason(wire.Reason{}, "text") },
		wire.TypeGone:     func(l *Link) { l.Gone(wire.Gone{}) },
		wire.TypeAsk:      func(l *Link) { l.Ask(wire.Ask{}) },
		wire.TypeWaits:    func(l *Link) { l.AnswerAsk(wire.Waits{}, nil) },
		wire.TypeView:     func(l *Link) { l.View([]byte("view")) },
		wire.TypeKey:      func(l *Link) { k := wire.Key{Grant: 1, Length: 1}; l.replies().postTransient(k.Append(nil)) },
		wire.TypeWritten:  func(l *Link) {}, // Only a remote write sends it.
		wire.TypeLeaving:  func(l *Link) { l.Leaving(wire.Leaving{}) },
		wire.TypeBeat:     (*Link).Beat,
		wire.TypeAck:      (*Link).acknowledge,
		wire.TypeIdle:     func(l *Link) { l.CloseIdle() },
		wire.TypeFinished: func(l *Link) {}, // TestRelease sends segments, and the peer reports their grants.
	}
	p := newKeptPair(t)
	p.ha.message = func(m wire.Message, b []byte) { p.a.Credit().Consumed(wire.Messages, len(b)) }
	p.a.Wait(1) // The request of TypeIdle does not release the connection before this test does.
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
		if !p.a.Disconnect() {
			t.Fatalf("type %d: the connection is not released", typ)
		}
		p.awaitReleased(t)
		p.conns(t)
		if atA, atB := connect(t, p.a, p.b, p.ca, p.cb, admitAll); atA != nil || atB != nil {
			t.Fatalf("type %d: no connection after the frames: %v, %v", typ, atA, atB)
		}
		soon(t, "Settled", func() { <-p.a.Settled(); <-p.b.Settled() })
	}
}

// TestProposalWithOldCounts: a proposal waits while the link uses another connection and releases it. Its counts are old then, but no frame
// was lost.
func TestProposalWithOldCounts(t *testing.T) {
	p := newKeptPair(t)
	close(p.ca.gate)
	p.a.Disconnect()
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
		p.a.Disconnect()
		p.awaitReleased(t)
		if round == 1 {
			return
		}
		close(admitted)
		soon(t, "the end of the proposal", func() {
			for range 2 {
				if err := <-results; err == nil {
					t.Errorf("the old proposal ended with %v, want an error", err)
				}
			}
		})
		if t.Failed() {
			return
		}
	}
}

// awaitReleased waits until both links are pending after a Release, which only the side that has released the connection knows of.
func (p *gatedPair) awaitReleased(t *testing.T) {
	t.Helper()
	if reasons := p.awaitPending(t); !slices.Contains(reasons[:], nil) {
		t.Fatalf("the connection ended because of %v, want that one side has closed it", reasons)
	}
}
