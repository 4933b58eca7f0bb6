package link

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A polledConn has receivers that can be visited. A goroutine of each takes
// what comes from the receiver below.
type polledConn struct {
	transport.Conn
	pumps *sync.WaitGroup
}

func (c polledConn) AcceptPipe(ctx context.Context) (transport.Receiver, error) {
	r, err := c.Conn.AcceptPipe(ctx)
	if err != nil {
		return nil, err
	}
	p := &polled{Receiver: r}
	p.some.L = &p.mu
	c.pumps.Go(p.pump)
	return p, nil
}

// A polled is a transport.Poller over any Receiver.
type polled struct {
	transport.Receiver
	mu       sync.Mutex
	some     sync.Cond
	b        []byte
	err      error
	attended bool
	early    bool // a deadline has passed
}

func (p *polled) pump() {
	var b [100]byte
	for {
		n, err := p.Receiver.Read(b[:])
		p.mu.Lock()
		p.b, p.err = append(p.b, b[:n]...), err
		p.some.Broadcast()
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (p *polled) Capabilities() transport.Capabilities {
	return transport.Capabilities{Poller: p, Locator: p}
}

func (p *polled) TryRead(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := copy(b, p.b)
	if p.b = p.b[n:]; n > 0 {
		return n, nil
	}
	return 0, p.err
}

func (p *polled) TryReadFunc(n int, view func(b []byte)) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.b) == 0 {
		return 0, p.err
	}
	n = min(n, len(p.b))
	view(p.b[:n])
	p.b = p.b[n:]
	return n, nil
}

func (p *polled) Read(b []byte) (int, error) {
	for {
		if n, err := p.TryRead(b); n > 0 || err != nil {
			return n, err
		}
		p.mu.Lock()
		for len(p.b) == 0 && p.err == nil {
			p.some.Wait()
		}
		p.mu.Unlock()
	}
}

func (p *polled) ReadFunc(n int, view func(b []byte)) (got int, err error) {
	for got < n {
		var b [1000]byte
		m, err := p.Read(b[:min(len(b), n-got)])
		if err != nil {
			return got, err
		}
		view(b[:m])
		got += m
	}
	return got, nil
}

func (p *polled) Await() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.err == nil && !p.early && (p.attended || len(p.b) == 0) {
		p.some.Wait()
	}
}

func (p *polled) Attend(attended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.attended = attended
	p.some.Broadcast()
}

// Processor makes it a transport.Locator.
func (p *polled) Processor() int { return 7 }

func (p *polled) SetReadDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.early = !t.IsZero() && !t.After(time.Now())
	p.some.Broadcast()
	return nil
}

// A visited is a pair of links, of which b can be visited. It hands the
// messages that b gets on.
type visited struct {
	a, b *Link
	hb   *handler
	got  chan []byte
	raw  transport.Conn // under a, if that is not a link
}

func newVisited(t *testing.T, bare bool) *visited {
	v := &visited{hb: newHandler(), got: make(chan []byte, 100)}
	ca, cb := conns(t)
	var pumps sync.WaitGroup
	t.Cleanup(pumps.Wait)
	v.hb.message = func(_ wire.Message, p []byte) { v.got <- append([]byte{}, p...) }
	v.b = start(t, polledConn{cb, &pumps}, v.hb)
	if v.raw = ca; !bare {
		v.a = start(t, ca, newHandler())
	}
	return v
}

// visit begins a visit at both lanes, which may still have to come.
func (v *visited) visit(t *testing.T) Visit {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); runtime.Gosched() {
		var visit Visit
		v.b.Visit(&visit)
		if visit.n == 2 {
			return visit
		}
		visit.End(false)
	}
	t.Fatal("nothing can be visited")
	return Visit{}
}

// TestProcessor: a link asks the receiver of its data lane, if that can tell.
func TestProcessor(t *testing.T) {
	v := newVisited(t, false)
	visit := v.visit(t)
	visit.End(false)
	if got := v.b.Processor(); got != 7 || !v.b.Locates() {
		t.Errorf("the peer runs on processor %d, want 7", got)
	}
	if got := v.a.Processor(); got != -1 || v.a.Locates() {
		t.Errorf("over memory the peer runs on processor %d, want -1", got)
	}
}

func (v *visited) send(n int) { v.a.SendMessage(wire.Message{}, make([]byte, n)) }

// hear waits for a message, and calls poll meanwhile.
func (v *visited) hear(t *testing.T, n int, poll func()) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); runtime.Gosched() {
		poll()
		select {
		case p := <-v.got:
			if len(p) != n {
				t.Errorf("a message of %d bytes, want %d", len(p), n)
			}
			return
		default:
		}
	}
	t.Fatalf("a message of %d bytes does not come", n)
}

func nothing() {}

