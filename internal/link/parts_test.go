package link

import (
	"context"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A partedConn has senders with a PartWriter, and receivers that can be polled.
type partedConn struct {
	polledConn
	room int
}

func (c partedConn) OpenPipe(ctx context.Context) (transport.Sender, error) {
	s, err := c.polledConn.OpenPipe(ctx)
	if err != nil {
		return nil, err
	}
	p := &parted{Sender: s, room: c.room, rng: rand.New(rand.NewPCG(5, 6))}
	p.some.L = &p.mu
	c.pumps.Go(p.pump)
	return p, nil
}

func (p *parted) Capabilities() transport.Capabilities {
	return transport.Capabilities{PartWriter: p}
}

// A parted is a transport.PartWriter over any Sender. It buffers some bytes, which a goroutine
// writes.
type parted struct {
	transport.Sender
	room int

	mu   sync.Mutex
	some sync.Cond
	rng  *rand.Rand
	b    []byte
	err  error
	late bool
}

func (p *parted) pump() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.err == nil {
		if len(p.b) == 0 {
			p.some.Wait()
			continue
		}
		b := append([]byte{}, p.b...)
		p.mu.Unlock()
		_, err := p.Sender.Write(b)
		p.mu.Lock()
		p.b = p.b[len(b):]
		if err != nil {
			p.err = err
		}
		p.some.Broadcast()
	}
}

// take buffers a part of b and returns its length.
func (p *parted) take(b []byte) int {
	n := min(len(b), p.room-len(p.b))
	p.b = append(p.b, b[:n]...)
	p.some.Broadcast()
	return n
}

func (p *parted) TryWritePart(pieces [][]byte) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.late || p.err != nil {
		return 0
	}
	for _, b := range pieces {
		k := p.take(b[:min(len(b), 1+p.rng.IntN(1<<p.rng.IntN(20)))])
		if n += k; k < len(b) {
			break
		}
	}
	return n
}

func (p *parted) Write(b []byte) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n < len(b) {
		switch {
		case p.err != nil:
			return n, p.err
		case p.late:
			return n, os.ErrDeadlineExceeded
		}
		k := p.take(b[n:])
		if n += k; k == 0 {
			p.some.Wait()
		}
	}
	return n, nil
}

func (p *parted) SetWriteDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = !t.IsZero()
	p.some.Broadcast()
	return nil
}

func (p *parted) shut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = transport.ErrClosed
	p.some.Broadcast()
}

// newParted makes two links over partedConns. Until the end of the test pollings begin and end on
// both.
func newParted(t *testing.T, pipes int) *apart {
	x := newApart(t)
	var pumps, pollings sync.WaitGroup
	stop := make(chan struct{})
	x.ba = &wrappedConn{Conn: partedConn{polledConn{x.ba, &pumps}, 10_000}, make: closed(t)}
	x.bb = &wrappedConn{Conn: partedConn{polledConn{x.bb, &pumps}, 10_000}, make: closed(t)}
	t.Cleanup(pumps.Wait)
	x.start(pipes, pipes)
	for i, l := range []*Link{x.a, x.b, x.a} {
		pollings.Go(func() { comeAndGo(l, i, stop) })
	}
	t.Cleanup(func() {
		close(stop)
		pollings.Wait()
		x.a.Abort()
		x.b.Abort()
	})
	return x
}

// closed ends the goroutine of a pipe at the end of the test.
func closed(t *testing.T) func(int, transport.Sender) transport.Sender {
	return func(_ int, s transport.Sender) transport.Sender {
		t.Cleanup(s.(*parted).shut)
		return s
	}
}

func comeAndGo(l *Link, i int, stop chan struct{}) {
	rng := rand.New(rand.NewPCG(7, uint64(i)))
	for {
		select {
		case <-stop:
			return
		default:
		}
		var v Polling
		l.StartPolling(&v)
		for range rng.IntN(200) {
			v.Poll()
			runtime.Gosched()
		}
		if rng.IntN(2) == 0 {
			v.Pause()
		}
		v.Stop(rng.IntN(2) == 0)
		time.Sleep(time.Duration(rng.IntN(500)) * time.Microsecond)
	}
}

// TestPollingsOfTheBulkLane: transfers are complete, or were withdrawn, while the goroutines
// that write and read them change.
func TestPollingsOfTheBulkLane(t *testing.T) {
	for _, pipes := range []int{1, 3} {
		newParted(t, pipes).transferBothWays(t, 4)
	}
}

// startParted starts a link over a partedConn, and one without pollings at the other end.
func startParted(t *testing.T) (a, b *Link) {
	ca, cb := conns(t)
	var pumps sync.WaitGroup
	t.Cleanup(pumps.Wait)
	a = start(t, &wrappedConn{Conn: partedConn{polledConn{ca, &pumps}, 100_000}, make: closed(t)}, newHandler())
	return a, start(t, cb, newHandler())
}

// TestPush: without pollings Push sends a short transfer. The goroutine of the writer sends the part
// that the pipe does not take.
func TestPush(t *testing.T) {
	a, b := startParted(t)
	for i, n := range []int{0, 1, 50_000, 200_000, 3 * wire.SegmentMax, 10 * wire.SegmentMax} {
		send(a, b, n, i).wait(t)
	}
}

// TestLongTransferLeavesPollings: the goroutine of the writer writes a long transfer, even during a
// polling.
func TestLongTransferLeavesPollings(t *testing.T) {
	a, b := startParted(t)
	send(a, b, 1, 0).wait(t)
	var p Polling
	if !a.StartPolling(&p) {
		t.Error("the polling is not useful")
	}
	defer p.Stop(false)
	long := send(a, b, polledMax+1, 1)
	for !long.delivered.told() { // The polling reads the answer.
		p.Poll()
		runtime.Gosched()
	}
	short := send(a, b, 1000, 2)
	for !short.filled.told() {
		p.Poll()
		runtime.Gosched()
	}
	short.dst.check(t)
}
