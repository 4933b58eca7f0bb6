package link

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// filler returns a pattern that is different for neighboring bytes and transfers.
func filler(n, transfer int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*13 + i>>8 + transfer*101)
	}
	return b
}

// A signal is closed when a transfer or a sink has ended.
type signal chan struct{}

func (s signal) Delivered(*Transfer) { close(s) }
func (s signal) Filled(*Sink)        { close(s) }

func (s signal) wait(t testing.TB, what string) {
	t.Helper()
	select {
	case <-s:
	case <-time.After(time.Minute):
		t.Fatalf("%s: the owner was not notified", what)
	}
}

func (s signal) told() bool {
	select {
	case <-s:
		return true
	default:
		return false
	}
}

// A place is memory with a margin that must not be written.
type place struct{ all, mem []byte }

func newPlace(n int) place {
	p := place{all: bytes.Repeat([]byte{0xA5}, n+64)}
	p.mem = p.all[32 : 32+n : 32+n]
	return p
}

func (p place) check(t testing.TB) {
	t.Helper()
	margin := bytes.Repeat([]byte{0xA5}, 32)
	if !bytes.Equal(p.all[:32], margin) || !bytes.Equal(p.all[len(p.all)-32:], margin) {
		t.Error("memory outside the sink was written")
	}
}

func TestSinksAreFilledExactly(t *testing.T) {
	a, b := pair(t, newHandler(), newHandler(), with(chop(9999)))
	for _, n := range []int{0, 1, 1000, wire.SegmentMax - 1, wire.SegmentMax, wire.SegmentMax + 1, 5<<19 + 3} {
		p, filled, delivered := newPlace(n), make(signal), make(signal)
		data := filler(n, n)
		a.Deliver(&Transfer{Grant: b.Grant(&Sink{Dst: p.mem, Owner: filled}), Data: data, Owner: delivered})
		filled.wait(t, "the sink")
		delivered.wait(t, "the transfer")
		if p.check(t); !bytes.Equal(p.mem, data) {
			t.Errorf("%d bytes: the payload differs", n)
		}
	}
	b.exchange().grants.mu.Lock()
	defer b.exchange().grants.mu.Unlock()
	if len(b.exchange().grants.set.All()) > 0 {
		t.Errorf("%d grants are left", len(b.exchange().grants.set.All()))
	}
}

// mix is a reduction that is not commutative.
func mix(elem int) func(dst, a, b []byte) {
	return func(dst, a, b []byte) {
		if len(dst) != len(a) || len(dst) != len(b) || len(dst)%elem != 0 {
			panic("operands of different lengths")
		}
		for i := 0; i < len(dst); i += elem {
			if elem == 8 {
				x, y := binary.BigEndian.Uint64(a[i:]), binary.BigEndian.Uint64(b[i:])
				binary.BigEndian.PutUint64(dst[i:], x*31+y)
				continue
			}
			for k := range elem {
				dst[i+k] = a[i+k]*31 + b[i+elem-1-k]
			}
		}
	}
}

// TestReduceAtEveryCut sends a payload in two pieces, cut at every byte, and byte by byte, so that
// elements arrive in any number of pieces.
func TestReduceAtEveryCut(t *testing.T) {
	for _, elem := range []int{1, 2, 4, 8, 16} {
		for _, left := range []bool{false, true} {
			n := 5 * elem
			data, other := filler(n, 1), filler(n, 2)
			want := make([]byte, n)
			if op := mix(elem); left {
				op(want, data, other)
			} else {
				op(want, other, data)
			}
			for cut := -1; cut <= n; cut++ {
				s := &Sink{Dst: make([]byte, n), A: other, Reduce: mix(elem), Elem: elem, Left: left}
				if cut < 0 {
					for i := range data {
						s.take(data[i : i+1])
					}
				} else {
					s.take(data[:cut])
					s.take(data[cut:])
				}
				if !bytes.Equal(s.Dst, want) || s.next.at != n {
					t.Errorf("elements of %d bytes, left %v, cut at %d: got %x, want %x", elem, left, cut, s.Dst, want)
				}
			}
		}
	}
}

// TestReduceInPlace reduces over a connection, into the operand itself, with
// segments that end within an element.
func TestReduceInPlace(t *testing.T) {
	ca, cb := conns(t)
	a := start(t, ca, newHandler())
	to := open(t, cb, wire.Bulk)
	const n = 4000
	data := filler(n, 3)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		p, filled := newPlace(n), make(signal)
		copy(p.mem, filler(n, 4))
		want := make([]byte, n)
		mix(8)(want, p.mem, data)
		id := a.Grant(&Sink{Dst: p.mem, A: p.mem, Reduce: mix(8), Elem: 8, Owner: filled})
		for rest := data; len(rest) > 0; {
			k := min(len(rest), rng.IntN(50))
			s := wire.Segment{Grant: id, Offset: uint64(n - len(rest)), Length: k}
			chopped := &chopper{to, rng, 50}
			if _, err := chopped.Write(append(s.Append(nil), rest[:k]...)); err != nil {
				t.Fatal(err)
			}
			rest = rest[k:]
		}
		filled.wait(t, "the sink")
		if p.check(t); !bytes.Equal(p.mem, want) {
			t.Fatal("a wrong result")
		}
	}
}

func TestGrantOfHalfAnElementPanics(t *testing.T) {
	a, _ := pair(t, newHandler(), newHandler(), nil)
	for name, s := range map[string]*Sink{
		"half":            {Dst: make([]byte, 10), A: make([]byte, 10), Elem: 4},
		"no size":         {Dst: make([]byte, 10), A: make([]byte, 10)},
		"another operand": {Dst: make([]byte, 12), A: make([]byte, 8), Elem: 4},
	} {
		s.Reduce = mix(4)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			a.Grant(s)
		}()
	}
}

