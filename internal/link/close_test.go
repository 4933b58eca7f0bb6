package link

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/deadline"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/sim"
)

// farApart returns two links over a network with a delay of 20 ms in each direction. It must be
// called in a synctest bubble.
func farApart(t *testing.T, ha, hb *handler, cfg sim.Config) (network *sim.Network, a, b *Link) {
	t.Helper()
	cfg.Delay = 20 * time.Millisecond
	network = sim.New(cfg)
	t.Cleanup(func() { network.Close() })
	ta, err := network.Host("a").Listen(1)
	if err != nil {
		t.Fatal(err)
	}
	tb, err := network.Host("b").Listen(1)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := ta.Dial(t.Context(), "b:1", "b:1")
	if err != nil {
		t.Fatal(err)
	}
	cb, err := tb.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return network, start(t, ca, ha), start(t, cb, hb)
}

// took returns the duration of f in the time of the bubble.
func took(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

// TestCloseDeliversEverything: the peer handles everything that was sent before Close, on all lanes,
// before Handler.Left.
func TestCloseDeliversEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ha, hb := newHandler(), newHandler()
		_, a, b := farApart(t, ha, hb, sim.Config{Window: 64 << 10, Rate: 100 << 20, Seed: 1, Loss: 0.1})
		dst := make([]byte, 3<<20)
		filled := &count{}
		id := b.Grant(&Sink{Dst: dst, Owner: filled})
		data := make([]byte, len(dst))
		for i := range data {
			data[i] = byte(i * 7)
		}
		var messages, failed atomic.Int64
		hb.message = func(wire.Message, []byte) { messages.Add(1) }
		hb.failed = func(wire.Failed, string) { failed.Add(1) }
		delivered := &count{}
		a.Deliver(&Transfer{Grant: id, Data: data, Owner: delivered})
		for a.Credit().Take(wire.Messages, 10000) {
			a.SendMessage(wire.Message{}, make([]byte, 10000))
		}
		a.Failed(wire.Failed{}, "x")
		a.Close(within(t, time.Minute))
		if err := hb.wait(t); err != errLeft {
			t.Fatalf("got %v, want %v", err, errLeft)
		}
		if filled.n.Load() != 1 || delivered.n.Load() != 1 || messages.Load() != creditBytes/(10000+frameCharge) || failed.Load() != 1 {
			t.Errorf("%d sinks, %d transfers, %d messages, %d failures", filled.n.Load(), delivered.n.Load(), messages.Load(), failed.Load())
		}
		for i := range dst {
			if dst[i] != byte(i*7) {
				t.Fatalf("byte %d is %d", i, dst[i])
			}
		}
		b.Abort()
		ha.quiet(t)
		hb.quiet(t)
	})
}

// A count counts filled sinks and delivered transfers.
type count struct{ n atomic.Int64 }

func (c *count) Delivered(*Transfer) { c.n.Add(1) }
func (c *count) Filled(*Sink)        { c.n.Add(1) }

func TestCloseTakesARoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ha, hb := newHandler(), newHandler()
		_, a, b := farApart(t, ha, hb, sim.Config{})
		synctest.Wait()
		if d := took(func() { a.Close(within(t, time.Minute)) }); d > 40*time.Millisecond {
			t.Errorf("Close took %v, with a delay of 20 ms in each direction", d)
		}
		if err := hb.wait(t); err != errLeft {
			t.Errorf("got %v, want %v", err, errLeft)
		}
		if d := took(func() { b.Close(within(t, time.Minute)) }); d > 0 {
			t.Errorf("Close took %v, after the peer had left", d)
		}
		ha.quiet(t)
		hb.quiet(t)
	})
}

func TestBothClose(t *testing.T) {
	for _, apart := range []time.Duration{0, time.Millisecond, 19 * time.Millisecond, 20 * time.Millisecond, 21 * time.Millisecond, 50 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			ha, hb := newHandler(), newHandler()
			_, a, b := farApart(t, ha, hb, sim.Config{})
			time.Sleep(time.Second)
			var closing sync.WaitGroup
			closing.Go(func() { a.Close(within(t, time.Minute)) })
			closing.Go(func() {
				time.Sleep(apart)
				b.Close(within(t, time.Minute))
			})
			if d := took(closing.Wait); d > 40*time.Millisecond+apart {
				t.Errorf("%v apart: it took %v", apart, d)
			}
			ha.quiet(t)
			// The second side may learn of the end before it closes.
			for range len(hb.ends) {
				if err := <-hb.ends; err != errLeft {
					t.Errorf("%v apart: b got %v", apart, err)
				}
			}
			hb.quiet(t)
		})
	}
}