// TestVisit: what comes during a visit is handled by the visitor alone, and
// otherwise by the link itself.
func TestVisit(t *testing.T) {
	v := newVisited(t, false)
	v.send(1)
	v.hear(t, 1, nothing)
	visit := v.visit(t)
	var other Visit
	if v.b.Visit(&other); other.Busy() {
		t.Error("two visit the same lane")
	} else {
		other.End(false)
	}
	for _, n := range []int{0, 5, readBuffer - 1, readBuffer, 3 * readBuffer, wire.PayloadMax} {
		v.send(n)
		v.hear(t, n, func() { visit.Poll() })
	}
	v.send(7)
	time.Sleep(20 * time.Millisecond)
	if len(v.got) > 0 {
		t.Error("a message was handled beside the visitor")
	}
	visit.Rest()
	v.hear(t, 7, nothing)
	visit.End(false)
	v.send(8)
	v.hear(t, 8, nothing)
}

// TestAfterVisit: whatever comes after a visit is handled before long, also if
// another visit was to be expected.
func TestAfterVisit(t *testing.T) {
	v := newVisited(t, false)
	for i := range 50 {
		visit := v.visit(t)
		visit.End(i%3 > 0)
		if i%5 == 0 {
			v.b.Wake()
		}
		v.send(i)
		v.hear(t, i, nothing)
	}
}

// TestVisitFindsFault: what a visitor gets that is against the protocol ends the
// link as if it had not been there, and no lane can be visited any more.
func TestVisitFindsFault(t *testing.T) {
	v := newVisited(t, true)
	control, data := open(t, v.raw, wire.Control), open(t, v.raw, wire.Data)
	visit := v.visit(t)
	defer visit.End(false)
	data.Write([]byte{200})
	control.Write(nil)
	for len(v.hb.ends) == 0 {
		visit.Poll()
		runtime.Gosched()
	}
	if err := v.hb.wait(t); !strings.Contains(err.Error(), "data lane: wire: unknown frame type 200") {
		t.Errorf("got %v", err)
	}
}

// TestEndDuringVisit: the link ends, in whatever way, while somebody visits it,
// and the handler is told nothing afterwards.
func TestEndDuringVisit(t *testing.T) {
	for name, end := range map[string]func(v *visited){
		"goodbye of the peer": func(v *visited) { v.a.Close(context.Background()) },
		"end of the peer":     func(v *visited) { v.a.Abort() },
		"goodbye":             func(v *visited) { v.b.Close(context.Background()) },
		"end":                 func(v *visited) { v.b.Abort() },
	} {
		t.Run(name, func(t *testing.T) {
			v := newVisited(t, false)
			visit := v.visit(t)
			v.send(3)
			var ending sync.WaitGroup
			ending.Go(func() { end(v) })
			for over := time.Now().Add(100 * time.Millisecond); time.Now().Before(over); runtime.Gosched() {
				visit.Poll()
			}
			visit.End(true)
			soon(t, "the end", ending.Wait)
			v.b.Abort()
			var again Visit
			if v.b.Visit(&again); again.Busy() {
				t.Error("a link that has ended can be visited")
			} else {
				again.End(false)
			}
			if n := v.hb.late.Load(); n > 0 {
				t.Errorf("%d calls of the handler after the end of the link", n)
			}
		})
	}
}

// TestRepliesGoWithTheData: grants and credit take the second connection.
func TestRepliesGoWithTheData(t *testing.T) {
	x := newApart(t)
	granted := make(chan wire.OfferGrant, 2)
	x.ha.offerGrant = func(g wire.OfferGrant) { granted <- g }
	x.hb.offerGrant = x.ha.offerGrant
	x.start(1, 1)
	<-x.b.Settled()
	if !x.a.fast.Load() || !x.b.fast.Load() || x.a.replies() != &x.a.data {
		t.Error("replies take the lane of control")
	}
	x.a.GrantOffer(wire.OfferGrant{ID: 1})
	x.b.GrantOffer(wire.OfferGrant{ID: 2})
	for range 2 {
		select {
		case <-granted:
		case <-time.After(time.Minute):
			t.Fatal("a grant gets lost")
		}
	}
}

// TestEndDuringVisitOfTheBulkLane: a link ends though somebody visits its bulk
// lane, on which nothing is granted any more, for as long as it takes.
func TestEndDuringVisitOfTheBulkLane(t *testing.T) {
	for name, end := range map[string]func(v *visited){
		"goodbye of the peer": func(v *visited) { v.a.Close(context.Background()) },
		"end of the peer":     func(v *visited) { v.a.Abort(); <-v.b.ended },
		"goodbye":             func(v *visited) { v.b.Close(context.Background()) },
		"end":                 func(v *visited) { v.b.Abort() },
	} {
		t.Run(name, func(t *testing.T) {
			v := newVisited(t, false)
			visit := v.visit(t)
			for i, x := 0, send(v.a, v.b, 1000, 0); visit.bulk == 0 || !x.filled.told(); runtime.Gosched() {
				if visit.Poll(); visit.bulk == 0 && x.filled.told() {
					i++
					x = send(v.a, v.b, 1000, i)
				}
			}
			over := make(chan struct{})
			go func() { defer close(over); end(v) }()
			for late := time.After(time.Minute); ; runtime.Gosched() {
				visit.Poll()
				select {
				case <-over:
					visit.End(true)
					return
				case <-late:
					visit.End(true)
					<-over
					t.Fatal("the link has not ended as long as it was visited")
				default:
				}
			}
		})
	}
}
