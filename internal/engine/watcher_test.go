package engine

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/wire"
)

// watchedEvents has the calls of a Watcher.
type watchedEvents struct {
	messages chan struct{}
	left     chan int
	ended    chan error
}

func watchEvents(c *Comm) watchedEvents {
	h := watchedEvents{make(chan struct{}, 1000), make(chan int, 10), make(chan error, 10)}
	c.Watch(Watcher{
		Message: func() { h.messages <- struct{}{} },
		Left:    func(rank int, _ error) { h.left <- rank },
		Ended:   func(err error) { h.ended <- err },
	})
	return h
}

// TestWatcherMessages: a Watcher is notified of earlier messages, and of each later one when Peek
// finds it.
func TestWatcherMessages(t *testing.T) {
	w := newWorld(t, 2, overMem, Config{})
	c := w.comms[0]
	send := func(n int, tag int64) {
		t.Helper()
		s, err := w.comms[1].messages.StartSend(p2p.Bytes(make([]byte, n)), byteType, 0, tag)
		if err != nil {
			t.Fatal(err)
		}
		if s != nil {
			go s.Wait(context.Background()) // until the world is closed
		}
	}
	send(3, 0)
	send(3, 1)
	until(t, "both messages", func() bool { _, ok, _ := c.messages.Peek(1, 1); return ok })
	h := watchEvents(c)
	<-h.messages
	for tag, size := range []int{5, 200_000, 0} {
		for len(h.messages) > 0 {
			<-h.messages
		}
		send(size, int64(tag+2))
		for { // The Watcher may also be notified of earlier messages.
			<-h.messages
			if got, ok, err := c.messages.Peek(1, int64(tag+2)); err != nil || ok && got.Bytes != size {
				t.Fatalf("Peek = %+v, %v", got, err)
			} else if ok {
				break
			}
		}
	}
}

// TestWatcherEnds: every Watcher is notified once of each rank that has left and of the end, also of
// earlier ones.
func TestWatcherEnds(t *testing.T) {
	w := newWorld(t, 4, overMem, Config{})
	c := w.comms[0]
	w.leave(3)
	until(t, "the goodbye", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return hasLeft(c, 3) })
	watchers := []watchedEvents{watchEvents(c), watchEvents(c)}
	c.Watch(Watcher{}) // without functions
	slot := -1
	for s := range 4 {
		if rank, ok := c.rankOf.Of(s); ok && rank == 3 {
			slot = s
		}
	}
	c.peerChanged(&PeerChange{Peer: slot}) // The rank has also left the world.
	w.comms[2].Close()
	for i, h := range watchers {
		for _, want := range []int{3, 2} {
			if got := <-h.left; got != want {
				t.Errorf("watcher %d is notified that rank %d has left, want %d", i, got, want)
			}
		}
	}
	w.comms[1].Cancel(errors.New("enough"))
	for i, h := range append(watchers, watchedEvents{}) {
		if i == len(watchers) {
			h = watchEvents(c) // begins to watch after the end
		}
		if err := <-h.ended; !isType[*RevokedError](err) {
			t.Errorf("watcher %d is notified of %v, want a RevokedError", i, err)
		}
		if len(h.left) > 0 {
			t.Errorf("watcher %d is notified after the end that rank %d has left", i, <-h.left)
		}
	}
	w.leave(0) // waits for watchers that are being called
	for i, h := range watchers {
		if len(h.ended) > 0 {
			t.Errorf("watcher %d is notified of the end twice: %v", i, <-h.ended)
		}
	}
}

// TestCloseWaitsForWatchers: Close of the engine waits for watchers that a Close of the
// communicator is about to notify.
func TestCloseWaitsForWatchers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(Config{})
		c := e.NewComm(commID, 0, []*link.Link{nil})
		var notified atomic.Bool
		c.Watch(Watcher{Ended: func(error) { notified.Store(true) }})
		fx := new(effects)
		c.mu.Lock()
		c.setErrLocked(fx, ErrClosed) // as Comm.Close does, before it carries fx out
		c.mu.Unlock()
		closed := make(chan bool)
		go func() {
			e.Close()
			closed <- notified.Load()
		}()
		synctest.Wait()
		c.carryOut(fx)
		if !<-closed {
			t.Error("Close has returned before the watcher was called")
		}
	})
}

