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
