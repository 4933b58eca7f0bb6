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

// A polledConn has receivers that can be polled. A goroutine of each reads the receiver below.
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
	spurious int  // early returns of WaitReadable to come
	misused  bool // Read was called while polling was on
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
	return transport.Capabilities{Poller: p, CPULocator: p}
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
	p.mu.Lock()
	p.misused = p.misused || p.attended
	p.mu.Unlock()
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

func (p *polled) WaitReadable() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.err == nil && !p.early && p.spurious == 0 && (p.attended || len(p.b) == 0) {
		p.some.Wait()
	}
	p.spurious = max(0, p.spurious-1)
}

func (p *polled) SetPolling(attended bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.attended = attended
	p.some.Broadcast()
}

// PeerCPU makes it a transport.CPULocator.
func (p *polled) PeerCPU() int { return 7 }

func (p *polled) SetReadDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.early = !t.IsZero() && !t.After(time.Now())
	p.some.Broadcast()
	return nil
}

// A polledPair is a pair of links. b can be polled; its messages are sent to got.
type polledPair struct {
	a, b *Link
	hb   *handler
	got  chan []byte
	raw  transport.Conn // under a, if that is not a link
}

func newPolled(t *testing.T, bare bool) *polledPair {
	v := &polledPair{hb: newHandler(), got: make(chan []byte, 100)}
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

// startPolling polls both lanes, which may not be open yet.
func (v *polledPair) startPolling(t *testing.T) Polling {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); runtime.Gosched() {
		var p Polling
		v.b.StartPolling(&p)
		if p.acquireRest(); p.n == 2 {
			return p
		}
		p.Stop(false)
	}
	t.Fatal("no lane can be polled")
	return Polling{}
}

// TestNoReadWhilePolling: the goroutine of a lane that stays attended after polling calls no Read while polling is on, even if
// WaitReadable often returns early. Otherwise nothing might tell it of data.
func TestNoReadWhilePolling(t *testing.T) {
	v := newPolled(t, false)
	p := v.startPolling(t)
	p.Stop(false)
	r := v.b.attached.Load().laneReaders[wire.Data].Load()
	for !r.tryAcquire() {
		runtime.Gosched()
	}
	r.attend()
	r.release()
	below := r.poller.(*polled)
	below.mu.Lock()
	below.spurious = 3 * emptyReadsMax
	below.some.Broadcast()
	below.mu.Unlock()
	for polling := true; polling; runtime.Gosched() { // until the goroutine has given polling up, to block in Read
		below.mu.Lock()
		polling = below.attended && !below.misused
		below.mu.Unlock()
	}
	v.send(10)
	if got := <-v.got; len(got) != 10 {
		t.Errorf("received %d bytes, want 10", len(got))
	}
	below.mu.Lock()
	defer below.mu.Unlock()
	if below.misused {
		t.Error("Read was called while polling was on")
	}
}

// TestLocator: a link has the CPULocator of the receiver of its data lane.
func TestLocator(t *testing.T) {
	v := newPolled(t, false)
	p := v.startPolling(t)
	p.Stop(false)
	if l := v.b.Locator(); l == nil || l.PeerCPU() != 7 {
		t.Errorf("Locator() = %v, want that of the receiver, with 7", l)
	}
	if l := v.a.Locator(); l != nil {
		t.Errorf("over transport/mem Locator() = %v, want none", l)
	}
}

func (v *polledPair) send(n int) { v.a.SendMessage(wire.Message{}, make([]byte, n)) }

// hear calls poll until a message arrives.
func (v *polledPair) hear(t *testing.T, n int, poll func()) {
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
	t.Fatalf("a message of %d bytes does not arrive", n)
}

func nothing() {}

// TestPolling: frames that arrive during a polling are handled by it alone, and other frames by the
// link's own goroutines.
func TestPolling(t *testing.T) {
	v := newPolled(t, false)
	v.send(1)
	v.hear(t, 1, nothing)
	p := v.startPolling(t)
	var other Polling
	if v.b.StartPolling(&other) || other.n > 0 {
		t.Error("two pollings have the same lane")
	}
	other.Stop(false)
	for _, n := range []int{0, 5, readBuffer - 1, readBuffer, 3 * readBuffer, wire.PayloadMax} {
		v.send(n)
		v.hear(t, n, func() { p.Poll() })
	}
	v.send(7)
	time.Sleep(20 * time.Millisecond)
	if len(v.got) > 0 {
		t.Error("another goroutine has handled a message")
	}
	p.Pause()
	v.hear(t, 7, nothing)
	p.Stop(false)
	v.send(8)
	v.hear(t, 8, nothing)
}

// TestAfterPolling: a frame that arrives after a polling is handled in bounded time, also if another
// polling was expected.
func TestAfterPolling(t *testing.T) {
	v := newPolled(t, false)
	for i := range 50 {
		p := v.startPolling(t)
		p.Stop(i%3 > 0)
		if i%5 == 0 {
			v.b.Unattend()
		}
		v.send(i)
		v.hear(t, i, nothing)
	}
}

