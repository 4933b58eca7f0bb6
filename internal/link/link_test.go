package link

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A handler calls the functions that are set. For payloads without a function it returns the credit.
type handler struct {
	message    func(m wire.Message, p []byte)
	claim      func(l *Link, m wire.Message) (uint64, bool)
	step       func(s wire.Step, p []byte)
	offer      func(o wire.Offer)
	offerGrant func(g wire.OfferGrant)
	query      func(p wire.Query)
	revoke     func(r wire.Revoke, text string)
	failed     func(f wire.Failed, text string)
	reason     func(r wire.Reason, text string)
	closed     func(c wire.Closed)

	ends  chan error // of the link: errLeft, or why it was lost
	ended atomic.Bool
	late  atomic.Int64 // calls after the end
}

var errLeft = errors.New("the peer has left")

func newHandler() *handler { return &handler{ends: make(chan error, 8)} }

func (h *handler) note() {
	if h.ended.Load() {
		h.late.Add(1)
	}
}

func (h *handler) Message(l *Link, m wire.Message, p []byte) {
	h.note()
	if h.message == nil {
		l.Credit().Consumed(wire.Messages, len(p))
		return
	}
	h.message(m, p)
}

func (h *handler) Claim(l *Link, m wire.Message) (uint64, bool) {
	h.note()
	if h.claim == nil {
		return 0, false
	}
	return h.claim(l, m)
}

func (h *handler) Step(l *Link, s wire.Step, p []byte) {
	h.note()
	if h.step == nil {
		l.Credit().Consumed(wire.Collectives, len(p))
		return
	}
	h.step(s, p)
}

func call[F any](h *handler, f func(F), v F) {
	h.note()
	if f != nil {
		f(v)
	}
}

func (h *handler) Offer(_ *Link, o wire.Offer)           { call(h, h.offer, o) }
func (h *handler) OfferGrant(_ *Link, g wire.OfferGrant) { call(h, h.offerGrant, g) }
func (h *handler) OfferRefuse(*Link, wire.OfferRefuse)   { h.note() }
func (h *handler) StepOffer(*Link, wire.Step)            { h.note() }
func (h *handler) StepGrant(*Link, wire.Step)            { h.note() }
func (h *handler) Query(_ *Link, p wire.Query)           { call(h, h.query, p) }
func (h *handler) Where(*Link, wire.Where)               { h.note() }
func (h *handler) Ask(*Link, wire.Ask)                   { h.note() }
func (h *handler) Waits(*Link, wire.Waits, []byte)       { h.note() }

func (h *handler) Revoke(_ *Link, r wire.Revoke, text string) {
	h.note()
	if h.revoke != nil {
		h.revoke(r, text)
	}
}

func (h *handler) Closed(_ *Link, c wire.Closed) { call(h, h.closed, c) }

func (h *handler) Gone(*Link, wire.Gone) { h.note() }

func (h *handler) Leaving(*Link, wire.Leaving) { h.note() }

func (h *handler) View(*Link, []byte) { h.note() }

func (h *handler) Reason(_ *Link, r wire.Reason, text string) {
	h.note()
	if h.reason != nil {
		h.reason(r, text)
	}
}

func (h *handler) Failed(_ *Link, f wire.Failed, text string) {
	h.note()
	if h.failed != nil {
		h.failed(f, text)
	}
}

func (h *handler) Left(*Link) { h.end(errLeft) }

func (h *handler) Lost(_ *Link, err error) {
	if err == nil {
		err = errors.New("lost, without a reason")
	}
	h.end(err)
}

func (h *handler) end(err error) {
	h.note()
	h.ended.Store(true)
	h.ends <- err
}

// wait returns the reason of the end of the link.
func (h *handler) wait(t testing.TB) error {
	t.Helper()
	select {
	case err := <-h.ends:
		return err
	case <-time.After(time.Minute):
		t.Fatal("the handler was not notified of the end of the link")
		return nil
	}
}

