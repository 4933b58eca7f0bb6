package engine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/wire"
)

// waiting returns the number of probes that wait.
func waiting(c *Comm) (n int) {
	c.messages.Traces(func(r *p2p.Trace, _ int64, isActive bool) {
		if isActive && r.Kind == p2p.Probed {
			n++
		}
	})
	return n
}

// TestProbeForMessages: a probe returns at once for a message that has arrived, waits for one that
// has not, and leaves the message to a receive.
func TestProbeForMessages(t *testing.T) {
	const long = 200_000
	for name, test := range map[string]struct {
		source int
		tag    int64
		size   int
	}{
		"exact":           {1, 4, 10},
		"any rank":        {p2p.Any, 4, 10},
		"any tag":         {1, p2p.Any, 10},
		"any":             {p2p.Any, p2p.Any, 0},
		"a long message":  {1, 4, long},
		"any that's long": {p2p.Any, p2p.Any, long},
	} {
		for _, early := range []bool{false, true} {
			w := newWorld(t, 3, overMem, Config{})
			c, want := w.comms[0], p2p.Received{Source: 1, Tag: 4, Bytes: test.size}
			sent := make(chan error, 1)
			send := func() { sent <- sendOn(t.Context(), w.comms[1], payload(test.size, 1), byteType, 0, 4) }
			if early {
				go send()
				until(t, "the message", func() bool { _, ok, _ := c.messages.Peek(1, 4); return ok })
			} else {
				go func() {
					until(t, "the probe", func() bool { return waiting(c) == 1 })
					send()
				}()
			}
			for range 2 {
				if got, err := c.messages.Probe(t.Context(), test.source, test.tag); err != nil || got != want {
					t.Errorf("%s, early %v: Probe = %+v, %v; want %+v", name, early, got, err, want)
				}
			}
			if got, ok, err := c.messages.Peek(test.source, test.tag); err != nil || !ok || got != want {
				t.Errorf("%s: Peek = %+v, %v, %v; want %+v", name, got, ok, err, want)
			}
			if got, ok, err := c.messages.Peek(2, p2p.Any); err != nil || ok {
				t.Errorf("%s: Peek = %+v, %v, %v; want no message of rank 2", name, got, ok, err)
			}
			if got, err := recvOn(t.Context(), c, make([]byte, long), byteType, test.source, test.tag); err != nil || got != want {
				t.Errorf("%s: Recv = %+v, %v; want %+v", name, got, err, want)
			}
			if _, ok, err := c.messages.Peek(p2p.Any, p2p.Any); ok || err != nil {
				t.Errorf("%s: the message is still queued; %v", name, err)
			}
			if err := <-sent; err != nil {
				t.Error(err)
			}
		}
	}
}

// TestProbesOfOtherMessagesWait: a message ends the probes that it matches, and no others.
func TestProbesOfOtherMessagesWait(t *testing.T) {
	w := newWorld(t, 3, overMem, Config{})
	c := w.comms[0]
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	var others, its sync.WaitGroup
	probe := func(group *sync.WaitGroup, source int, tag int64, want error) {
		group.Go(func() {
			if _, err := c.messages.Probe(ctx, source, tag); err != want {
				t.Errorf("Probe(%d, %d) = %v, want %v", source, tag, err, want)
			}
		})
	}
	probe(&others, 2, 4, enough)
	probe(&others, 1, 5, enough)
	probe(&others, 2, p2p.Any, enough)
	probe(&others, p2p.Any, 5, enough)
	until(t, "the probes", func() bool { return waiting(c) == 4 })
	for range 3 {
		probe(&its, 1, 4, nil)
		probe(&its, p2p.Any, 4, nil)
		probe(&its, 1, p2p.Any, nil)
		probe(&its, p2p.Any, p2p.Any, nil)
	}
	if err := sendOn(t.Context(), w.comms[1], nil, byteType, 0, 4); err != nil {
		t.Fatal(err)
	}
	its.Wait()
	if n := waiting(c); n != 4 {
		t.Errorf("%d probes wait, want the 4 for other messages", n)
	}
	cancel(enough)
	others.Wait()
	if n := waiting(c); n > 0 {
		t.Errorf("%d probes wait", n)
	}
	if _, err := recvOn(t.Context(), c, nil, byteType, 1, 4); err != nil {
		t.Error(err)
	}
}