// TestTwoPollings: when a polling stops whose goroutine expects to poll again, another one takes its lanes, or ends their
// attendance if its goroutine sleeps.
func TestTwoPollings(t *testing.T) {
	v := newPolled(t, false)
	for range 20 {
		var other Polling
		p := v.startPolling(t)
		v.b.StartPolling(&other)
		p.Stop(true)
		other.Poll()
		if other.n != 2 {
			t.Errorf("the other polling has %d lanes, want both", other.n)
		}
		other.Stop(false)

		p, other = v.startPolling(t), Polling{}
		v.b.StartPolling(&other)
		other.Pause()
		p.Stop(true)
		for lane := range wire.Bulk {
			below := v.b.attached.Load().laneReaders[lane].Load().poller.(*polled)
			below.mu.Lock()
			if below.attended {
				t.Errorf("lane %d is attended while the only goroutine that waits for it sleeps", lane)
			}
			below.mu.Unlock()
		}
		other.Stop(false)
	}
}

// TestPollingFindsFault: a protocol error during a polling ends the link, and no lane can be
// polled afterwards.
func TestPollingFindsFault(t *testing.T) {
	v := newPolled(t, true)
	control, data := open(t, v.raw, wire.Control), open(t, v.raw, wire.Data)
	p := v.startPolling(t)
	defer p.Stop(false)
	data.Write([]byte{200})
	control.Write(nil)
	for len(v.hb.ends) == 0 {
		p.Poll()
		runtime.Gosched()
	}
	if err := v.hb.wait(t); !strings.Contains(err.Error(), "data lane: wire: unknown frame type 200") {
		t.Errorf("got %v", err)
	}
}

// TestEndDuringPolling: the link ends in each way during a polling. The handler is not called
// afterwards.
func TestEndDuringPolling(t *testing.T) {
	for name, end := range map[string]func(v *polledPair){
		"goodbye of the peer": func(v *polledPair) { v.a.Close(context.Background()) },
		"end of the peer":     func(v *polledPair) { v.a.Abort() },
		"goodbye":             func(v *polledPair) { v.b.Close(context.Background()) },
		"end":                 func(v *polledPair) { v.b.Abort() },
	} {
		t.Run(name, func(t *testing.T) {
			v := newPolled(t, false)
			p := v.startPolling(t)
			v.send(3)
			var ending sync.WaitGroup
			ending.Go(func() { end(v) })
			for over := time.Now().Add(100 * time.Millisecond); time.Now().Before(over); runtime.Gosched() {
				p.Poll()
			}
			p.Stop(true)
			soon(t, "the end", ending.Wait)
			v.b.Abort()
			var again Polling
			if v.b.StartPolling(&again) || again.n > 0 {
				t.Error("a link that has ended can be polled")
			}
			again.Stop(false)
			if n := v.hb.late.Load(); n > 0 {
				t.Errorf("%d calls of the handler after the end of the link", n)
			}
		})
	}
}

// TestRepliesGoWithTheData: grants and credit are sent over the second connection.
func TestRepliesGoWithTheData(t *testing.T) {
	x := newApart(t)
	granted := make(chan wire.OfferGrant, 2)
	x.ha.offerGrant = func(g wire.OfferGrant) { granted <- g }
	x.hb.offerGrant = x.ha.offerGrant
	x.start(1, 1)
	<-x.b.Settled()
	if !x.a.fast.Load() || !x.b.fast.Load() || x.a.replies() != &x.a.exchange().data {
		t.Error("replies are sent on the control lane")
	}
	x.a.GrantOffer(wire.OfferGrant{ID: 1})
	x.b.GrantOffer(wire.OfferGrant{ID: 2})
	for range 2 {
		select {
		case <-granted:
		case <-time.After(time.Minute):
			t.Fatal("a grant was lost")
		}
	}
}

// TestEndDuringBulkPolling: a link ends during a polling of its bulk lane without open grants.
func TestEndDuringBulkPolling(t *testing.T) {
	for name, end := range map[string]func(v *polledPair){
		"goodbye of the peer": func(v *polledPair) { v.a.Close(context.Background()) },
		"end of the peer":     func(v *polledPair) { v.a.Abort(); v.b.awaitEnd() },
		"goodbye":             func(v *polledPair) { v.b.Close(context.Background()) },
		"end":                 func(v *polledPair) { v.b.Abort() },
	} {
		t.Run(name, func(t *testing.T) {
			v := newPolled(t, false)
			p := v.startPolling(t)
			for i, x := 0, send(v.a, v.b, 1000, 0); p.bulk == 0 || !x.filled.told(); runtime.Gosched() {
				if p.Poll(); p.bulk == 0 && x.filled.told() {
					i++
					x = send(v.a, v.b, 1000, i)
				}
			}
			over := make(chan struct{})
			go func() { defer close(over); end(v) }()
			for late := time.After(time.Minute); ; runtime.Gosched() {
				p.Poll()
				select {
				case <-over:
					p.Stop(true)
					return
				case <-late:
					p.Stop(true)
					<-over
					t.Fatal("the link has not ended during the polling")
				default:
				}
			}
		})
	}
}