func TestCloseWithoutAPeer(t *testing.T) {
	for name, test := range map[string]struct {
		before func(n *sim.Network)
		atMost time.Duration
	}{
		"crashed":                     {func(n *sim.Network) { n.Crash("b") }, 20 * time.Millisecond},
		"powered off":                 {func(n *sim.Network) { n.PowerOff("b") }, 5 * time.Second},
		"cut off":                     {func(n *sim.Network) { n.Partition("b") }, 5 * time.Second},
		"crashed and detected":        {func(n *sim.Network) { n.Crash("b"); time.Sleep(time.Second) }, 0},
		"crashes while a closes":      {func(n *sim.Network) { time.AfterFunc(10*time.Millisecond, func() { n.Crash("b") }) }, 30 * time.Millisecond},
		"cut off and then reached":    {func(n *sim.Network) { n.Partition("b"); time.AfterFunc(time.Second, n.Heal) }, 1040 * time.Millisecond},
		"powered off with a transfer": {func(n *sim.Network) { n.PowerOff("b") }, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ha, hb := newHandler(), newHandler()
				network, a, b := farApart(t, ha, hb, sim.Config{})
				tr := &Transfer{Grant: b.Grant(&Sink{Dst: make([]byte, 8<<20), Owner: ignore{}}), Data: make([]byte, 8<<20), Owner: ignore{}}
				time.Sleep(time.Second)
				if name == "powered off with a transfer" {
					a.Deliver(tr)
				}
				test.before(network)
				known := len(ha.ends) > 0
				if d := took(func() { a.Close(within(t, 5*time.Second)) }); d > test.atMost {
					t.Errorf("it took %v, at most %v was needed", d, test.atMost)
				}
				if !known {
					ha.quiet(t)
				}
				a.Recall(tr)
			})
		})
	}
}

// TestLeftThoughTheConnectionStays: a peer that has said goodbye has left, even if the end of its
// connection does not arrive.
func TestLeftThoughTheConnectionStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ha, hb := newHandler(), newHandler()
		network, a, b := farApart(t, ha, hb, sim.Config{})
		time.Sleep(time.Second)
		go func() {
			time.Sleep(30 * time.Millisecond) // The goodbyes are there, their acknowledgements are not.
			network.Partition("a")
		}()
		closed := make(chan struct{})
		go func() { defer close(closed); a.Close(within(t, 5*time.Second)) }()
		var err error
		if d := took(func() { err = hb.wait(t) }); err != errLeft || d > 20*time.Millisecond+deadline.Linger {
			t.Errorf("after %v: %v", d, err)
		}
		<-closed
		b.Abort()
		hb.quiet(t)
	})
}

// TestCloseAfterGoodbye: Close after the goodbye of the peer waits for the answer of the peer, which may be lost, for
// deadline.Linger after that goodbye at most.
func TestCloseAfterGoodbye(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ha, hb := newHandler(), newHandler()
		network, a, b := farApart(t, ha, hb, sim.Config{})
		time.Sleep(time.Second)
		closed := make(chan struct{})
		go func() { defer close(closed); a.Close(within(t, 5*time.Second)) }()
		time.Sleep(30 * time.Millisecond)
		network.Partition("a")
		if d := took(func() { b.Close(within(t, 5*time.Second)) }); d != deadline.Linger-10*time.Millisecond {
			t.Errorf("Close took %v, want %v after the goodbye, which was read 10 ms ago", d, deadline.Linger)
		}
		<-closed
		ha.quiet(t)
		hb.quiet(t)
	})
}

// TestNoCallsAfterClose: the peer ends the connection when it reads the first goodbye. The
// handler is not called after Close.
func TestNoCallsAfterClose(t *testing.T) {
	for range 300 {
		ca, cb := conns(t)
		h := newHandler()
		a := start(t, ca, h)
		data := laneOf(t, cb, wire.Data)
		go func() {
			data.Read(make([]byte, 1))
			cb.Close()
		}()
		a.Close(within(t, 10*time.Second))
		h.quiet(t)
	}
}

// A slowWriter returns from Write long after the peer has received everything.
type slowWriter struct{ transport.Sender }

func (s slowWriter) Write(p []byte) (int, error) {
	n, err := s.Sender.Write(p)
	time.Sleep(5 * time.Millisecond)
	return n, err
}

// TestDeliveredComesBeforeLeft: a peer leaves as soon as it has received a transfer. Delivered is
// called before Handler.Left.
func TestDeliveredComesBeforeLeft(t *testing.T) {
	ha, hb := newHandler(), newHandler()
	ca, cb := conns(t)
	a := start(t, &conn{Conn: ca, sender: func(_ wire.Lane, s transport.Sender) transport.Sender { return slowWriter{s} }}, ha)
	b := start(t, cb, hb)
	filled, delivered := make(signal), make(signal)
	a.Deliver(&Transfer{Grant: b.Grant(&Sink{Dst: make([]byte, 1000), Owner: filled}), Data: make([]byte, 1000), Owner: delivered})
	filled.wait(t, "the sink")
	b.Close(within(t, 10*time.Second))
	if err := ha.wait(t); err != errLeft {
		t.Fatalf("got %v, want %v", err, errLeft)
	}
	if !delivered.told() {
		t.Error("Handler.Left was called before Delivered")
	}
}

func TestRepeatedGoodbyes(t *testing.T) {
	y := wire.Bye{Data: 1000}
	for name, frame := range map[string][]byte{
		"twice":                       y.Append(y.Append(nil)),
		"an answer that was not due":  {byte(wire.TypeByeAck)},
		"frames that were never sent": (&wire.Ack{Control: 1 << 40}).Append(nil),
	} {
		t.Run(name, func(t *testing.T) {
			err := inject(t, wire.Control, frame)
			if errors.Is(err, transport.ErrPeerClosed) || err == errLeft {
				t.Errorf("got %v, want a protocol error", err)
			}
		})
	}
}
