package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/deadline"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/mem"
	"github.com/nexar-go/nexar/transport/sim"
)

// An apart is a link over two connections. Side a has made the second connection, and side b
// awaits it. startA and startB start the sides.
type apart struct {
	testing.TB
	ha, hb         *handler
	first, second  *mem.Network
	ca, cb, ba, bb transport.Conn
	a, b           *Link
	come           chan transport.Conn // for b
}

func newApart(t testing.TB) *apart {
	x := &apart{
		TB: t, ha: newHandler(), hb: newHandler(), first: mem.NewNetwork(), second: mem.NewNetwork(),
		come: make(chan transport.Conn, 1),
	}
	x.ca, x.cb = connsOf(t, x.first)
	x.ba, x.bb = connsOf(t, x.second)
	return x
}

func (x *apart) startA(pipes int) {
	x.Helper()
	x.a = startWith(x, x.ca, x.ha, Config{Bulk: x.ba, BulkPipes: pipes, BulkOver: "test"})
}

func (x *apart) startB(pipes int) {
	x.Helper()
	x.b = startWith(x, x.cb, x.hb, Config{Await: x.await, BulkPipes: pipes, BulkOver: "test"})
}

func (x *apart) await(ctx context.Context) (transport.Conn, error) {
	select {
	case c := <-x.come:
		return c, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// start starts both sides and passes the second connection to b.
func (x *apart) start(pipesA, pipesB int) *apart {
	x.Helper()
	x.come <- x.bb
	x.startA(pipesA)
	x.startB(pipesB)
	return x
}

// transferBothWays runs transfers of several workers, half of them in each direction, until
// they have arrived or were withdrawn.
func (x *apart) transferBothWays(t *testing.T, workers int) {
	t.Helper()
	var all sync.WaitGroup
	for worker := range workers {
		from, to := x.a, x.b
		if worker%2 != 0 {
			from, to = to, from
		}
		all.Go(func() { transfers(t, from, to, worker, to.Grant) })
	}
	soon(t, "a transfer", all.Wait)
	x.ha.quiet(t)
	x.hb.quiet(t)
}

func startWith(t testing.TB, c transport.Conn, h Handler, cfg Config) *Link {
	t.Helper()
	l, err := newLink(t.Context(), c, h, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Abort)
	return l
}

// A load is a transfer and its sink.
type load struct {
	data              []byte
	dst               place
	filled, delivered signal
}

// send grants and delivers n bytes.
func send(from, to *Link, n, pattern int) *load {
	x := &load{data: filler(n, pattern), dst: newPlace(n), filled: make(signal), delivered: make(signal)}
	from.Deliver(&Transfer{Grant: to.Grant(&Sink{Dst: x.dst.mem, Owner: x.filled}), Data: x.data, Owner: x.delivered})
	from.Push()
	return x
}

// wait waits until the payload has arrived, and checks it.
func (x *load) wait(t testing.TB) {
	t.Helper()
	x.filled.wait(t, "a sink")
	x.delivered.wait(t, "a transfer")
	if x.dst.check(t); !bytes.Equal(x.dst.mem, x.data) {
		t.Errorf("the payload of a transfer of %d bytes differs", len(x.data))
	}
}

// A meter counts the bytes that the senders of a conn have written.
type meter struct {
	transport.Conn
	n *atomic.Int64
}

func (m meter) OpenPipe(ctx context.Context) (transport.Sender, error) {
	s, err := m.Conn.OpenPipe(ctx)
	return metered{s, m.n}, err
}

type metered struct {
	transport.Sender
	n *atomic.Int64
}

func (m metered) Write(p []byte) (int, error) {
	n, err := m.Sender.Write(p)
	m.n.Add(int64(n))
	return n, err
}

// TestBulkApart: payloads of both directions arrive over the second connection alone, for all
// numbers of pipes.
func TestBulkApart(t *testing.T) {
	for _, pipes := range [][2]int{{0, 0}, {1, 1}, {2, 1}, {3, 8}, {8, 2}} {
		t.Run(fmt.Sprint(pipes), func(t *testing.T) {
			x := newApart(t)
			var first, second atomic.Int64
			x.ca, x.cb = meter{x.ca, &first}, meter{x.cb, &first}
			x.ba, x.bb = meter{x.ba, &second}, meter{x.bb, &second}
			x.start(pipes[0], pipes[1])
			var loads []*load
			total := 0
			for i, n := range []int{0, 1, 1000, wire.SegmentMax, wire.SegmentMax + 1, 2*wire.SegmentMax + 3, 70_000, 5} {
				loads = append(loads, send(x.a, x.b, n, i), send(x.b, x.a, n, i+100))
				total += 2 * n
			}
			for _, l := range loads {
				l.wait(t)
			}
			if n := first.Load(); n > 1000 {
				t.Errorf("%d bytes were sent over the first connection", n)
			}
			if n := second.Load(); n < int64(total) {
				t.Errorf("%d of %d bytes were sent over the second connection", n, total)
			}
			select {
			case <-x.b.Settled():
			default:
				t.Error("the bulk lane sends before it has pipes")
			}
		})
	}
}

// TestBulkStaysOnTheFirst: without a second connection of the peer the first one carries all lanes,
// with and without Config.Await.
func TestBulkStaysOnTheFirst(t *testing.T) {
	x := newApart(t)
	x.a = startWith(t, x.ca, x.ha, Config{BulkPipes: 4})
	x.startB(4)
	for i := range 4 {
		send(x.a, x.b, 100_000, i).wait(t)
		send(x.b, x.a, 100_000, i).wait(t)
	}
	if x.come <- x.bb; len(x.come) != 1 {
		t.Error("Await was called without an announcement")
	}
}

// TestBulkArrivesInAnyOrder: the second connection, its announcement, transfers of both sides and the
// end arrive in every order.
func TestBulkArrivesInAnyOrder(t *testing.T) {
	steps := []string{"conn", "a", "b", "from a", "from b"}
	for _, order := range permutations(len(steps)) {
		x := newApart(t)
		var loads []*load
		var late []string
		do := func(step string) {
			switch {
			case step == "conn":
				x.come <- x.bb
			case step == "a":
				x.startA(2)
			case step == "b":
				x.startB(2)
			case x.a == nil || x.b == nil:
				late = append(late, step) // There is no link to send on, or no grant.
			case step == "from a":
				loads = append(loads, send(x.a, x.b, 10_000, 1))
			default:
				loads = append(loads, send(x.b, x.a, 10_000, 2))
			}
		}
		for _, i := range order {
			do(steps[i])
		}
		for _, step := range late {
			do(step)
		}
		for _, l := range loads {
			l.wait(t)
		}
		closed := make(signal)
		go func() { defer close(closed); x.b.Close(within(t, 10*time.Second)) }()
		closed.wait(t, "Close")
		if err := x.ha.wait(t); err != errLeft {
			t.Errorf("%v: got %v, want %v", order, err, errLeft)
		}
		x.a.Abort()
	}
}

func permutations(n int) (all [][]int) {
	if n == 0 {
		return [][]int{nil}
	}
	for _, p := range permutations(n - 1) {
		for at := range n {
			q := append(append(append([]int(nil), p[:at]...), n-1), p[at:]...)
			all = append(all, q)
		}
	}
	return all
}

// TestBulkDoesNotArrive: a link ends on both sides if the second connection does not arrive within
// deadline.Handshake.
func TestBulkDoesNotArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newApart(t)
		x.startA(1)
		x.startB(1)
		tr := &Transfer{Grant: x.a.Grant(&Sink{Dst: make([]byte, 10), Owner: ignore{}}), Data: make([]byte, 10), Owner: ignore{}}
		x.b.Deliver(tr)
		var err error
		if d := took(func() { err = <-x.hb.ends }); d != deadline.Handshake {
			t.Errorf("after %v, want %v", d, deadline.Handshake)
		}
		if err == nil || !strings.Contains(err.Error(), "bulk over test") || !strings.Contains(err.Error(), fmt.Sprint("not within ", deadline.Handshake)) {
			t.Errorf("b: got %v", err)
		}
		if err := x.ha.wait(t); !errors.Is(err, transport.ErrPeerClosed) {
			t.Errorf("a: got %v, want %v", err, transport.ErrPeerClosed)
		}
		x.b.Recall(tr)
		x.a.Abort()
		x.b.Abort()
		<-x.ba.Done()
	})
}

