//race:none tests of other packages use it with goroutines

package p2p

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/poll"
	"github.com/nexar-go/nexar/internal/wire"
)

// An owner is a communicator that a test ends. In CancelIf, the link reports the end of
// the payload at the worst moment: after cancel has returned and before Fail.
type owner struct {
	messages *Messages
	early    func() // runs before cancel
	late     func() // runs after cancel
	revoked  bool
}

func (o *owner) CancelIf(cancel func() bool, cause error) {
	o.early()
	if cancel() {
		o.late()
		o.revoked = true
		var fx Effects
		o.messages.Fail(&fx, cause, cause)
		o.messages.Perform(&fx)
	}
}

func (o *owner) Cause(ctx context.Context, _ Wait, _ int64) error { return context.Cause(ctx) }

func (o *owner) Go(f func())    { go f() }
func (o *owner) Spawn(f func()) { go f() }

// newOwner returns an owner with the messages of two ranks, and the link to rank 1.
func newOwner() (*owner, *link.Link) {
	l, o := link.NewCommon(nil, link.Config{}, nil).NewPending(0), &owner{early: func() {}, late: func() {}}
	o.messages = New(Config{Owner: o, Poller: &poll.Poller{Links: make([]*link.Link, 2), Active: new(atomic.Int64)}, Clock: clock{}, EagerMax: 10})
	o.messages.Open([]*link.Link{nil, l}, NewRanks([]*link.Link{nil, l}))
	return o, l
}

// TestCancelIsAtomic: a send or receive with an ended context returns an error if and only if that revokes the
// communicator, even if its payload arrives, or is refused, at the same moment.
func TestCancelIsAtomic(t *testing.T) {
	cause := errors.New("cancelled")
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	send := func(o *owner, l *link.Link) (wait func() error, done func()) {
		s := &Send{messages: o.messages, id: 5, rank: 1, size: 20}
		o.messages.sends[s.id] = s
		return func() error { return s.Wait(ended) }, func() { s.Delivered(&s.transfer) }
	}
	refused := func(o *owner, l *link.Link) (wait func() error, done func()) {
		wait, _ = send(o, l)
		return wait, func() { o.messages.Refused(l, wire.OfferRefuse{ID: 5, Room: 1}) }
	}
	receive := func(o *owner, l *link.Link) (wait func() error, done func()) {
		r := o.messages.newReceive(Bytes(make([]byte, 20)), 0, 1, 0)
		var grant Effects
		o.messages.mu.Lock()
		o.messages.takeLocked(&grant, r, &arrival{link: l, source: 1, size: 20})
		o.messages.mu.Unlock()
		return func() error { _, err := r.Wait(ended); return err }, func() { r.Filled(r.sink) }
	}
	for name, begin := range map[string]func(o *owner, l *link.Link) (wait func() error, done func()){
		"send": send, "refused send": refused, "receive": receive,
	} {
		t.Run(name, func(t *testing.T) {
			o, l := newOwner()
			wait, done := begin(o, l)
			o.late = done
			if err := wait(); err != cause || !o.revoked {
				t.Errorf("the payload ends after the cancellation: error %v, revoked %v; want %v, true", err, o.revoked, cause)
			}
			o.messages.Await()
			o, l = newOwner()
			wait, done = begin(o, l)
			o.early = done
			if err := wait(); err == cause || o.revoked {
				t.Errorf("the payload ends before the cancellation: error %v, revoked %v; want another error or none, false", err, o.revoked)
			}
		})
	}
}

// TestCancelAfterLeave: a receive that fails because its sender has left does not revoke the communicator when
// its context ends meanwhile.
func TestCancelAfterLeave(t *testing.T) {
	o, l := newOwner()
	left := errors.New("rank 1 has left")
	r := o.messages.newReceive(Bytes(make([]byte, 20)), 0, 1, 0)
	var grant, fx Effects
	o.messages.mu.Lock()
	o.messages.takeLocked(&grant, r, &arrival{link: l, source: 1, size: 20})
	o.messages.mu.Unlock()
	o.messages.Leave(&fx, 1, left, true)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	result := make(chan error)
	asked := make(chan struct{})
	o.early = func() { close(asked) }
	go func() { _, err := r.Wait(ended); result <- err }()
	<-asked
	o.messages.Perform(&fx)
	if err := <-result; err != left || o.revoked {
		t.Errorf("error %v, revoked %v; want %v, false", err, o.revoked, left)
	}
}
