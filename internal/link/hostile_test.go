package link

import (
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/link/lane"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A hostile is the other end of a connection, without a Link. It reads everything, and acknowledges nothing.
type hostile struct {
	transport.Conn
	mu      sync.Mutex // for writes
	control transport.Sender
	pings   atomic.Int64 // of the link
	pongs   atomic.Int64
	answers bool // sends pongs
}

// readAll reads what the link sends until the connection ends.
func (h *hostile) readAll(t *testing.T) {
	for {
		p, err := h.AcceptPipe(t.Context())
		if err != nil {
			return
		}
		go h.readPipe(p)
	}
}

func (h *hostile) readPipe(p transport.Receiver) {
	skip := func(n int) error { _, err := io.CopyN(io.Discard, p, int64(n)); return err }
	pre, err := acceptLane(p)
	if err != nil || pre.Flags.Has(wire.PreambleResumes) && skip(wire.ResumeSize) != nil {
		return
	}
	for b := make([]byte, wire.FrameSizeMax); ; {
		if _, err := io.ReadFull(p, b[:1]); err != nil {
			return
		}
		n, err := wire.Size(wire.Type(b[0]))
		if err != nil {
			return
		}
		if _, err := io.ReadFull(p, b[1:n]); err != nil {
			return
		}
		switch t := wire.Type(b[0]); t {
		case wire.TypeStep:
			if s, err := wire.ParseStep(b[:n]); err != nil || skip(s.Length) != nil {
				return
			}
		case wire.TypeView:
			if v, err := wire.Parse[wire.View](b[:n]); err != nil || skip(v.Length) != nil {
				return
			}
		case wire.TypePong:
			h.pongs.Add(1)
		case wire.TypePing:
			h.pings.Add(1)
			if f, err := wire.Parse[wire.Ping](b[:n]); err == nil && h.answers {
				h.write(f.Append(nil, wire.TypePong))
			}
		}
	}
}

func (h *hostile) write(frames []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := h.control.Write(frames)
	return err
}

// newHostile returns a link and its peer.
func newHostile(t *testing.T, h *handler, answers bool) (*Link, *hostile) {
	t.Helper()
	ca, cb := conns(t)
	l := start(t, ca, h)
	p := &hostile{Conn: cb, control: open(t, cb, wire.Control), answers: answers}
	go p.readAll(t)
	return l, p
}

// offer sends offers of so many bytes, as long as the link lives.
func offer(l *Link, bytes int) {
	for range bytes / len((&wire.Offer{}).Append(nil)) {
		if l.IsOver() {
			return
		}
		l.exchange().data.post((&wire.Offer{}).Append)
	}
}

// TestWithheldAcknowledgements: a link asks a peer that acknowledges nothing once, keeps at most uncreditedMax bytes, and ends then.
func TestWithheldAcknowledgements(t *testing.T) {
	for name, send := range map[string]func(l *Link, p *hostile){
		"of frames without charge": func(l *Link, _ *hostile) {
			view := make([]byte, wire.ViewMessageMax)
			for sent := 0; sent < 2*uncreditedMax && !l.IsOver(); sent += len(view) {
				l.exchange().control.post(func(b []byte) []byte { return wire.View{}.Append(b, view) })
			}
		},
		"of frames whose credit it returns": func(l *Link, p *hostile) {
			payload := make([]byte, wire.PayloadMax)
			for sent := 0; sent < 2*uncreditedMax && !l.IsOver(); {
				if !l.Credit().Take(wire.Collectives, len(payload)) {
					time.Sleep(time.Millisecond)
					continue
				}
				l.SendStep(wire.Step{}, payload)
				c := wire.Credit{Class: wire.Collectives, Bytes: uint32(len(payload) + frameCharge)}
				p.write(c.Append(nil))
				sent += len(payload)
			}
		},
		"of answers": func(l *Link, p *hostile) {
			pings := slices.Repeat((&wire.Ping{}).Append(nil, wire.TypePing), 1000)
			for !l.IsOver() {
				if p.write(pings) != nil {
					return
				}
			}
		},
	} {
		for _, answers := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				if name == "of answers" {
					require.NoRace(t, "it sends millions of frames")
				}
				h := newHandler()
				l, p := newHostile(t, h, answers)
				soon(t, "sending", func() { send(l, p) })
				err := h.wait(t)
				if !strings.Contains(err.Error(), "the peer has not acknowledged 1") || !strings.Contains(err.Error(), "want at most 16777216") {
					t.Errorf("got %q, want an error that says how much is not acknowledged", err)
				}
				if n := l.Unacknowledged(); n > uncreditedMax+2*creditBytes+wire.PayloadMax {
					t.Errorf("the link keeps %d bytes, want at most %d and its credit", n, uncreditedMax)
				}
				if n := p.pings.Load(); n > 2 {
					t.Errorf("the link has asked for acknowledgements %d times, want at most once for each lane", n)
				}
			})
		}
	}
}