// quiet checks that the handler is no longer called.
func (h *handler) quiet(t testing.TB) {
	t.Helper()
	select {
	case err := <-h.ends:
		t.Errorf("the handler was notified of an end: %v", err)
	default:
	}
	if n := h.late.Load(); n > 0 {
		t.Errorf("%d calls of the handler after the end of the link", n)
	}
}

// conns returns both ends of a connection.
func conns(t testing.TB) (a, b transport.Conn) {
	t.Helper()
	return connsOf(t, mem.NewNetwork())
}

// connsOf returns both ends of a connection from 0 to 1.
func connsOf(t testing.TB, network *mem.Network) (a, b transport.Conn) {
	t.Helper()
	var ends [2]transport.Transport
	for i := range ends {
		var err error
		if ends[i], err = network.Listen(fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ends[i].Close() })
	}
	a, err := ends[0].Dial(t.Context(), "1", "1")
	if err != nil {
		t.Fatal(err)
	}
	if b, err = ends[1].Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	return brittle{a}, brittle{b}
}

// A brittle connection may end although both processes live.
type brittle struct{ transport.Conn }

func (c brittle) Capabilities() transport.Capabilities {
	can := transport.CapabilitiesOf(c.Conn)
	can.Lasting = false
	return can
}

func start(t testing.TB, c transport.Conn, h Handler) *Link {
	t.Helper()
	l, err := newLink(t.Context(), c, h, Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Abort)
	return l
}

// pair returns two links to each other, over a connection with ends that wrap may replace.
func pair(t testing.TB, ha, hb *handler, wrap func(a, b transport.Conn) (transport.Conn, transport.Conn)) (a, b *Link) {
	t.Helper()
	ca, cb := conns(t)
	if wrap != nil {
		ca, cb = wrap(ca, cb)
	}
	return start(t, ca, ha), start(t, cb, hb)
}