// TestFollow: Follow calls its function when the message has arrived, at once if it has arrived.
func TestFollow(t *testing.T) {
	w := newWorld(t, 2, overMem, Config{})
	c := w.comms[0]
	buf := make([]byte, 300_000)
	type result struct {
		got p2p.Received
		err error
	}
	results := make(chan result, 1)
	follow := func(tag int64) {
		r, err := c.messages.StartRecv(p2p.Bytes(buf), byteType, 1, tag)
		if err != nil {
			t.Fatal(err)
		}
		r.Follow(context.Background(), nil, func(got p2p.Received, err error) { results <- result{got, err} })
	}
	for _, size := range []int{0, 10, len(buf)} {
		for _, early := range []bool{true, false} {
			clear(buf)
			if !early {
				follow(4)
			}
			s, err := w.comms[1].messages.StartSend(p2p.Bytes(payload(size, 3)), byteType, 0, 4)
			if err != nil {
				t.Fatal(err)
			}
			if early {
				until(t, "the message", func() bool { _, ok, _ := c.messages.Peek(1, 4); return ok })
				follow(4)
				if s == nil && len(results) == 0 {
					t.Errorf("%d bytes: Follow does not call its function at once", size)
				}
			}
			if got := <-results; got.err != nil || got.got != (p2p.Received{Source: 1, Tag: 4, Bytes: size}) || !bytes.Equal(buf[:size], payload(size, 3)) {
				t.Errorf("%d bytes, early %v: %+v", size, early, got)
			}
			if s != nil {
				if err := s.Wait(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
	}
	follow(9)
	c.Close()
	if got := <-results; got.err != ErrClosed {
		t.Errorf("after Close: %v, want %v", got.err, ErrClosed)
	}
	if _, err := c.messages.StartRecv(p2p.Bytes(nil), byteType, p2p.Any, 9); !isType[*EndedError](err) {
		t.Errorf("StartRecv after Close: %v", err)
	}
}

// TestGo: Close of the engine waits for functions of Comm.Go. After the end of the communicator, Go
// runs a function at once.
func TestGo(t *testing.T) {
	w := newWorld(t, 2, overMem, Config{})
	c := w.comms[0]
	var over atomic.Bool
	closing := make(chan struct{})
	c.Go(func() {
		<-closing
		over.Store(true)
	})
	go func() {
		until(t, "the end", func() bool { return c.Err() != nil })
		close(closing)
	}()
	w.leave(0)
	if !over.Load() {
		t.Error("Close has not waited")
	}
	ran := false
	c.Go(func() { ran = true })
	if !ran {
		t.Error("on a communicator that has ended it does not run at once")
	}
}

// TestLooseCommunicator: a rank that closes a loose communicator during messages ends those. The
// others go on.
func TestLooseCommunicator(t *testing.T) {
	// Ranks 0 and 1 send to each other in turn, and rank 0 closes.
	for next := []int{0, 1}; len(next) > 0; {
		from := next[0]
		w := newWorld(t, 3, overMem, Config{})
		for rank, e := range w.engines {
			w.comms[rank] = e.NewLooseComm(commID+1, rank, w.links[rank])
		}
		h := watchEvents(w.comms[2])
		s, err := w.comms[from].messages.StartSend(p2p.Bytes(make([]byte, 64<<20)), byteType, 1-from, 4)
		if err != nil {
			t.Fatal(err)
		}
		r, err := w.comms[1-from].messages.StartRecv(p2p.Bytes(make([]byte, 64<<20)), byteType, from, 4)
		if err != nil {
			t.Fatal(err)
		}
		until(t, "the grant", func() bool {
			granted := true // if it has ended
			w.comms[from].messages.Traces(func(_ *p2p.Trace, moved int64, isActive bool) { granted = !isActive || moved > 0 })
			return granted
		})
		w.comms[0].Close()
		sent := s.Wait(t.Context())
		_, received := r.Wait(t.Context())
		if sent == nil && received == nil {
			continue // The message was faster than Close, on a busy machine.
		}
		next = next[1:]
		for rank, err := range map[int]error{from: sent, 1 - from: received} {
			p, ok := errors.AsType[*PeerError](err)
			away := rank == 1 && from == 1 && err == nil // the message had arrived before the end
			if rank == 0 && err != ErrClosed || rank == 1 && !away && !(ok && p.Left && isRank(p.Rank, 0)) {
				t.Errorf("the message from rank %d: rank %d gets %v", from, rank, err)
			}
		}
		if rank := <-h.left; rank != 0 || len(h.ended) > 0 {
			t.Errorf("rank 2 is notified that rank %d has left, and %d times of the end", rank, len(h.ended))
		}
		noError(t, w.on(func(rank int, c *Comm) error {
			switch rank {
			case 1:
				return sendOn(t.Context(), c, payload(wire.PayloadMax+1, 1), byteType, 2, 4)
			case 2:
				buf := make([]byte, wire.PayloadMax+1)
				_, err := recvOn(t.Context(), c, buf, byteType, 1, 4)
				if err == nil && !bytes.Equal(buf, payload(wire.PayloadMax+1, 1)) {
					err = errors.New("a wrong payload")
				}
				return err
			}
			return nil
		}))
	}
}

// TestCloseBeforeOtherRanksOpen: a rank closes a communicator during an operation, before the others
// have made it. That ends it for the others, unless it is loose.
func TestCloseBeforeOtherRanksOpen(t *testing.T) {
	for _, loose := range []bool{true, false} {
		w := newWorld(t, 3, overMem, Config{})
		makes := (*Engine).NewComm
		if loose {
			makes = (*Engine).NewLooseComm
		}
		w.comms[0] = makes(w.engines[0], commID+1, 0, w.links[0])
		if _, err := w.comms[0].messages.StartSend(p2p.Bytes(make([]byte, 1<<20)), byteType, 1, 4); err != nil {
			t.Fatal(err)
		}
		if !loose {
			go w.run(t.Context(), 0, ring, vector(0, 100)) // so that the others wait
			until(t, "the collective", func() bool { w.comms[0].mu.Lock(); defer w.comms[0].mu.Unlock(); return w.comms[0].calls.live > 0 })
		}
		w.comms[0].Close()
		for rank := 1; rank < 3; rank++ {
			e := w.engines[rank]
			until(t, "the revocation", func() bool { return hasHeardOfEnd(e, commID+1) })
			w.comms[rank] = makes(e, commID+1, rank, w.links[rank])
			if err := w.comms[rank].Err(); (err == nil) != loose {
				t.Errorf("loose: %v, rank %d: %v", loose, rank, err)
			}
		}
	}
}
