//go:build linux

package rdma

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/hw/internal/verbsfake"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/transporttest"
)

// breakCluster is two transports for many conns.
func breakCluster(t *testing.T) transporttest.Cluster {
	t.Helper()
	needFake(t)
	cluster := newBreakable(t, 2)
	for _, x := range cluster.Transports {
		t.Cleanup(func() { x.Close() })
	}
	return cluster
}

// breaks yields all ways to break a connection.
func breaks(yield func(b verbsfake.Break) bool) {
	for _, inFlight := range []int{0, 2, 20} {
		for _, lost := range []bool{false, true} {
			for _, arrives := range []bool{false, true} {
				for _, side := range []verbsfake.Side{verbsfake.Sender, verbsfake.Receiver, verbsfake.Both} {
					if lost && inFlight == 0 {
						continue
					}
					if !yield(verbsfake.Break{Side: side, Arrives: arrives, InFlight: inFlight, Lost: lost}) {
						return
					}
				}
			}
		}
	}
}

// whileBreaking runs f, and breaks the connection also if f does not reach the request, because it waits for one in flight.
func whileBreaking(f func() error) error {
	ended, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for last := -1; ; {
			select {
			case <-ended:
				return
			case <-time.After(5 * time.Millisecond):
			}
			n := fake.Requests()
			if n == last && fake.Trigger() {
				return
			}
			last = n
		}
	}()
	err := f()
	close(ended)
	<-watched
	return err
}

// remotePart returns the part of memory for remote writes.
func remotePart(mapped []byte) []byte { return mapped[len(mapped)-3*slotBytes:] }

// exchangeAll sends payloads and remote writes in both directions at once until the conns end, and checks the received bytes.
func exchangeAll(ctx context.Context, a, b *conn, mapped [2][]byte) error {
	var both sync.WaitGroup
	errs := make([]error, 4)
	note := func(i int, err error) {
		if !errors.Is(err, transport.ErrPeerGone) { // which is the end of the conn
			errs[i] = err
		}
	}
	for i, c := range [][2]*conn{{a, b}, {b, a}} {
		both.Go(func() { note(i, pieces(ctx, c[0], c[1], mapped[i])) })
		both.Go(func() { note(2+i, remoteWrites(ctx, c[0], c[1], remotePart(mapped[1-i]))) })
	}
	both.Wait()
	return errors.Join(errs...)
}

// pieceLens are the lengths of payloads: inline, copied, of several messages, and more than the credit of a pipe.
var pieceLens = []int{1, 60, 5000, 3 * slotBytes, 40 * slotBytes, 7}

// pieces sends payloads from the heap, from mapped memory and by TryWrite over a pipe.
func pieces(ctx context.Context, from, to *conn, mapped []byte) error {
	s, err := from.OpenLarge(ctx)
	if err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		sent <- func() error {
			for i, n := range pieceLens {
				p := mapped[:n]
				if i%2 == 0 {
					p = make([]byte, n)
				}
				for k := range p {
					p[k] = byte(i + k)
				}
				if n < slotBytes && transport.CapabilitiesOf(s).TryWriter.TryWrite(p) {
					continue
				}
				if _, err := s.Write(p); err != nil {
					return fmt.Errorf("write piece %d: %w", i, err)
				}
			}
			return s.Close()
		}()
	}()
	r, err := acceptOf(ctx, to, s.(*sender).pipe)
	if err != nil {
		return err
	}
	for i, n := range pieceLens {
		p := make([]byte, n)
		if _, err := io.ReadFull(r, p); err != nil {
			return fmt.Errorf("read piece %d: %w", i, err)
		}
		for k := range p {
			if p[k] != byte(i+k) {
				return fmt.Errorf("byte %d of piece %d differs", k, i)
			}
		}
	}
	if _, err := r.Read(make([]byte, 1)); err != io.EOF {
		return fmt.Errorf("end of the pipe: %w, want EOF", err)
	}
	return <-sent
}

// acceptOf accepts pipes until the one with a number, and leaves the others to other goroutines.
func acceptOf(ctx context.Context, c *conn, pipe uint32) (*receiver, error) {
	for {
		r, err := c.AcceptPipe(ctx)
		if err != nil {
			return nil, err
		}
		if got := r.(*receiver); got.pipe == pipe {
			return got, nil
		}
		c.incoming <- r.(*receiver)
		time.Sleep(50 * time.Microsecond)
	}
}

