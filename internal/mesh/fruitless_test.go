package mesh

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// A narrow transport delivers nothing of a pipe from its first long write on, as long as lost is set. Its conns then end as stalled ones do. Its dials get no answer as
// long as silent is set.
type narrow struct {
	transport.Transport
	lost, silent *atomic.Bool
}

func (n narrow) Dial(ctx context.Context, addr, peer string) (transport.Conn, error) {
	if n.silent.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	c, err := n.Transport.Dial(ctx, addr, peer)
	if err != nil {
		return nil, err
	}
	return narrowConn{c, n.lost}, nil
}

func (n narrow) Accept(ctx context.Context) (transport.Conn, error) {
	c, err := n.Transport.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return narrowConn{c, n.lost}, nil
}

type narrowConn struct {
	transport.Conn
	lost *atomic.Bool
}

func (c narrowConn) OpenPipe(ctx context.Context) (transport.Sender, error) {
	s, err := c.Conn.OpenPipe(ctx)
	return &narrowSender{Sender: s, conn: c}, err
}

type narrowSender struct {
	transport.Sender
	conn    narrowConn
	stalled bool
}

func (s *narrowSender) Write(p []byte) (int, error) {
	if !s.stalled && (len(p) < 1000 || !s.conn.lost.Load()) {
		return s.Sender.Write(p)
	}
	if !s.stalled {
		s.stalled = true
		time.AfterFunc(time.Second, func() { s.conn.Close() })
	}
	return len(p), nil
}

// withNarrow calls f with a world of two nodes with the paths far, and bulk if hasBulk is set. lost and silent make each of them narrow.
func withNarrow(t *testing.T, hasBulk bool, f func(w *multipath, far, bulk *narrow)) {
	t.Helper()
	withSlowNarrow(t, 0, hasBulk, f)
}

// withSlowNarrow is withNarrow with a rank 0 whose handshakes take longer.
func withSlowNarrow(t *testing.T, slow time.Duration, hasBulk bool, f func(w *multipath, far, bulk *narrow)) {
	t.Helper()
	withPaths(t, []int{0, 1}, func(w *multipath) {
		far, bulk := &narrow{lost: new(atomic.Bool), silent: new(atomic.Bool)}, &narrow{lost: new(atomic.Bool), silent: new(atomic.Bool)}
		var made [2][]Path
		for rank := range made {
			paths := w.pathsOf(rank)[1:]
			paths[0].Transport = narrow{paths[0].Transport, far.lost, far.silent}
			paths[1].Transport = narrow{paths[1].Transport, bulk.lost, bulk.silent}
			paths[1].Whole = true
			if rank == 0 {
				handshake := new(atomic.Int64)
				handshake.Store(int64(slow))
				for i := range paths {
					paths[i].Transport = starvedTransport{paths[i].Transport, handshake}
				}
			}
			if !hasBulk {
				paths = paths[:1]
			}
			made[rank] = paths
		}
		w.paths = func(rank int) []Path { return made[rank] }
		w.world.form()
		f(w, far, bulk)
	})
}

// send sends a long message from rank 0 to rank 1, and returns the time and the errors of both.
func (w *multipath) send(bytes int) (took time.Duration, errs [2]error) {
	start, received := time.Now(), make(chan error, 1)
	go func() {
		_, err := recvOn(w.Context(), w.comms[1], make([]byte, bytes), 1, 0, 7)
		received <- err
	}()
	errs[0] = sendOn(w.Context(), w.comms[0], make([]byte, bytes), 1, 1, 7)
	errs[1] = <-received
	return time.Since(start), errs
}

// TestNarrowBulk: the path for bulk drops long packets. After three connections that stall the link uses the other one for all lanes, whichever node
// dials, and no operation ends.
func TestNarrowBulk(t *testing.T) {
	for name, bytes := range map[string]int{"granted": 200_000, "at once": 20_000} {
		t.Run(name, func(t *testing.T) {
			withNarrow(t, true, func(w *multipath, _, bulk *narrow) {
				w.wantPath(0, 1, "far", "bulk", true, "")
				bulk.lost.Store(true)
				took, errs := w.send(bytes)
				if errs[0] != nil || errs[1] != nil || took > 4*time.Second {
					t.Errorf("after %v: %v, want the message after three stalls of a second", took, errs)
				}
				w.wantPath(0, 1, "far", "far", true, "")
				w.wantWhole()
			})
		})
	}
}

// TestNarrowBulkOfASlowNode is TestNarrowBulk with a sender that takes longer to dial than the other node, which therefore proposes its connections
// first, with one for bulk.
func TestNarrowBulkOfASlowNode(t *testing.T) {
	for _, takes := range []time.Duration{0, 20 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond} {
		withSlowNarrow(t, takes, true, func(w *multipath, _, bulk *narrow) {
			bulk.lost.Store(true)
			took, errs := w.send(200_000)
			n := w.linkOf(0, 1).Connections()
			if errs[0] != nil || errs[1] != nil || took > 4*time.Second+5*takes || n > 6 {
				t.Errorf("dials take %v: after %v and %d connections: %v, want the message after three stalls of a second", takes, took, n, errs)
			}
			w.wantWhole()
		})
	}
}

// TestNarrowOnly: the only path drops long packets. The link ends, and the error tells what to compare.
func TestNarrowOnly(t *testing.T) {
	withNarrow(t, false, func(w *multipath, far, _ *narrow) {
		far.lost.Store(true)
		took, errs := w.send(200_000)
		if errs[0] == nil || errs[1] == nil {
			t.Fatalf("the message has arrived: %v", errs)
		}
		for _, text := range []string{"connections in a row, the last one over far to ", "have delivered none of 200000 bytes", "compare the MTU"} {
			if !strings.Contains(errs[0].Error(), text) {
				t.Errorf("%v, want %q", errs[0], text)
			}
		}
		if took < timeout {
			t.Errorf("the link has ended after %v, want at least %v", took, timeout)
		}
	})
}

