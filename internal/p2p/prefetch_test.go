package p2p

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/wire"
)

const (
	room        = 1<<20 - 64 // payload of one frame that uses all credit
	prefetchTag = 3
)

// offer has a short offer arrive that no receive waits for, and returns its prefetch.
func (o *owner) offer(t *testing.T, l *link.Link, size int) *prefetch {
	t.Helper()
	a := arrival{link: l, source: 1, tag: prefetchTag, typ: 7, size: uint64(size)}
	var fx Effects
	o.messages.mu.Lock()
	defer o.messages.mu.Unlock()
	o.messages.keepLocked(&fx, &a)
	if granted := fx.first.kind == grant; granted != (a.prefetch != nil) {
		t.Fatalf("the offer is granted: %v, and prefetched: %v", granted, a.prefetch != nil)
	}
	return a.prefetch
}

func (o *owner) receive(t *testing.T, buf []byte, typ uint8) *Receive {
	t.Helper()
	r, err := o.messages.StartRecv(Bytes(buf), typ, 1, prefetchTag)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func checkRoomIsFree(t *testing.T, l *link.Link) {
	t.Helper()
	if !l.Credit().Buffer(wire.Messages, room) {
		t.Fatal("the prefetched message still takes room of the link")
	}
	l.Credit().Unbuffer(room)
}

// TestPrefetch: a receive gets a prefetched message, whether it is posted before or after the payload
// arrives; a receive of another type gets an error. The room of the message is free again then.
func TestPrefetch(t *testing.T) {
	for _, early := range []bool{false, true} {
		for _, typ := range []uint8{7, 8} {
			o, l := newOwner()
			p := o.offer(t, l, 5)
			if l.Credit().Buffer(wire.Messages, room) {
				t.Error("the prefetched message takes no room of the link")
			}
			buf := make([]byte, 5)
			var r *Receive
			if early {
				r = o.receive(t, buf, typ)
			}
			copy(p.payload, "hello")
			p.Filled(p.receive.sink)
			if !early {
				r = o.receive(t, buf, typ)
			}
			got, err := r.Wait(t.Context())
			misfit, isMisfit := errors.AsType[*MisfitError](err)
			switch {
			case typ == 8:
				if !isMisfit || misfit.Sent == misfit.Receiving {
					t.Errorf("early %v: error %v, want a MisfitError of types", early, err)
				}
			case err != nil || string(buf) != "hello" || got != (Received{Source: 1, Tag: prefetchTag, Bytes: 5}):
				t.Errorf("early %v: received %q, %+v, error %v", early, buf, got, err)
			}
			checkRoomIsFree(t, l)
		}
	}
}

// TestNoPrefetch: offers of long messages, and beyond the room of the link, wait for a receive.
func TestNoPrefetch(t *testing.T) {
	o, l := newOwner()
	if o.offer(t, l, 11) != nil {
		t.Error("a message longer than EagerMax is prefetched")
	}
	l.Credit().Buffer(wire.Messages, room-70)
	if o.offer(t, l, 7) != nil {
		t.Error("a message is prefetched that the link has no room for")
	}
	if o.offer(t, l, 6) == nil {
		t.Error("a message is not prefetched that the link has room for")
	}
}

// TestPrefetchOfLostRank: a receive that has taken a message, or that comes later, fails when the
// link ends during the transfer. A payload that has arrived can still be received.
func TestPrefetchOfLostRank(t *testing.T) {
	left := errors.New("rank 1 has left")
	for _, when := range []string{"taken", "not taken", "arrived"} {
		o, l := newOwner()
		p := o.offer(t, l, 5)
		var r *Receive
		switch when {
		case "taken":
			r = o.receive(t, make([]byte, 5), 7)
		case "arrived":
			p.Filled(p.receive.sink)
		}
		var fx Effects
		o.messages.Leave(&fx, 1, left, true)
		o.messages.Perform(&fx)
		o.messages.Await()
		if r == nil {
			r = o.receive(t, make([]byte, 5), 7)
		}
		_, err := r.Wait(t.Context())
		if want := map[bool]error{false: left}[when == "arrived"]; err != want {
			t.Errorf("%s: error %v, want %v", when, err, want)
		}
	}
}

// TestCancelDuringPrefetch: the communicator is revoked if the context of a receive ends that has
// taken a message whose payload does not arrive.
func TestCancelDuringPrefetch(t *testing.T) {
	cause := errors.New("cancelled")
	synctest.Test(t, func(t *testing.T) {
		for _, late := range []bool{false, true} {
			o, l := newOwner()
			p := o.offer(t, l, 5)
			if late { // The payload arrives between the cancellation and Fail.
				o.late = func() { p.Filled(p.receive.sink) }
			}
			r := o.receive(t, make([]byte, 5), 7)
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(cause)
			if _, err := r.Wait(ctx); err != cause || !o.revoked {
				t.Errorf("late %v: error %v, revoked %v; want %v, true", late, err, o.revoked, cause)
			}
			o.messages.Await()
			checkRoomIsFree(t, l)
		}
	})
}

// TestFailWithPrefetched: the room of messages that nobody has received is free after the end of the
// communicator.
func TestFailWithPrefetched(t *testing.T) {
	for _, arrived := range []bool{false, true} {
		o, l := newOwner()
		if p := o.offer(t, l, 5); arrived {
			p.Filled(p.receive.sink)
		}
		var fx Effects
		o.messages.Fail(&fx, errors.New("over"), errors.New("over"))
		o.messages.Perform(&fx)
		o.messages.Await()
		checkRoomIsFree(t, l)
	}
}