// soon fails the test unless f returns within a bounded time.
func soon(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(time.Minute): // generous for slow machines
		t.Fatalf("%s does not return", what)
	}
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestFramesKeepTheirOrder(t *testing.T) {
	const frames = 2000
	ha, hb := newHandler(), newHandler()
	var b *Link
	got := make(chan int64, 2*frames)
	hb.message = func(m wire.Message, p []byte) {
		for i := range p {
			if p[i] != byte(m.Tag) {
				t.Errorf("message %d: byte %d is %d", m.Tag, i, p[i])
				break
			}
		}
		got <- m.Tag
		b.Credit().Consumed(wire.Messages, len(p))
	}
	hb.offer = func(o wire.Offer) { got <- o.Tag }
	hb.closed = func(c wire.Closed) { got <- int64(c.Last.Seq) }
	a, b := pair(t, ha, hb, nil)
	go func() {
		payload := make([]byte, 5000)
		for i := range int64(frames) {
			p := payload[:i*37%5000]
			for k := range p {
				p[k] = byte(i)
			}
			if i%100 == 99 {
				a.Closed((&wire.Closed{Last: wire.Call{Comm: 1, Seq: uint64(i)}}).Append(nil))
			} else if i%7 == 3 || !a.Credit().Take(wire.Messages, len(p)) {
				a.OfferMessage(wire.Offer{Tag: i})
			} else {
				a.SendMessage(wire.Message{Tag: i}, p)
			}
		}
	}()
	for want := range int64(frames) {
		select {
		case tag := <-got:
			if tag != want {
				t.Fatalf("got frame %d, want %d", tag, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("frame %d does not arrive", want)
		}
	}
}

// TestLanesAreIndependent: a peer reads two lanes and not the third one, which has more data than
// all buffers hold.
func TestLanesAreIndependent(t *testing.T) {
	for stalled := range wire.Lanes {
		t.Run(stalled.String(), func(t *testing.T) {
			ca, cb := conns(t)
			a := start(t, ca, newHandler())
			arrived := make(chan wire.Lane, 8)
			a.Deliver(&Transfer{Grant: 1, Data: make([]byte, 8<<20), Owner: ignore{}})
			for range wire.Lanes {
				p, err := cb.AcceptPipe(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					pre, err := acceptLane(p)
					if err != nil || pre.Lane == stalled {
						return
					}
					b := make([]byte, 1)
					if _, err := p.Read(b); err == nil {
						arrived <- pre.Lane
					}
				}()
			}
			for range 12 {
				if stalled != wire.Data || a.Credit().Take(wire.Messages, wire.PayloadMax) {
					a.SendMessage(wire.Message{}, make([]byte, wire.PayloadMax))
				}
			}
			for range 1000 {
				a.Failed(wire.Failed{}, strings.Repeat("x", 1000))
			}
			for range wire.Lanes - 1 {
				select {
				case <-arrived:
				case <-time.After(time.Minute):
					t.Fatal("a lane waits for the lane that is not read")
				}
			}
		})
	}
}

// ignore is an owner of transfers and sinks that ignores notifications.
type ignore struct{}

func (ignore) Delivered(*Transfer) {}
func (ignore) Filled(*Sink)        {}

// TestLost: Handler.Lost is called once, last, with the reason.
func TestLost(t *testing.T) {
	boom := errors.New("boom")
	for name, test := range map[string]struct {
		end        func(a, b *Link)
		atA, atB   error
		textA, not string
	}{
		"the connection is closed": {
			end: func(_, b *Link) { b.Conn().Close() }, atA: transport.ErrPeerClosed, atB: transport.ErrClosed,
		},
		"Fail":  {end: func(a, _ *Link) { a.Fail(boom); a.Fail(errors.New("later")) }, atA: boom, atB: transport.ErrPeerClosed},
		"Abort": {end: func(_, b *Link) { b.Abort() }, atA: transport.ErrPeerClosed},
	} {
		t.Run(name, func(t *testing.T) {
			ha, hb := newHandler(), newHandler()
			a, b := pair(t, ha, hb, nil)
			for range 100 {
				a.SendStep(wire.Step{}, make([]byte, 100))
				b.SendStep(wire.Step{}, make([]byte, 100))
			}
			test.end(a, b)
			if err := ha.wait(t); !errors.Is(err, test.atA) {
				t.Errorf("a: got %v, want %v", err, test.atA)
			}
			if test.atB != nil {
				if err := hb.wait(t); !errors.Is(err, test.atB) {
					t.Errorf("b: got %v, want %v", err, test.atB)
				}
			}
			a.Abort()
			b.Abort()
			ha.quiet(t)
			hb.quiet(t)
		})
	}
}

// TestPeerStopsReadingALane: the write fails, and the link ends with that error, not with the end
// of the connection that follows.
func TestPeerStopsReadingALane(t *testing.T) {
	for lane, write := range [wire.Lanes]func(a *Link){
		wire.Control: func(a *Link) { a.Ping() },
		wire.Data:    func(a *Link) { a.SendStep(wire.Step{}, make([]byte, 1000)) },
		wire.Bulk: func(a *Link) {
			a.Deliver(&Transfer{Grant: 1, Data: make([]byte, 1000), Owner: ignore{}})
			a.Push()
		},
	} {
		lane := wire.Lane(lane)
		t.Run(lane.String(), func(t *testing.T) {
			t.Parallel()
			ca, cb := conns(t)
			h := newHandler()
			a := start(t, ca, h)
			if lane == wire.Bulk {
				a.OpenBulk()
			}
			var stopped transport.Receiver
			for range lane + 1 { // The pipes come in the order of the lanes.
				var err error
				if stopped, err = cb.AcceptPipe(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			stopped.Close()
			write(a)
			if err := h.wait(t); !strings.Contains(err.Error(), fmt.Sprintf("write to the %v lane", lane)) {
				t.Errorf("got %q, which does not name the lane", err)
			}
		})
	}
}

func TestNewReportsTheLane(t *testing.T) {
	ca, _ := conns(t)
	ca.Close()
	if _, err := newLink(t.Context(), ca, newHandler(), Config{}); !errors.Is(err, transport.ErrClosed) || !strings.Contains(err.Error(), "control lane") {
		t.Errorf("got %v, want the lane and %v", err, transport.ErrClosed)
	}
}
