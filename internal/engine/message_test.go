package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/wire"
)

const byteType = 5

func payload(n, i int) []byte {
	b := make([]byte, n)
	for k := range b {
		b[k] = byte(k*3 + i)
	}
	return b
}

// TestMessagesKeepTheirOrder: short and long messages with one tag arrive in order, at
// another rank and at the sender itself, whether the receive or the send begins first.
func TestMessagesKeepTheirOrder(t *testing.T) {
	sizes := []int{0, 1, wire.PayloadMax - 60_000, wire.PayloadMax + 10_000, 100, wire.PayloadMax, wire.PayloadMax + 1, 3, 3 << 20, 5}
	for _, to := range []int{0, 1} {
		w := newWorld(t, 2, overMem, Config{})
		sent := make(chan error, 1)
		go func() {
			for i, n := range sizes {
				if err := sendOn(t.Context(), w.comms[0], payload(n, i), byteType, to, 4); err != nil {
					sent <- err
					return
				}
			}
			sent <- nil
		}()
		for i, n := range sizes {
			if i%3 == 0 {
				time.Sleep(time.Millisecond)
			}
			from, tag := 0, int64(4)
			if i%2 == 1 {
				from, tag = p2p.Any, p2p.Any
			}
			buf := bytes.Repeat([]byte{0xEE}, n+8)
			got, err := recvOn(t.Context(), w.comms[to], buf, byteType, from, tag)
			if want := (p2p.Received{Source: 0, Tag: 4, Bytes: n}); err != nil || got != want {
				t.Fatalf("message %d: %+v, %v, want %+v", i, got, err, want)
			}
			if !bytes.Equal(buf[:n], payload(n, i)) || !bytes.Equal(buf[n:], bytes.Repeat([]byte{0xEE}, 8)) {
				t.Fatalf("message %d has a wrong payload", i)
			}
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
	}
}

// TestMessagesBeyondCredit: short messages without a receive use up the credit. Later ones need
// grants, and all are received in order.
func TestMessagesBeyondCredit(t *testing.T) {
	w := newWorld(t, 2, overMem, Config{})
	const count = 40
	sent := make(chan error, 1)
	go func() {
		for i := range count {
			if err := sendOn(t.Context(), w.comms[0], payload(50_000, i), byteType, 1, 1); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	time.Sleep(5 * time.Millisecond)
	buf := make([]byte, 50_000)
	for i := range count {
		if _, err := recvOn(t.Context(), w.comms[1], buf, byteType, 0, 1); err != nil || !bytes.Equal(buf, payload(50_000, i)) {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

func TestMessageErrors(t *testing.T) {
	for _, n := range []int{1000, 200_000} {
		w := newWorld(t, 2, overMem, Config{})
		sent := make(chan error, 1)
		go func() { sent <- sendOn(t.Context(), w.comms[0], payload(n, 0), byteType, 1, 0) }()
		_, err := recvOn(t.Context(), w.comms[1], make([]byte, n-1), byteType, 0, 0)
		if s, ok := errors.AsType[*p2p.MisfitError](err); !ok || s.Refused || s.Size != n || s.Room != n-1 || s.Rank != 0 {
			t.Errorf("%d bytes: got %v, want a MisfitError", n, err)
		}
		err = <-sent
		if r, ok := errors.AsType[*p2p.MisfitError](err); n > wire.PayloadMax && (!ok || !r.Refused || r.Rank != 1 || r.Size != n || r.Room != n-1) {
			t.Errorf("%d bytes: the sender got %v, want that it was refused", n, err)
		}
		go func() { sent <- sendOn(t.Context(), w.comms[0], payload(n, 0), byteType, 1, 0) }()
		_, err = recvOn(t.Context(), w.comms[1], make([]byte, n), byteType+1, 0, 0)
		if e, ok := errors.AsType[*p2p.MisfitError](err); !ok || e.Sent != byteType || e.Receiving != byteType+1 {
			t.Errorf("%d bytes: got %v, want a MisfitError of types", n, err)
		}
		<-sent
		if err := w.comms[1].Err(); err != nil { // These errors end no communicator.
			t.Errorf("the communicator has ended: %v", err)
		}
	}
}

// TestCancelledMessages: after a cancelled call the buffers are not used. A call that is cancelled
// before it has an effect has none; otherwise the communicator ends.
func TestCancelledMessages(t *testing.T) {
	w := newWorld(t, 2, overMem, Config{})
	times := 300
	if testing.Short() {
		times = 100
	}
	for i := range times {
		rng := rand.New(rand.NewPCG(3, uint64(i)))
		n := []int{10, wire.PayloadMax + 1000, 2 << 20}[rng.IntN(3)]
		for rank := range 2 {
			w.comms[rank] = w.engines[rank].NewComm(uint64(100+i), rank, w.links[rank])
		}
		data := [2][]byte{payload(n, i), make([]byte, n)}
		victim, delay := rng.IntN(2), time.Duration(rng.IntN(400))*time.Microsecond
		errs := w.on(func(rank int, c *Comm) (err error) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if rank == victim {
				defer time.AfterFunc(delay, cancel).Stop()
			}
			if rank == 0 {
				err = sendOn(ctx, c, data[0], byteType, 1, 0)
			} else if _, err = recvOn(ctx, c, data[1], byteType, 0, 0); err == nil && !bytes.Equal(data[1], payload(n, i)) {
				err = errors.New("a wrong payload")
			}
			if err != nil && rank == victim && c.Err() == nil && rank == 1 {
				c.Cancel(err) // A receive without a message does not end it, and the sender waits.
			}
			clear(data[rank]) // The race detector reports other users.
			return err
		})
		for rank, err := range errs {
			if err != nil && !errors.Is(err, context.Canceled) && !isType[*RevokedError](err) && !isType[*EndedError](err) {
				t.Errorf("iteration %d: rank %d: %v", i, rank, err)
			}
			w.comms[rank].Close()
		}
		if !bytes.Equal(data[1], make([]byte, n)) {
			t.Fatalf("iteration %d: memory was touched after Recv", i)
		}
	}
}

// TestRecvCancelledBeforeAMessage: the message goes to the next receive.
func TestRecvCancelledBeforeAMessage(t *testing.T) {
	w := newWorld(t, 2, overMem, Config{})
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(5*time.Millisecond, func() { cancel(enough) })
	if _, err := recvOn(ctx, w.comms[1], make([]byte, 5), byteType, 0, 0); err != enough {
		t.Errorf("got %v, want %v", err, enough)
	}
	if err := sendOn(t.Context(), w.comms[0], payload(5, 1), byteType, 1, 0); err != nil {
		t.Error(err)
	}
	buf := make([]byte, 5)
	if _, err := recvOn(t.Context(), w.comms[1], buf, byteType, 0, 0); err != nil || !bytes.Equal(buf, payload(5, 1)) {
		t.Errorf("got %v, %v", buf, err)
	}
}

// TestGrantOfAnotherRank: a peer that grants or refuses a message to another rank breaks the
// protocol.
func TestGrantOfAnotherRank(t *testing.T) {
	for name, send := range map[string]func(p *fakePeer, o wire.Offer){
		"grant": func(p *fakePeer, o wire.Offer) {
			p.link.GrantOffer(wire.OfferGrant{Comm: o.Comm, ID: o.ID, Grant: p.link.Grant(newSink(wire.PayloadMax + 1))})
		},
		"refusal": func(p *fakePeer, o wire.Offer) { p.link.RefuseOffer(wire.OfferRefuse{Comm: o.Comm, ID: o.ID}) },
	} {
		t.Run(name, func(t *testing.T) {
			w, peers, lost := newFakePeers(t, 3)
			c := w.engines[0].NewComm(commID, 0, w.links[0])
			sent := make(chan error, 1)
			go func() { sent <- sendOn(t.Context(), c, make([]byte, wire.PayloadMax+1), byteType, 1, 0) }()
			send(peers[2], peers[1].expect("offer").offer)
			wantLost(t, lost, "of message 1")
			if err := <-sent; !isType[*PeerError](err) {
				t.Errorf("got %v, want that rank 2 has failed", err)
			}
		})
	}
	t.Run("nothing", func(t *testing.T) {
		w, peers, lost := newFakePeers(t, 2)
		c := w.engines[0].NewComm(commID, 0, w.links[0])
		sent := make(chan error, 1)
		go func() { sent <- sendOn(t.Context(), c, make([]byte, wire.PayloadMax+1), byteType, 1, 0) }()
		peers[1].link.GrantOffer(wire.OfferGrant{Comm: commID, ID: peers[1].expect("offer").offer.ID})
		wantLost(t, lost, "grant 0 of message 1")
		<-sent
	})
	t.Run("too large", func(t *testing.T) {
		_, peers, lost := newFakePeers(t, 2)
		peers[1].link.OfferMessage(wire.Offer{Comm: commID, Size: 1 << 63})
		wantLost(t, lost, "a message of")
	})
}

// TestMessagesOfLeftRank: messages that have arrived can be received after their rank has left,
// others fail.
func TestMessagesOfLeftRank(t *testing.T) {
	w := newWorld(t, 3, overMem, Config{})
	if err := sendOn(t.Context(), w.comms[2], payload(10, 1), byteType, 0, 1); err != nil {
		t.Fatal(err)
	}
	offered := make(chan error, 1)
	go func() { offered <- sendOn(t.Context(), w.comms[2], make([]byte, wire.PayloadMax+1), byteType, 0, 2) }()
	waiting := make(chan error, 1)
	go func() {
		_, err := recvOn(t.Context(), w.comms[1], nil, byteType, 2, 3)
		waiting <- err
	}()
	until(t, "the messages", func() bool {
		w.comms[0].mu.Lock()
		defer w.comms[0].mu.Unlock()
		return w.comms[0].messages.Waiting() == 2
	})
	w.leave(2)
	if err := <-offered; err != ErrClosed {
		t.Errorf("the sender: %v, want %v", err, ErrClosed)
	}
	left := func(err error) bool {
		p, ok := errors.AsType[*PeerError](err)
		return ok && p.Left && isRank(p.Rank, 2)
	}
	if err := <-waiting; !left(err) {
		t.Errorf("the receiver: %v, want that rank 2 has left", err)
	}
	until(t, "the goodbye", func() bool {
		w.comms[0].mu.Lock()
		defer w.comms[0].mu.Unlock()
		return hasLeft(w.comms[0], 2)
	})
	buf := make([]byte, wire.PayloadMax+1)
	if got, err := recvOn(t.Context(), w.comms[0], buf, byteType, 2, 1); err != nil || got.Bytes != 10 {
		t.Errorf("a message that had arrived: %+v, %v", got, err)
	}
	for tag := range int64(2) {
		if _, err := recvOn(t.Context(), w.comms[0], buf, byteType, 2, 2+tag); !left(err) {
			t.Errorf("tag %d: %v, want that rank 2 has left", 2+tag, err)
		}
	}
	if err := sendOn(t.Context(), w.comms[0], buf, byteType, 2, 0); !left(err) {
		t.Errorf("Send: %v, want that rank 2 has left", err)
	}
	sent := make(chan error, 1)
	go func() { sent <- sendOn(t.Context(), w.comms[0], buf, byteType, 1, 0) }()
	if _, err := recvOn(t.Context(), w.comms[1], buf, byteType, 0, 0); err != nil || <-sent != nil {
		t.Errorf("between the other ranks: %v", err)
	}
}

// TestConcurrentMessages: many goroutines on each rank send and receive.
func TestConcurrentMessages(t *testing.T) {
	const n, pairs, each = 3, 8, 40
	w := newWorld(t, n, overMem, Config{})
	noError(t, w.on(func(rank int, c *Comm) error {
		errs := make(chan error, 2*pairs)
		to, from := (rank+1)%n, (rank+n-1)%n
		for tag := range int64(pairs) {
			rng := rand.New(rand.NewPCG(uint64(tag), 1))
			var sizes []int
			for range each {
				sizes = append(sizes, rng.IntN(1<<(1+rng.IntN(18))))
			}
			go func() {
				var err error
				for i, size := range sizes {
					err = errors.Join(err, sendOn(t.Context(), c, payload(size, i), byteType, to, tag))
				}
				errs <- err
			}()
			go func() {
				buf := make([]byte, 1<<18)
				for i, size := range sizes {
					got, err := recvOn(t.Context(), c, buf, byteType, from, tag)
					if err != nil || !bytes.Equal(buf[:got.Bytes], payload(size, i)) {
						errs <- fmt.Errorf("tag %d, message %d: %+v, %v", tag, i, got, err)
						return
					}
				}
				errs <- nil
			}()
		}
		var err error
		for range 2 * pairs {
			err = errors.Join(err, <-errs)
		}
		return err
	}))
}
