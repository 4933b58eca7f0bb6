package p2p

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/poll"
	"github.com/nexar-go/nexar/internal/wire"
)

// clock is a Clock that does not advance.
type clock struct{}

func (clock) Stamp() int64         { return 1 }
func (clock) StampEnd(int64) int64 { return 2 }

// TestRefused: the error of a refused message has its size and the size of the buffer.
func TestRefused(t *testing.T) {
	const long = math.MaxInt
	l := link.NewCommon(nil, link.Config{}, nil).NewPending(0)
	m := New(Config{Poller: &poll.Poller{}, Clock: clock{}})
	m.Open([]*link.Link{nil, l}, NewRanks([]*link.Link{nil, l}))
	s := &Send{messages: m, id: 5, rank: 1, typ: 5, size: long}
	m.sends[5] = s
	m.Refused(l, wire.OfferRefuse{ID: 5, Room: long - 1, Type: 5})
	if r, ok := errors.AsType[*MisfitError](s.Wait(context.Background())); !ok || !r.Refused || r.Size != long || r.Room != long-1 {
		t.Errorf("the sender gets %+v, want that %d bytes are one too many", r, long)
	}
}

// TestTraceAllocations: tracing messages does not allocate.
func TestTraceAllocations(t *testing.T) {
	m := New(Config{Clock: clock{}})
	m.SetTracing(true)
	s := new(Send)
	note := func() {
		s.begun = m.stampLocked()
		var fx Effects
		m.endSendLocked(&fx, s, nil)
	}
	for range 10_000 {
		note()
	}
	if n := testing.AllocsPerRun(1000, note); n > 0 {
		t.Errorf("%v allocations for each message, want none", n)
	}
}

// TestSendWithoutReceive: a send that fails as no receive has begun is no call: the deadlock of other calls is found as long as none begins.
func TestSendWithoutReceive(t *testing.T) {
	m := New(Config{Poller: &poll.Poller{}, Clock: clock{}})
	links := []*link.Link{link.NewCommon(nil, link.Config{}, nil).NewPending(0)}
	m.Open(links, NewRanks(links))
	long := Bytes(make([]byte, 1))
	long.Received = true
	s, err := m.StartSend(long, 1, 0, 0)
	if begun, _ := m.Waits(func(Wait) {}); s != nil || !errors.Is(err, ErrNoReceive) || begun != 0 {
		t.Errorf("%v, %v; %d calls have begun, want none", s, err, begun)
	}
}