// TestProbeEnds: a probe of a message that cannot arrive any more fails.
func TestProbeEnds(t *testing.T) {
	left := func(rank int) func(error) bool {
		return func(err error) bool {
			p, ok := errors.AsType[*PeerError](err)
			return ok && p.Left && isRank(p.Rank, rank)
		}
	}
	for name, test := range map[string]struct {
		source int
		end    func(w *world)
		during func(error) bool
		after  func(error) bool
	}{
		"closed":         {1, func(w *world) { w.comms[0].Close() }, func(err error) bool { return err == ErrClosed }, isType[*EndedError]},
		"revoked":        {1, func(w *world) { w.comms[2].Cancel(errors.New("x")) }, isType[*RevokedError], isType[*EndedError]},
		"its rank left":  {1, func(w *world) { w.leave(1) }, left(1), left(1)},
		"its rank ended": {1, func(w *world) { w.comms[1].Close() }, left(1), left(1)},
		"its rank died":  {1, func(w *world) { w.links[1][0].Abort() }, isType[*PeerError], isType[*EndedError]},
		"all have left":  {p2p.Any, func(w *world) { w.leave(2); w.leave(1) }, isType[*PeerError], isType[*PeerError]},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, overMem, Config{})
			c := w.comms[0]
			ended := make(chan error, 1)
			go func() {
				_, err := c.messages.Probe(t.Context(), test.source, p2p.Any)
				ended <- err
			}()
			until(t, "the probe", func() bool { return waiting(c) == 1 })
			test.end(w)
			if err := <-ended; !test.during(err) {
				t.Errorf("the probe under way: %v", err)
			}
			if _, err := c.messages.Probe(t.Context(), test.source, p2p.Any); !test.after(err) {
				t.Errorf("the next probe: %v", err)
			}
			if _, _, err := c.messages.Peek(test.source, p2p.Any); (err == nil) != (c.Err() == nil) {
				t.Errorf("Peek: %v, the communicator: %v", err, c.Err())
			}
		})
	}
}

// TestProbeOfLeftRank: a message that has arrived can be probed and received after its rank has
// left.
func TestProbeOfLeftRank(t *testing.T) {
	w := newWorld(t, 2, overMem, Config{})
	c := w.comms[0]
	if err := sendOn(t.Context(), w.comms[1], payload(3, 1), byteType, 0, 4); err != nil {
		t.Fatal(err)
	}
	w.leave(1)
	until(t, "the goodbye", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return hasLeft(c, 1) })
	for _, source := range []int{1, p2p.Any} {
		if got, err := c.messages.Probe(t.Context(), source, 4); err != nil || got != (p2p.Received{Source: 1, Tag: 4, Bytes: 3}) {
			t.Errorf("Probe of %d: %+v, %v", source, got, err)
		}
	}
	if _, err := recvOn(t.Context(), c, make([]byte, 3), byteType, 1, 4); err != nil {
		t.Error(err)
	}
	if _, err := c.messages.Probe(t.Context(), p2p.Any, p2p.Any); !isType[*PeerError](err) {
		t.Errorf("Probe without a rank that could send: %v, want a PeerError", err)
	}
}

// TestProbeBeforeOpen: messages that arrive before the communicator is made are kept.
func TestProbeBeforeOpen(t *testing.T) {
	w := newWorld(t, 2, overMem, Config{}, 0)
	if err := sendOn(t.Context(), w.comms[1], payload(3, 1), byteType, 0, 4); err != nil {
		t.Fatal(err)
	}
	until(t, "the message", func() bool { return w.engines[0].known(commID) != nil })
	w.open(0)
	if got, err := w.comms[0].messages.Probe(t.Context(), p2p.Any, p2p.Any); err != nil || got != (p2p.Received{Source: 1, Tag: 4, Bytes: 3}) {
		t.Errorf("Probe = %+v, %v", got, err)
	}
}

// TestProbeCancelled: a probe that is cancelled while its message arrives returns the message or an
// error, and leaves the message in both cases.
func TestProbeCancelled(t *testing.T) {
	w := newWorld(t, 2, overMem, Config{})
	for i := range 300 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Microsecond)
		go sendOn(t.Context(), w.comms[1], payload(3, i), byteType, 0, int64(i))
		got, err := w.comms[0].messages.Probe(ctx, p2p.Any, int64(i))
		if err == nil && got != (p2p.Received{Source: 1, Tag: int64(i), Bytes: 3}) || err != nil && err != context.DeadlineExceeded {
			t.Errorf("message %d: Probe = %+v, %v", i, got, err)
		}
		cancel()
		if _, err := recvOn(t.Context(), w.comms[0], make([]byte, 3), byteType, 1, int64(i)); err != nil {
			t.Errorf("message %d: %v", i, err)
		}
	}
	if n := waiting(w.comms[0]); n > 0 {
		t.Errorf("%d probes wait", n)
	}
}

// TestLengthsBeyond32Bits: probes and errors have the length of a message longer than 4 GiB.
func TestLengthsBeyond32Bits(t *testing.T) {
	const long = 5<<30 + 3 // its lower 32 bits are 1 GiB and 3
	w, peers, _ := newFakePeers(t, 2)
	c := w.engines[0].NewComm(commID, 0, w.links[0])
	offer := wire.Offer{Comm: commID, Tag: 4, Type: byteType, ID: 77, Size: long}
	peers[1].link.OfferMessage(offer)
	if got, err := c.messages.Probe(t.Context(), 1, 4); err != nil || got.Bytes != long {
		t.Errorf("Probe = %+v, %v; want %d bytes", got, err, long)
	}
	_, err := recvOn(t.Context(), c, make([]byte, 2<<20), byteType, 1, 4)
	if s, ok := errors.AsType[*p2p.MisfitError](err); !ok || s.Size != long || s.Room != 2<<20 {
		t.Errorf("Recv: %v, want that %d bytes have no room", err, long)
	}
	if r := peers[1].expect("refusal").refuse; r.ID != 77 || r.Room != 2<<20 {
		t.Errorf("the sender gets the refusal %+v", r)
	}
}