// TestTendEndsLink: a link ends if its peer acknowledges nothing for the limit although it reads and answers. It does not as long as
// it acknowledges some.
func TestTendEndsLink(t *testing.T) {
	for _, answers := range []bool{true, false} {
		h := newHandler()
		l, p := newHostile(t, h, answers)
		offer(l, 2*askBytes)
		size := uint64(len((&wire.Offer{}).Append(nil)))
		for range 3 {
			for range 5 { // The first time of each round has found progress.
				l.Tend(time.Second, 5*time.Second)
			}
			if l.IsOver() {
				t.Fatalf("the link has ended before the limit: %v", l.Err())
			}
			acked := l.exchange().data.acked() + size
			for l.exchange().data.acked() != acked { // Parts of the frames may not be written yet.
				if err := p.write((&wire.Ack{Data: acked}).Append(nil)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Millisecond)
			}
		}
		for range 6 {
			l.Tend(time.Second, 5*time.Second)
		}
		if err := h.wait(t); !strings.Contains(err.Error(), "the peer has acknowledged nothing for 5s") {
			t.Errorf("got %v, want an error that names the time", err)
		}
	}
}

func (o *outbox) acked() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.out.Acked()
}

// memory returns the size of the buffers of an outbox.
func (o *outbox) memory() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.out.Memory()
}

// TestTendFreesIdleLanes: an idle link asks for what its peer has not acknowledged, and then keeps no large buffers.
func TestTendFreesIdleLanes(t *testing.T) {
	hb := newHandler()
	a, b := pair(t, newHandler(), hb, nil)
	agree(t, a, b)
	for range 10 {
		for !a.Credit().Take(wire.Collectives, 20000) {
			time.Sleep(time.Millisecond)
		}
		a.SendStep(wire.Step{}, make([]byte, 20000))
	}
	soon(t, "the acknowledgement of an idle lane", func() {
		for a.Unacknowledged() > keptIdle || a.exchange().data.memory() > 2*keptIdle {
			a.Tend(time.Second, time.Hour)
			time.Sleep(time.Millisecond)
		}
	})
}

// TestUnreadReports: a peer that reads nothing makes the link report withdrawn grants without end. The reports are bounded, and the link ends.
func TestUnreadReports(t *testing.T) {
	require.NoRace(t, "it sends millions of frames")
	h := newHandler()
	ca, cb := conns(t)
	l := start(t, ca, h)
	s := &Sink{Dst: make([]byte, 1), Owner: ignore{}}
	grant := l.Grant(s)
	l.Ungrant(s)
	open(t, cb, wire.Control)
	bulk := open(t, cb, wire.Bulk)
	segments := slices.Repeat((&wire.Segment{Grant: grant}).Append(nil), 1000)
	soon(t, "sending", func() {
		for !l.IsOver() {
			if _, err := bulk.Write(segments); err != nil {
				return
			}
		}
	})
	if err := h.wait(t); !strings.Contains(err.Error(), "the peer has not acknowledged 1") {
		t.Errorf("got %v, want an error that says how much was not read", err)
	}
}