// remoteWrites grants memory of to, lets from write into it, and ends the grant.
func remoteWrites(ctx context.Context, from, to *conn, memory []byte) error {
	s, err := from.OpenPipe(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	r, err := acceptOf(ctx, to, s.(*sender).pipe)
	if err != nil {
		return err
	}
	defer r.Close()
	reg, err := to.Register(memory)
	if err != nil {
		return err
	}
	defer reg.Deregister()
	for i := range 3 {
		g, err := reg.Grant(0, len(memory))
		if err != nil {
			return err
		}
		p := bytes.Repeat([]byte{byte(i + 1)}, len(memory))
		if err := from.WriteRemote(ctx, g.Key(), 0, p); err != nil {
			return fmt.Errorf("remote write %d: %w", i, err)
		}
		if _, err := s.Write([]byte{byte(i)}); err != nil {
			return err
		}
		if _, err := io.ReadFull(r, make([]byte, 1)); err != nil {
			return err
		}
		if i == 1 {
			if err := g.Recall(ctx); err != nil {
				return fmt.Errorf("recall %d: %w", i, err)
			}
		}
		g.Revoke()
		if !bytes.Equal(memory, p) {
			return fmt.Errorf("remote write %d has not arrived before the message behind it", i)
		}
	}
	return nil
}

// TestBreakAtEveryRequest breaks the connection at each request of traffic in turn, on the side of the sender, of the receiver or on both,
// before or after the request arrives, and with other requests in flight. Both conns end, and what has arrived is right, once and in order. From
// the end on nothing is written into the memory of a side. TRIALS=all tries all combinations, in a minute.
func TestBreakAtEveryRequest(t *testing.T) {
	cluster := breakCluster(t)
	var mapped [2][]byte
	for i := range mapped {
		m, err := transport.Map(64 * slotBytes)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Free()
		mapped[i] = m.Bytes()
	}
	run := func(b verbsfake.Break) (requests int, fell bool, err error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ca, err := cluster.Transports[0].Dial(ctx, cluster.Transports[1].Addr(), cluster.Identities[1])
		if err != nil {
			return 0, false, err
		}
		defer ca.Close()
		cb, err := cluster.Transports[1].Accept(ctx)
		if err != nil {
			return 0, false, err
		}
		defer cb.Close()
		x, y := ca.(*conn), cb.(*conn)
		fake.Break(b)
		defer fake.Break(verbsfake.Break{})
		defer context.AfterFunc(ctx, func() { x.Close() })()
		var copies sync.WaitGroup
		var atEnd [2][]byte
		for i, c := range []*conn{x, y} {
			copies.Go(func() {
				<-c.Done()
				atEnd[i] = bytes.Clone(remotePart(mapped[i]))
			})
		}
		err = whileBreaking(func() error { return exchangeAll(ctx, x, y, mapped) })
		requests = fake.Requests()
		if fell = errors.Is(errors.Join(x.Err(), y.Err()), transport.ErrPeerGone); !fell {
			x.Close()
		}
		copies.Wait()
		for i, c := range []*conn{x, y} {
			if fell && !errors.Is(c.Err(), errFailed) {
				err = errors.Join(err, fmt.Errorf("side %d has ended with %w, want %w", i, c.Err(), errFailed))
			}
			if !bytes.Equal(atEnd[i], remotePart(mapped[i])) {
				err = errors.Join(err, fmt.Errorf("the memory of side %d has changed after the end of its conn", i))
			}
		}
		return requests, fell, err
	}
	all, _, err := run(verbsfake.Break{})
	if err != nil {
		t.Fatal("without a break:", err)
	}
	share := 10 // of the ways to break, for each request; over ten requests each way has its turn
	switch {
	case os.Getenv("TRIALS") == "all":
		share = 1
	case testing.Short():
		share = 40
	}
	tried, broke, turn := 0, 0, 0
	for at := 1; at <= all; at++ {
		for b := range breaks {
			if turn++; turn%share != 0 {
				continue
			}
			b.At = at
			_, fell, err := run(b)
			if err != nil {
				t.Fatalf("break %+v of %d requests: %v", b, all, err)
			}
			if tried++; fell {
				broke++
			}
		}
	}
	t.Logf("%d requests; the conns of %d of %d runs have failed", all, broke, tried)
	if broke < tried/2 {
		t.Errorf("the conns of %d of %d runs have failed, want more than half", broke, tried)
	}
}

// TestStalledQP: if the requests of a QP neither complete nor fail, its link goes on over other transports.
func TestStalledQP(t *testing.T) {
	needFake(t)
	const stallReason = "work requests has completed in 200ms"
	var w worldTransports
	w.stall = 200 * time.Millisecond
	defer fake.Stall(false)
	testBreaksOfWorld(t, &w, func(round int) {
		if round == 3 {
			fake.Stall(true)
		}
	}, w.wantOthers)
	w.checkReasons(t, stallReason)
}

// TestPortDown: when the port of a device goes down, its conns end for that reason. Other ports do not matter.
func TestPortDown(t *testing.T) {
	needFake(t)
	a, b := connect(t, newBreakable(t, 2))
	fake.PortDown(2)
	if err := stream(t.Context(), a, b, 5, func(int) {}); err != nil {
		t.Error(err)
	}
	if a.Err() != nil || b.Err() != nil {
		t.Errorf("conns %v and %v although the port is active", a.Err(), b.Err())
	}
	fake.PortDown(1)
	wantFailed(t, a, "port 1 of device fake0 is down")
	wantFailed(t, b, "port 1 of device fake0 is down")
}

// TestDefaultStall: the default of Config.Stall leaves time for another connection before the peer counts as failed.
func TestDefaultStall(t *testing.T) {
	for _, test := range []struct{ configured, timeout, want time.Duration }{
		{0, 0, 2 * time.Second}, {0, 5 * time.Second, 1250 * time.Millisecond}, {0, 3 * time.Second, 750 * time.Millisecond},
		{0, time.Minute, 2 * time.Second}, {-1, 4 * time.Second, time.Second}, {time.Minute, 5 * time.Second, time.Minute},
	} {
		x, err := New(Config{Stall: test.configured}, transport.Env{PeerTimeout: test.timeout})
		if err != nil {
			t.Fatal(err)
		}
		if got := x.(*rdma).cfg.Stall; got != test.want {
			t.Errorf("Stall %v, timeout %v: %v, want %v", test.configured, test.timeout, got, test.want)
		}
		x.Close()
	}
}

// TestWorldBreaks breaks a connection at random requests of a world. No operation fails.
func TestWorldBreaks(t *testing.T) {
	needFake(t)
	rounds := 40
	if testing.Short() {
		rounds = 8
	}
	random := rand.New(rand.NewPCG(25, 1))
	var ways []verbsfake.Break
	for b := range breaks {
		ways = append(ways, b)
	}
	fell := uint64(0)
	defer fake.Break(verbsfake.Break{})
	for i := range rounds {
		var w worldTransports
		w.stall = time.Hour // The break must be noticed without it.
		b := ways[i%len(ways)]
		b.At = 1 + random.IntN(300)
		fake.Break(verbsfake.Break{})
		err := whileBreaking(func() error {
			testBreaksOfWorld(t, &w, func(round int) {
				if round == 1 {
					fake.Break(b)
				}
			}, func(context.Context, *nexar.Node) error { return nil })
			return nil
		})
		if fell += w.counters.Failures(); err != nil || t.Failed() {
			t.Fatalf("break %+v: %v", b, err)
		}
	}
	if fell == 0 {
		t.Error("no queue pair has failed")
	}
}

// testBreaksOfWorld lets two ranks reduce, broadcast and exchange messages, calls before at the begin of each round on rank 0, and after at
// the end on both.
func testBreaksOfWorld(t *testing.T, w *worldTransports, before func(round int), after func(context.Context, *nexar.Node) error) {
	inWorldWith(t, 2, reach, w.factory, func(ctx context.Context, node *nexar.Node) error {
		v, free, err := nexar.AllocRegistered[float64](60_000)
		if err != nil {
			return err
		}
		defer free()
		rank := node.World().Rank()
		for round := range 6 {
			if rank == 0 {
				before(round)
			}
			for i := range v {
				v[i] = float64((rank + 1) * (round + i%7))
			}
			if err := nexar.AllReduce(ctx, node.World(), v, nexar.Sum); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
			if err := nexar.Broadcast(ctx, node.World(), v, round%2); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
			short := []float64{1}
			if err := nexar.AllReduce(ctx, node.World(), short, nexar.Sum); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
			for i := range v {
				if want := float64(3 * (round + i%7)); v[i] != want || short[0] != 2 {
					return fmt.Errorf("round %d: element %d: sum %v, want %v; or short sum %v, want 2", round, i, v[i], want, short[0])
				}
			}
		}
		return after(ctx, node)
	})
}