// TestBulkCannotArrive: the error of Await is the reason of the end.
func TestBulkCannotArrive(t *testing.T) {
	boom := errors.New("boom")
	x := newApart(t)
	x.startA(1)
	x.b = startWith(t, x.cb, x.hb, Config{Await: func(context.Context) (transport.Conn, error) { return nil, boom }})
	if err := x.hb.wait(t); !errors.Is(err, boom) {
		t.Errorf("got %v, want %v", err, boom)
	}
}

// TestUnexpectedSecondConnection: without Await an announcement is a protocol error.
func TestUnexpectedSecondConnection(t *testing.T) {
	x := newApart(t)
	x.startA(1)
	x.b = start(t, x.cb, x.hb)
	if err := x.hb.wait(t); !strings.Contains(err.Error(), "protocol error") || !strings.Contains(err.Error(), "does not await") {
		t.Errorf("got %v, want a protocol error", err)
	}
}

// TestAbortWhileBulkIsAwaited aborts before the second connection arrives, and when it does.
func TestAbortWhileBulkIsAwaited(t *testing.T) {
	for _, comes := range []bool{false, true} {
		x := newApart(t)
		x.startA(1)
		x.startB(1)
		tr := &Transfer{Grant: x.a.Grant(&Sink{Dst: make([]byte, 10), Owner: ignore{}}), Data: make([]byte, 10), Owner: ignore{}}
		x.b.Deliver(tr)
		if comes {
			go func() { x.come <- x.bb }()
		}
		soon(t, "Abort", x.b.Abort)
		soon(t, "Recall", func() { x.b.Recall(tr) })
		x.hb.quiet(t)
	}
}