// TestHostileResume: a peer opens the second connection of a link with numbers that cannot be right. The link ends, or refuses the
// connection.
func TestHostileResume(t *testing.T) {
	self, other := wire.LinkID{Process: 1, Link: 1}, wire.LinkID{Process: 2, Link: 1}
	for name, test := range map[string]struct {
		resume wire.Resume
		ends   bool
		want   string
	}{
		"received too much control": {wire.Resume{Number: 2, From: self, Received: [2]uint64{1 << 40, 34}}, true, "control lane: the peer opens a connection at byte 1099511627776, and "},
		"received too much data":    {wire.Resume{Number: 2, From: self, Received: [2]uint64{0, 1 << 40}}, true, "data lane: the peer opens a connection at byte 1099511627776, and "},
		"less than acknowledged":    {wire.Resume{Number: 2, From: self}, true, "at byte 0, and it has acknowledged 34"},
		"unsorted grants":           {wire.Resume{Number: 2, From: self, Received: [2]uint64{0, 34}, Last: 5, Grants: []wire.Progress{{Grant: 3}, {Grant: 2}}}, true, "grant 2 after grant 3"},
		"a grant twice":             {wire.Resume{Number: 2, From: self, Received: [2]uint64{0, 34}, Last: 5, Grants: []wire.Progress{{Grant: 3}, {Grant: 3}}}, true, "grant 3 after grant 3"},
		"a grant behind the last":   {wire.Resume{Number: 2, From: self, Received: [2]uint64{0, 34}, Last: 5, Grants: []wire.Progress{{Grant: 6}}}, true, "grant 6 after grant 0, and 5 as the last"},
		"more than was sent":        {wire.Resume{Number: 2, From: self, Received: [2]uint64{0, 34}, Last: 1, Grants: []wire.Progress{{Grant: 1, Got: 11}}}, true, "the peer has 11 bytes for grant 1, and "},
		"the end of its link":       {wire.Resume{Number: 2, From: other, Received: [2]uint64{0, 34}}, true, "it has ended link 1, and this is its link 1"},
		"no name":                   {wire.Resume{Number: 2, Received: [2]uint64{0, 34}}, true, "it has ended the link"},
	} {
		t.Run(name, func(t *testing.T) {
			h, pended := newHandler(), make(chan struct{}, 1)
			l := newPending(h, Config{Detached: func(*Link, transport.MemorySharer, Purpose, error) { pended <- struct{}{} }}, func() {})
			t.Cleanup(l.Abort)
			l.exchange().data.post((&wire.Offer{}).Append)
			l.Deliver(&Transfer{Grant: 1, Data: make([]byte, 10), Owner: ignore{}})
			first, peer := conns(t)
			control := propose(t, peer, wire.Resume{Number: 1, From: self})
			if err := l.Connect(t.Context(), first, Config{}); err != nil {
				t.Fatal(err)
			}
			for l.exchange().data.acked() != 34 {
				control.Write((&wire.Ack{Data: 34}).Append(nil))
				time.Sleep(time.Millisecond)
			}
			peer.Close()
			soon(t, "the end of the first connection", func() { <-pended })
			for !l.IsPending() {
				time.Sleep(time.Millisecond)
			}
			second, peer := conns(t)
			propose(t, peer, test.resume)
			err := l.Connect(t.Context(), second, Config{})
			if err == nil || !strings.Contains(err.Error(), test.want) && !errors.Is(err, errEnded) {
				t.Errorf("Connect: got %v, want %q", err, test.want)
			}
			if !test.ends {
				if l.IsOver() {
					t.Errorf("the link has ended: %v", l.Err())
				}
				return
			}
			if err := h.wait(t); !strings.Contains(err.Error(), test.want) {
				t.Errorf("the link has ended with %v, want %q", err, test.want)
			}
		})
	}
}

// TestFinishedTwice: a second report that a grant is finished, as for each segment of a withdrawn one, changes nothing.
func TestFinishedTwice(t *testing.T) {
	l, p := newHostile(t, newHandler(), true)
	var delivered count
	l.Deliver(&Transfer{Grant: 3, Data: make([]byte, 10), Owner: &delivered})
	finished := (&wire.Finished{Grant: 3}).Append(nil)
	if err := p.write((&wire.Ping{}).Append(slices.Repeat(finished, 2), wire.TypePing)); err != nil {
		t.Fatal(err)
	}
	soon(t, "the pong behind the reports", func() {
		for p.pongs.Load() == 0 || delivered.n.Load() == 0 { // A segment may be written meanwhile.
			time.Sleep(time.Millisecond)
		}
	})
	if n := delivered.n.Load(); n != 1 || l.IsOver() {
		t.Errorf("the owner was notified %d times, want once; the link has ended: %v", n, l.Err())
	}
}

// TestNumberFromTheFuture: a peer that has begun a connection with the largest number gets no other one. Its link waits, and keeps its frames.
func TestNumberFromTheFuture(t *testing.T) {
	h, pended := newHandler(), make(chan struct{}, 1)
	l := newPending(h, Config{Detached: func(*Link, transport.MemorySharer, Purpose, error) { pended <- struct{}{} }}, func() {})
	t.Cleanup(l.Abort)
	self := wire.LinkID{Process: 1, Link: 1}
	first, peer := conns(t)
	propose(t, peer, wire.Resume{Number: math.MaxUint64, From: self})
	if err := l.Connect(t.Context(), first, Config{}); err != nil {
		t.Fatal(err)
	}
	peer.Close()
	soon(t, "the end of the first connection", func() { <-pended })
	for !l.IsPending() {
		time.Sleep(time.Millisecond)
	}
	second, peer := conns(t)
	propose(t, peer, wire.Resume{Number: math.MaxUint64 - 1, From: self})
	if err := l.Connect(t.Context(), second, Config{}); !errors.Is(err, lane.ErrOld) {
		t.Errorf("a connection with a smaller number ends with %v, want %v", err, lane.ErrOld)
	}
	if l.IsOver() {
		t.Errorf("the link has ended: %v", l.Err())
	}
}

// propose begins a control lane with r.
func propose(t *testing.T, c transport.Conn, r wire.Resume) transport.Sender {
	t.Helper()
	s, err := c.OpenPipe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write(r.Append(wire.Preamble{Lane: wire.Control, Flags: wire.PreambleResumes}.Append(nil))); err != nil {
		t.Fatal(err)
	}
	return s
}
