package link

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/sim"
)

// TestCreditIsConserved sends from several goroutines as much as the credit allows. The other side
// consumes it in any order. The outstanding charge never exceeds the credit, and in the end all
// credit is returned or owed.
func TestCreditIsConserved(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		largest := rapid.SampledFrom([]int{0, 1, 100, 8 << 10, wire.PayloadMax}).Draw(rt, "largest")
		senders := rapid.IntRange(1, 4).Draw(rt, "senders")
		creditRun(t, seed, largest, senders)
	})
}

func creditRun(t *testing.T, seed uint64, largest, senders int) {
	ha, hb := newHandler(), newHandler()
	ca, cb := conns(t)
	var outstanding, most atomic.Int64
	var b *Link
	arrived := make(chan int, 1<<16)
	hb.step = func(_ wire.Step, p []byte) { arrived <- len(p) }
	a := start(t, ca, ha)
	b = start(t, cb, hb)
	var sending sync.WaitGroup
	const each = 100
	for i := range senders {
		sending.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			payload := make([]byte, largest)
			for range each {
				p := payload[:rng.IntN(largest+1)]
				for !a.Credit().Take(wire.Collectives, len(p)) {
					time.Sleep(10 * time.Microsecond)
				}
				now := outstanding.Add(int64(len(p) + frameCharge))
				for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
				}
				a.SendStep(wire.Step{}, p)
			}
		})
	}
	// Consumers take payloads in any order.
	var consuming sync.WaitGroup
	for range 2 {
		consuming.Go(func() {
			for range each * senders / 2 {
				n := <-arrived
				outstanding.Add(-int64(n + frameCharge))
				b.Credit().Consumed(wire.Collectives, n)
			}
		})
	}
	soon(t, "a sender", sending.Wait)
	soon(t, "a consumer", consuming.Wait)
	if m := most.Load(); m > creditBytes {
		t.Errorf("%d bytes were outstanding, with a credit of %d", m, creditBytes)
	}
	end := time.Now().Add(10 * time.Second)
	for a.exchange().credit.left[wire.Collectives].Load()+b.exchange().credit.owed[wire.Collectives].Load() != creditBytes {
		if time.Now().After(end) {
			t.Fatalf("credit %d, owed %d: together not %d", a.exchange().credit.left[wire.Collectives].Load(), b.exchange().credit.owed[wire.Collectives].Load(), creditBytes)
		}
		time.Sleep(time.Millisecond)
	}
	if u, o := b.exchange().credit.unread[wire.Collectives].Load(), b.exchange().credit.owed[wire.Collectives].Load(); u != o {
		t.Errorf("%d bytes count as unread, and %d are owed", u, o)
	}
	a.Abort()
	b.Abort()
}

// TestPrefersGrant: over connections through memory a message of more than PromptMax bytes is offered, over others not.
func TestPrefersGrant(t *testing.T) {
	near, _ := pair(t, newHandler(), newHandler(), nil)
	_, far, _ := farApart(t, newHandler(), newHandler(), sim.Config{Seed: 1})
	if near.PrefersGrant(PromptMax) || !near.PrefersGrant(PromptMax+1) || far.PrefersGrant(wire.PayloadMax) {
		t.Errorf("memory: %v, %v; network: %v; want false, true; false", near.PrefersGrant(PromptMax), near.PrefersGrant(PromptMax+1), far.PrefersGrant(wire.PayloadMax))
	}
}

// TestCreditIsEnough: if nothing is consumed, exactly the credit can be sent, also in frames without
// payload, and the receiver accepts all of it.
func TestCreditIsEnough(t *testing.T) {
	for _, n := range []int{0, 1, 1000, wire.PayloadMax} {
		ha, hb := newHandler(), newHandler()
		var got atomic.Int64
		hb.message = func(wire.Message, []byte) { got.Add(1) }
		a, b := pair(t, ha, hb, nil)
		sent := int64(0)
		for a.Credit().Take(wire.Messages, n) {
			a.SendMessage(wire.Message{}, make([]byte, n))
			sent++
		}
		if want := int64(creditBytes / (n + frameCharge)); sent != want {
			t.Errorf("%d bytes: sent %d, want %d", n, sent, want)
		}
		if !a.Credit().Take(wire.Collectives, 0) {
			t.Error("one class uses up the credit of the other")
		}
		soon(t, "Close", func() { a.Close(within(t, 10*time.Second)) })
		if err := hb.wait(t); err != errLeft {
			t.Errorf("%d bytes: the receiver has ended the link: %v", n, err)
		}
		if got.Load() != sent {
			t.Errorf("%d bytes: %d of %d frames have arrived", n, got.Load(), sent)
		}
		b.Abort()
	}
}

func TestKeepIsBounded(t *testing.T) {
	ha, hb := newHandler(), newHandler()
	a, _ := pair(t, ha, hb, nil)
	for range keptMax {
		if !a.Credit().Keep() {
			t.Fatal("Keep refuses a frame below the limit")
		}
	}
	a.Credit().Dropped()
	if !a.Credit().Keep() {
		t.Fatal("Keep refuses a frame after Dropped")
	}
	if a.Credit().Keep() {
		t.Fatal("Keep accepts a frame above the limit")
	}
	if err := ha.wait(t); err == nil || err == errLeft {
		t.Errorf("got %v, want a protocol error", err)
	}
}

func BenchmarkSendStep(b *testing.B) {
	ha, hb := newHandler(), newHandler()
	ha2 := make(chan struct{}, 1)
	ca, cb := conns(b)
	var to *Link
	hb.step = func(_ wire.Step, p []byte) { to.Credit().Consumed(wire.Collectives, len(p)); ha2 <- struct{}{} }
	from := start(b, ca, ha)
	to = start(b, cb, hb)
	p := make([]byte, 8)
	b.ReportAllocs()
	b.SetBytes(8)
	for b.Loop() {
		if from.Credit().Take(wire.Collectives, len(p)) {
			from.SendStep(wire.Step{}, p)
			<-ha2
		}
	}
}

// Frames of the peer bring the acknowledgement of what it has received.
func TestFramesBringAcknowledgements(t *testing.T) {
	ha, hb := newHandler(), newHandler()
	var a, b *Link
	const size, count = 50_000, 4
	arrived, kept := make(chan bool, count), make(chan int, 1)
	hb.message = func(_ wire.Message, p []byte) {
		b.Credit().Consumed(wire.Messages, len(p))
		arrived <- true
	}
	ha.message = func(_ wire.Message, p []byte) {
		a.Credit().Consumed(wire.Messages, len(p))
		_, n := a.exchange().data.position()
		kept <- n
	}
	a, b = pair(t, ha, hb, with(func(_ wire.Lane, s transport.Sender) transport.Sender { return s }))
	for _, l := range []*Link{a, a, a, a, b} {
		n := size
		if l == b {
			soon(t, "the last message", func() {
				for range count {
					<-arrived
				}
			})
			n = 1
		}
		if !l.Credit().Take(wire.Messages, n) {
			t.Fatal("no credit")
		}
		l.SendMessage(wire.Message{}, make([]byte, n))
	}
	// The peer may still be handling the last message.
	if n := <-kept; n > size+wire.FrameSizeMax {
		t.Errorf("the link keeps %d bytes behind the answer, want those of one message at most", n)
	}
}