// TestUngrantAtEveryMoment stops a peer at many positions of two segments, withdraws the grant
// there, and reuses the memory while the rest arrives. The next transfer is complete.
func TestUngrantAtEveryMoment(t *testing.T) {
	const n = 40
	data := filler(n, 5)
	var b []byte
	for i := 0; i < n; i += n / 2 {
		s := wire.Segment{Grant: 1, Offset: uint64(i), Length: n / 2}
		b = append(s.Append(b), data[i:i+n/2]...)
	}
	for _, reduce := range []func(dst, a, b []byte){nil, mix(8)} {
		for at := 0; at <= len(b); at++ {
			ca, cb := conns(t)
			h := newHandler()
			a := start(t, ca, h)
			to := open(t, cb, wire.Bulk)
			p, filled := newPlace(n), make(signal)
			s := &Sink{Dst: p.mem, A: p.mem, Reduce: reduce, Elem: 8, Owner: filled}
			a.Grant(s)
			next := newPlace(n)
			whole := make(signal)
			a.Grant(&Sink{Dst: next.mem, Owner: whole})
			if _, err := to.Write(b[:at]); err != nil {
				t.Fatal(err)
			}
			if at%2 == 0 {
				time.Sleep(100 * time.Microsecond) // The reader most likely blocks.
			}
			soon(t, "Ungrant", func() { a.Ungrant(s) })
			for i := range p.mem { // for the race detector
				p.mem[i] = 0x77
			}
			second := wire.Segment{Grant: 2, Length: n}
			if _, err := to.Write(append(second.Append(bytes.Clone(b[at:])), data...)); err != nil {
				t.Fatal(err)
			}
			whole.wait(t, "the next sink")
			if p.check(t); !bytes.Equal(p.mem, bytes.Repeat([]byte{0x77}, n)) {
				t.Errorf("at %d: memory was written after Ungrant", at)
			}
			if next.check(t); !bytes.Equal(next.mem, data) {
				t.Errorf("at %d: the payload of the next transfer differs", at)
			}
			if filled.told() && at < len(b) {
				t.Errorf("at %d: Filled was called", at)
			}
			a.Abort()
		}
	}
}

// TestUngrantAndRecallAtRandom runs many concurrent transfers and withdraws some of them on
// either side at random times. The others arrive.
func TestUngrantAndRecallAtRandom(t *testing.T) {
	wraps := map[string]func(a, b transport.Conn) (transport.Conn, transport.Conn){"unchanged": nil, "in pieces": with(chop(9999))}
	for name, wrap := range wraps {
		t.Run(name, func(t *testing.T) {
			ha, hb := newHandler(), newHandler()
			a, b := pair(t, ha, hb, wrap)
			var all sync.WaitGroup
			for worker := range 6 {
				all.Go(func() { transfers(t, a, b, worker, b.Grant) })
			}
			soon(t, "a transfer", all.Wait)
			ha.quiet(t)
			hb.quiet(t)
		})
	}
}

// TestUngrantAndRecallOfRemoteWrites is TestUngrantAndRecallAtRandom with remote writes. A write that is refused would end the conn.
func TestUngrantAndRecallOfRemoteWrites(t *testing.T) {
	p := newRemotePair(t, func(p *remotePair) {
		var received sync.Map // a channel for each grant that a has received
		channel := func(grant uint64) chan struct{} {
			c, _ := received.LoadOrStore(grant, make(chan struct{}))
			return c.(chan struct{})
		}
		p.ha.offerGrant = func(g wire.OfferGrant) { close(channel(g.Grant)) }
		p.number = func(s *Sink) uint64 {
			id := p.b.Grant(s)
			p.b.GrantOffer(wire.OfferGrant{Grant: id})
			<-channel(id)
			return id
		}
	})
	var all sync.WaitGroup
	for worker := range 6 {
		all.Go(func() { transfers(t, p.a, p.b, worker, p.number) })
	}
	soon(t, "a transfer", all.Wait)
	p.ha.quiet(t)
	p.hb.quiet(t)
	if written, grants := p.state(); written == 0 || grants != 0 {
		t.Errorf("%d bytes were written remotely, and %d grants of memory stand; want some and none", written, grants)
	}
}

func transfers(t *testing.T, a, b *Link, worker int, grant func(*Sink) uint64) {
	rng := rand.New(rand.NewPCG(9, uint64(worker)))
	for i := range 60 {
		n := rng.IntN(1 << (4 + rng.IntN(18)))
		p, filled := newPlace(n), make(signal)
		s := &Sink{Dst: p.mem, Owner: filled}
		data := filler(n, i)
		tr := &Transfer{Grant: grant(s), Data: data, Owner: make(signal)}
		a.Deliver(tr)
		a.Push()
		what := rng.IntN(3)
		if what > 0 {
			time.Sleep(time.Duration(rng.IntN(300)) * time.Microsecond)
		}
		switch what {
		case 0:
			filled.wait(t, "a sink")
			tr.Owner.(signal).wait(t, "a transfer")
			if !bytes.Equal(p.mem, data) {
				t.Errorf("the payload of a transfer of %d bytes differs", n)
			}
		case 1:
			b.Ungrant(s)
			clear(p.mem)
			tr.Owner.(signal).wait(t, "a transfer without a sink")
			if !filled.told() && !bytes.Equal(p.mem, make([]byte, n)) {
				t.Error("memory was written after Ungrant")
			}
		case 2:
			a.Recall(tr)
			clear(data)
			b.Ungrant(s)
			clear(p.mem)
		}
		p.check(t)
	}
}