// TestEitherConnectionEndsTheLink: the end of one connection ends the other one, and the error names
// the connection and the reason.
func TestEitherConnectionEndsTheLink(t *testing.T) {
	boom := errors.New("boom")
	for name, test := range map[string]struct {
		end  func(x *apart)
		want error
		bulk bool
	}{
		"the peer closes bulk":      {func(x *apart) { x.bb.Close() }, transport.ErrPeerClosed, true},
		"the peer closes the first": {func(x *apart) { x.cb.Close() }, transport.ErrPeerClosed, false},
		"bulk is gone":              {func(x *apart) { x.second.Kill("1") }, transport.ErrPeerGone, true},
		"the first is gone":         {func(x *apart) { x.first.Kill("1") }, transport.ErrPeerGone, false},
		"Fail":                      {func(x *apart) { x.a.Fail(boom) }, boom, false},
	} {
		t.Run(name, func(t *testing.T) {
			x := newApart(t)
			x.startA(2)
			tr := &Transfer{Grant: 1, Data: make([]byte, 8<<20), Owner: ignore{}}
			x.a.Deliver(tr)
			test.end(x)
			err := x.ha.wait(t)
			if !errors.Is(err, test.want) || strings.Contains(err.Error(), "bulk over test") != test.bulk {
				t.Errorf("got %v, want %v; names the second connection: %v", err, test.want, test.bulk)
			}
			if x.a.Err() != err {
				t.Errorf("Err() = %v, Handler.Lost got %v", x.a.Err(), err)
			}
			soon(t, "Recall", func() { x.a.Recall(tr) })
			for _, c := range []transport.Conn{x.ca, x.cb, x.ba, x.bb} {
				soon(t, "Done", func() { <-c.Done() })
			}
			x.a.Abort()
			x.ha.quiet(t)
		})
	}
}

// TestBothSidesLearnOfTheEnd: the end of one of two connections ends both sides.
func TestBothSidesLearnOfTheEnd(t *testing.T) {
	x := newApart(t).start(2, 2)
	send(x.a, x.b, 1000, 1).wait(t)
	x.ba.Close()
	// a may see its own close first, or the close of b.
	if err := x.ha.wait(t); !errors.Is(err, transport.ErrClosed) && !errors.Is(err, transport.ErrPeerClosed) {
		t.Errorf("a: got %v, want %v", err, transport.ErrClosed)
	}
	if err := x.hb.wait(t); !errors.Is(err, transport.ErrPeerClosed) {
		t.Errorf("b: got %v, want %v", err, transport.ErrPeerClosed)
	}
	x.a.Abort()
	x.b.Abort()
	x.ha.quiet(t)
	x.hb.quiet(t)
}