// TestNarrowForAWhile: the only path drops long packets for less than the timeout, and the message arrives.
func TestNarrowForAWhile(t *testing.T) {
	withNarrow(t, false, func(w *multipath, far, _ *narrow) {
		far.lost.Store(true)
		time.AfterFunc(timeout-time.Second, func() { far.lost.Store(false) })
		if took, errs := w.send(200_000); errs[0] != nil || errs[1] != nil {
			t.Errorf("after %v: %v", took, errs)
		}
		w.wantWhole()
	})
}

// TestBulkIsTheLastResort: the path of the control lane dies. The path for bulk carries all lanes.
func TestBulkIsTheLastResort(t *testing.T) {
	withNarrow(t, true, func(w *multipath, far, _ *narrow) {
		time.Sleep(interval / 3) // between two heartbeats
		far.silent.Store(true)
		w.cut(0, 1)
		time.Sleep(timeout)
		w.wantPath(0, 1, "bulk", "bulk", true, "")
		w.wantWhole()
	})
}

// A lateTransport accepts its connections late.
type lateTransport struct{ transport.Transport }

func (l lateTransport) Accept(ctx context.Context) (transport.Conn, error) {
	c, err := l.Transport.Accept(ctx)
	time.Sleep(acceptingCheck / 2)
	return c, err
}

// TestBulkIsAcceptedFirst: a link breaks, and a node accepts the next connection for bulk before that for the other lanes. The link uses both.
func TestBulkIsAcceptedFirst(t *testing.T) {
	withPaths(t, []int{0, 1}, func(w *multipath) {
		var made [2][]Path
		for rank := range made {
			made[rank] = w.pathsOf(rank)[1:]
			made[rank][0].Transport = lateTransport{made[rank][0].Transport}
			made[rank][1].Whole = true
		}
		w.paths = func(rank int) []Path { return made[rank] }
		w.world.form()
		time.Sleep(time.Second)
		w.cut(0, 1)
		time.Sleep(timeout)
		w.wantPath(0, 1, "far", "bulk", true, "")
		w.wantPath(1, 0, "far", "bulk", true, "")
		if n := w.linkOf(0, 1).Connections(); n != 2 {
			t.Errorf("the link has had %d connections, want 2", n)
		}
		w.wantWhole()
	})
}

// TestFailures: the path and the address that have failed last are tried last.
func TestFailures(t *testing.T) {
	p, q := &Path{Transport: namedTransport{}}, &Path{Transport: namedTransport{}}
	var x peer
	fail := func(p *Path, addr string) {
		x.noteFailure(&route{path: p, conn: addrConn{addr: addr}}, transport.ErrPeerGone)
	}
	check := func(want ...int) {
		t.Helper()
		if got := []int{x.failures(p, "a:1", "b:1"), x.failures(p, "a:2"), x.failures(p, "b"), x.failures(q, "a:1")}; !slices.Equal(got, want) {
			t.Errorf("the order is %v, want %v", got, want)
		}
	}
	check(0, 0, 0, 0)
	fail(p, "a:1")
	check(1, 1, 0, 0)
	fail(q, "a:7")
	check(1, 1, 0, 2)
	fail(p, "b:1")
	check(3, 1, 3, 2)
	fail(p, "a:3")
	check(3, 3, 2, 1)
}

// An addrConn has an address.
type addrConn struct {
	transport.Conn
	addr string
}

func (c addrConn) RemoteAddr() string { return c.addr }

// A namedTransport has a name only.
type namedTransport struct {
	transport.Transport
	name string
}

func (t namedTransport) Name() string { return t.name }

// lateContext is a context that has not noticed its deadline yet.
type lateContext struct{ context.Context }

func (lateContext) Deadline() (time.Time, bool) { return time.Now(), true }

// TestLateRefusal: a dial that ends at its deadline is no refusal, whatever its error.
func TestLateRefusal(t *testing.T) {
	inBubble(t, 2, func(w *world) {
		var failing atomic.Pointer[net.OpError]
		w.paths = func(rank int) []Path {
			return []Path{{Transport: failingTransport{w.transports[rank], &failing, false}}}
		}
		w.form()
		failing.Store(&net.OpError{Op: "dial", Err: transport.ErrPeerGone})
		m, n := w.meshes[0], &w.view.Nodes[1]
		if m.dialer.refusal(t.Context(), n) == nil || m.dialer.refusal(lateContext{t.Context()}, n) != nil {
			t.Error("a refusal counts at the deadline, or not before it")
		}
	})
}

// TestReasonOfRoute: the reason for a route is the last failure of another path, also if a connection over its own path has failed since.
func TestReasonOfRoute(t *testing.T) {
	near, far, bulk := &Path{Transport: namedTransport{name: "near"}}, &Path{Transport: namedTransport{name: "far"}}, &Path{Transport: namedTransport{name: "bulk"}}
	var x peer
	for _, p := range []*Path{near, far, bulk} {
		x.noteFailure(&route{path: p, conn: addrConn{addr: "10.0.0.1:1"}}, transport.ErrPeerGone)
	}
	r := &route{path: far, bulk: bulk, why: "first choice"}
	if x.explain(r); !strings.Contains(r.why, "near: ") {
		t.Errorf("the reason is %q, want the failure of the path near", r.why)
	}
}
