package engine

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/wire"
)

// TestClaim: only a receive that waits for a message claims it. If its buffer is too short, it
// fails, and the message is dropped.
func TestClaim(t *testing.T) {
	w := newWorld(t, 2, overMem, Config{})
	e, l, c := w.engines[0], w.links[0][1], w.comms[0]
	m := wire.Message{Comm: commID, Tag: 4, Type: byteType, Length: 10_000}
	if _, ok := e.Claim(l, m); ok {
		t.Error("a message is claimed that no receive waits for")
	}
	other := m
	other.Comm++
	if _, ok := e.Claim(l, other); ok {
		t.Error("a message of an unknown communicator is claimed")
	}
	r, err := c.messages.StartRecv(p2p.Bytes(make([]byte, 9_999)), byteType, 1, 4)
	if err != nil {
		t.Fatal(err)
	}
	if id, ok := e.Claim(l, m); !ok || id != 0 {
		t.Errorf("claim %d, %t of a message that is too long, want 0, true", id, ok)
	}
	if _, err := r.Wait(t.Context()); !isType[*p2p.MisfitError](err) {
		t.Errorf("error %v, want a MisfitError", err)
	}
	if r, err = c.messages.StartRecv(p2p.Bytes(make([]byte, 10_000)), byteType, 1, 4); err != nil {
		t.Fatal(err)
	}
	if id, ok := e.Claim(l, m); !ok || id == 0 {
		t.Errorf("claim %d, %t of a message that a receive waits for", id, ok)
	}
	if _, ok := e.Claim(l, m); ok {
		t.Error("a second message is claimed for the same receive")
	}
	go func() {
		time.Sleep(10 * time.Millisecond)
		r.Filled(nil)
	}()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	got, err := r.Wait(ended)
	if want := (p2p.Received{Source: 1, Tag: 4, Bytes: 10_000}); got != want || err != nil {
		t.Errorf("a message that arrives when the context has ended: %+v, %v, want %+v", got, err, want)
	}
}

// claim starts a receive at rank 0 that claims a message whose payload does not arrive.
func (w *world) claim(t *testing.T) *p2p.Receive {
	t.Helper()
	r, err := w.comms[0].messages.StartRecv(p2p.Bytes(make([]byte, 10_000)), byteType, 1, 4)
	if err != nil {
		t.Fatal(err)
	}
	w.engines[0].Claim(w.links[0][1], wire.Message{Comm: commID, Tag: 4, Type: byteType, Length: 10_000})
	return r
}

// TestClaimWithoutPayload: if the payload of a claimed message does not arrive, the end of
// the context revokes the communicator.
func TestClaimWithoutPayload(t *testing.T) {
	w := newWorld(t, 2, overMem, Config{})
	c, r := w.comms[0], w.claim(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Wait(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
	if c.Err() == nil {
		t.Error("the communicator has not ended")
	}
}

// TestCloseWithClaim: a message that is being received does not keep a rank from closing in good
// order, since its sender does not wait for the receiver.
func TestCloseWithClaim(t *testing.T) {
	w := newWorld(t, 2, overMem, Config{})
	r := w.claim(t)
	soon(t, "Close", w.comms[0].Close)
	if _, err := r.Wait(t.Context()); err != ErrClosed {
		t.Errorf("error %v, want %v", err, ErrClosed)
	}
	_, err := recvOn(t.Context(), w.comms[1], nil, byteType, 0, 4)
	if isType[*RevokedError](err) || err == nil {
		t.Errorf("the other rank: error %v, want that the rank has left", err)
	}
}

// TestShortMessagesWithoutCredit: the timeout of a receive does not end the communicator because of
// a short message, even if the message needs a grant because others have used up the credit.
func TestShortMessagesWithoutCredit(t *testing.T) {
	w := newWorld(t, 2, overMem, Config{})
	const size, count, ahead = 4000, 300, 500 // more than the credit is enough for
	flood, sending := sync.WaitGroup{}, make(chan error, 1)
	for range ahead {
		flood.Go(func() { sendOn(t.Context(), w.comms[1], payload(size, 1), byteType, 0, 1) })
	}
	until(t, "the credit is used up", func() bool {
		w.comms[0].mu.Lock()
		defer w.comms[0].mu.Unlock()
		return w.comms[0].messages.Waiting() == ahead
	})
	go func() {
		var err error
		for i := 0; i < count && err == nil; i++ {
			err = sendOn(t.Context(), w.comms[1], payload(8, i), byteType, 0, 2)
		}
		sending <- err
	}()
	buf := make([]byte, 8)
	for i, early := 0, 0; i < count; {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(early%50)*time.Microsecond)
		_, err := recvOn(ctx, w.comms[0], buf, byteType, 1, 2)
		cancel()
		switch {
		case err == nil && bytes.Equal(buf, payload(8, i)):
			i++
		case err == nil:
			t.Fatalf("message %d has a wrong payload", i)
		case !errors.Is(err, context.DeadlineExceeded) || w.comms[0].Err() != nil:
			t.Fatalf("message %d: %v; the communicator has ended: %v", i, err, w.comms[0].Err())
		}
		early++
	}
	if err := <-sending; err != nil {
		t.Error(err)
	}
	for range ahead {
		if _, err := recvOn(t.Context(), w.comms[0], make([]byte, size), byteType, 1, 1); err != nil {
			t.Fatal(err)
		}
	}
	flood.Wait()
}