// TestCloseApart: everything that was sent over any pipe arrives before Handler.Left, within a round
// trip.
func TestCloseApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ha, hb := newHandler(), newHandler()
		a, b := farBulk(t, ha, hb)
		loads := []*load{send(a, b, 3<<20, 1), send(a, b, 1000, 2), send(a, b, 2<<20, 3), send(b, a, 1<<20, 4)}
		a.Close(within(t, time.Minute))
		if err := hb.wait(t); err != errLeft {
			t.Fatalf("got %v, want %v", err, errLeft)
		}
		for _, l := range loads[:3] {
			l.wait(t)
		}
		b.Abort()
		ha.quiet(t)
		hb.quiet(t)
	})
	synctest.Test(t, func(t *testing.T) {
		ha, hb := newHandler(), newHandler()
		a, b := farBulk(t, ha, hb)
		time.Sleep(time.Second)
		var closing sync.WaitGroup
		closing.Go(func() { a.Close(within(t, time.Minute)) })
		closing.Go(func() { time.Sleep(time.Millisecond); b.Close(within(t, time.Minute)) })
		if d := took(closing.Wait).Truncate(time.Millisecond); d > 41*time.Millisecond {
			t.Errorf("it took %v, with a delay of 20 ms in each direction", d)
		}
	})
}

// farBulk is farApart with a second connection over a slower network, with three pipes in each
// direction.
func farBulk(t *testing.T, ha, hb *handler) (a, b *Link) {
	t.Helper()
	var ends [2][2]transport.Conn
	for i, rate := range []int64{0, 200 << 20} {
		network := sim.New(sim.Config{Delay: 20 * time.Millisecond, Rate: rate, Seed: 1, Loss: 0.02})
		t.Cleanup(func() { network.Close() })
		ta, err := network.Host("a").Listen(1)
		if err != nil {
			t.Fatal(err)
		}
		tb, err := network.Host("b").Listen(1)
		if err != nil {
			t.Fatal(err)
		}
		if ends[i][0], err = ta.Dial(t.Context(), "b:1", "b:1"); err != nil {
			t.Fatal(err)
		}
		if ends[i][1], err = tb.Accept(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	a = startWith(t, ends[0][0], ha, Config{Bulk: ends[1][0], BulkPipes: 3})
	b = startWith(t, ends[0][1], hb, Config{
		Await: func(context.Context) (transport.Conn, error) { return ends[1][1], nil }, BulkPipes: 3,
	})
	return a, b
}

// A lateConn calls a function when a pipe is opened.
type lateConn struct {
	transport.Conn
	onOpen func()
}

func (c *lateConn) OpenPipe(context.Context) (transport.Sender, error) {
	c.onOpen()
	return nil, transport.ErrClosed
}

// TestLateWriter: if the connections of a link end while a reader starts a writer, as it does when it opens the data lane on the second one, the
// link becomes pending only after the end of that writer. A later error of its pipe would take the pipe of the next connection from the lane.
func TestLateWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPendingPair(t)
		ca, cb := conns(t)
		sa, sb := conns(t)
		opening, open, written := make(chan struct{}), make(chan struct{}), make(chan struct{})
		second := &lateConn{Conn: sa, onOpen: func() {
			close(opening)
			<-open
			p.a.attached.Load().writers.Go(func() { <-written })
		}}
		go p.a.Accept(t.Context(), ca, Config{Await: func(context.Context) (transport.Conn, error) { return second, nil }}, admitAll)
		go p.b.Connect(t.Context(), cb, Config{Bulk: sb})
		<-opening
		cb.Close()
		synctest.Wait()
		close(open)
		synctest.Wait()
		if p.a.IsPending() {
			t.Error("the link is pending before the end of the writer")
		}
		close(written)
		synctest.Wait()
		if !p.a.IsPending() {
			t.Error("the link is not pending after the end of the writer")
		}
	})
}
