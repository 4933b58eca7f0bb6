package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A remoteConn behaves like RDMA hardware: remote writes are preferred, and a write that is refused ends the conn,
// unless the grant was recalled.
type remoteConn struct {
	transport.Conn
	memory  transport.RemoteMemory
	refused atomic.Bool
	owner   bool // has RemoteMemory for the peer to write
	forge   func(k transport.RemoteKey) transport.RemoteKey
	hold    func(ctx context.Context) // is called during each write, after the first byte

	shared *remoteState
}

// remoteState is shared by both ends.
type remoteState struct {
	mu       sync.Mutex
	recalled map[uint64]bool
	keys     []transport.RemoteKey // in the order of the grants
	written  int                   // bytes
	grants   int                   // that stand
}

func newRemoteConn(c transport.Conn, s *remoteState) *remoteConn {
	return &remoteConn{Conn: c, memory: transport.CapabilitiesOf(c).RemoteMemory, owner: true, shared: s}
}

// Err returns the refusal that has ended the conn, like that of hardware.
func (c *remoteConn) Err() error {
	err := c.Conn.Err()
	if c.refused.Load() && err != nil {
		err = fmt.Errorf("%w: %w", transport.ErrPeerGone, transport.ErrRemoteAccess)
	}
	return err
}

func (c *remoteConn) Capabilities() transport.Capabilities {
	return transport.Capabilities{RemoteMemory: c}
}

func (c *remoteConn) Suits(memory []byte) bool { return c.owner }

func (c *remoteConn) Register(memory []byte) (transport.Registration, error) {
	r, err := c.memory.Register(memory)
	return &remoteRegistration{r, c}, err
}

func (c *remoteConn) WriteRemote(ctx context.Context, key transport.RemoteKey, offset int, p []byte) error {
	s := c.shared
	isRecalled := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.recalled[key.Key]
	}
	if isRecalled() {
		return transport.ErrRemoteAccess
	}
	err := c.memory.WriteRemote(ctx, key, offset, p[:1])
	if err == nil && c.hold != nil {
		if c.hold(ctx); ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if err == nil {
		err = c.memory.WriteRemote(ctx, key, offset, p)
	}
	switch {
	case err == nil:
		s.mu.Lock()
		s.written += len(p)
		s.mu.Unlock()
	case errors.Is(err, transport.ErrRemoteAccess) && !isRecalled():
		c.refused.Store(true)
		c.Conn.Close()
	}
	return err
}

type remoteRegistration struct {
	transport.Registration
	conn *remoteConn
}

func (r *remoteRegistration) Grant(offset, n int) (transport.Grant, error) {
	g, err := r.Registration.Grant(offset, n)
	if err != nil {
		return nil, err
	}
	s := r.conn.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grants++
	s.keys = append(s.keys, g.Key())
	return &remoteGrantOf{Grant: g, conn: r.conn}, nil
}

type remoteGrantOf struct {
	transport.Grant
	conn *remoteConn
	once sync.Once
}

func (g *remoteGrantOf) Key() transport.RemoteKey {
	if g.conn.forge != nil {
		return g.conn.forge(g.Grant.Key())
	}
	return g.Grant.Key()
}

func (g *remoteGrantOf) Recall(ctx context.Context) error {
	s := g.conn.shared
	s.mu.Lock()
	s.recalled[g.Grant.Key().Key] = true
	s.mu.Unlock()
	return g.Grant.Recall(ctx)
}

func (g *remoteGrantOf) Revoke() {
	g.Grant.Revoke()
	g.once.Do(func() {
		g.conn.shared.mu.Lock()
		defer g.conn.shared.mu.Unlock()
		g.conn.shared.grants--
	})
}

// A remotePair is two links over remoteConns. a sends to the sinks of b.
type remotePair struct {
	ca, cb *remoteConn
	*remoteState
	a, b   *Link
	ha, hb *handler
	grants chan uint64 // that a has received
	number func(s *Sink) uint64
}

func newRemotePair(t *testing.T, set func(p *remotePair)) *remotePair {
	p := &remotePair{remoteState: &remoteState{recalled: make(map[uint64]bool)}, ha: newHandler(), hb: newHandler(), grants: make(chan uint64, 64)}
	p.ha.offerGrant = func(g wire.OfferGrant) { p.grants <- g.Grant }
	ca, cb := conns(t)
	p.ca, p.cb = newRemoteConn(ca, p.remoteState), newRemoteConn(cb, p.remoteState)
	if set != nil {
		set(p)
	}
	p.a, p.b = start(t, p.ca, p.ha), start(t, p.cb, p.hb)
	return p
}

// grant makes b grant a sink, and returns the number that a receives.
func (p *remotePair) grant(s *Sink) uint64 {
	p.b.GrantOffer(wire.OfferGrant{Grant: p.b.Grant(s)})
	return <-p.grants
}

// send sends data for a grant.
func (p *remotePair) send(grant uint64, data []byte) (*Transfer, signal) {
	delivered := make(signal)
	x := &Transfer{Grant: grant, Data: data, Owner: delivered}
	p.a.Deliver(x)
	p.a.Push()
	return x, delivered
}

func (p *remotePair) state() (written, grants int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.written, p.remoteState.grants
}

// exchange sends n bytes into a sink of b, and checks them.
func (p *remotePair) exchange(t *testing.T, n int) {
	t.Helper()
	at, filled, data := newPlace(n), make(signal), filler(n, n)
	_, delivered := p.send(p.grant(&Sink{Dst: at.mem, Owner: filled}), data)
	filled.wait(t, "the sink")
	delivered.wait(t, "the transfer")
	if at.check(t); !bytes.Equal(at.mem, data) {
		t.Errorf("%d bytes: the payload differs", n)
	}
}

// TestPayloadsAreWrittenRemotely: the peer writes a granted payload straight into the sink. The grant of the memory has ended when the owner
// is notified, and a replay of its key is refused.
func TestPayloadsAreWrittenRemotely(t *testing.T) {
	p := newRemotePair(t, nil)
	total := 0
	for _, n := range []int{1, 1000, wire.SegmentMax, 5<<19 + 3} {
		p.exchange(t, n)
		total += n
	}
	if written, grants := p.state(); written != total || grants != 0 {
		t.Errorf("%d bytes were written remotely, want %d; %d grants of memory stand, want none", written, total, grants)
	}
	at, filled := newPlace(1000), make(signal)
	_, delivered := p.send(p.grant(&Sink{Dst: at.mem, Owner: filled}), filler(1000, 1))
	filled.wait(t, "the sink")
	delivered.wait(t, "the transfer")
	clear(at.mem)
	if err := p.ca.memory.WriteRemote(t.Context(), p.keys[len(p.keys)-1], 0, []byte{1}); !errors.Is(err, transport.ErrRemoteAccess) {
		t.Errorf("write with the key of a filled sink: error %v, want %v", err, transport.ErrRemoteAccess)
	}
	if !bytes.Equal(at.mem, make([]byte, 1000)) {
		t.Error("a write with the key of a filled sink changes memory")
	}
	if got := p.b.Traffic().Received; got < uint64(total) {
		t.Errorf("the link counts %d bytes received, want at least %d", got, total)
	}
}

// TestSinksWithoutKeys: payloads that are reduced, or have several regions, go through a pipe, and so do all payloads if the receiver
// prefers pipes.
func TestSinksWithoutKeys(t *testing.T) {
	p := newRemotePair(t, nil)
	data := filler(1000, 3)
	sum, filled := make([]byte, 1000), make(signal)
	_, delivered := p.send(p.grant(&Sink{Dst: sum, A: make([]byte, 1000), Elem: 8, Reduce: addElements(8), Owner: filled}), data)
	filled.wait(t, "the reduction")
	delivered.wait(t, "the transfer")
	first, second, filled := make([]byte, 300), make([]byte, 700), make(signal)
	_, delivered = p.send(p.grant(&Sink{Dst: first, More: [][]byte{second}, Owner: filled}), data)
	filled.wait(t, "the regions")
	delivered.wait(t, "the transfer")
	if !bytes.Equal(sum, data) || !bytes.Equal(slices.Concat(first, second), data) {
		t.Error("the payload differs")
	}
	if written, _ := p.state(); written != 0 {
		t.Errorf("%d bytes were written remotely, want none", written)
	}
	open := &Sink{Dst: sum, A: make([]byte, 1000), Elem: 8, Reduce: addElements(8), Owner: filled}
	p.grant(open)
	if p.b.IsShared(open) {
		t.Error("the sink of a reduction is shared")
	}
	p.b.Ungrant(open)
	q := newRemotePair(t, func(p *remotePair) { p.cb.owner = false })
	q.exchange(t, 100_000)
	if written, _ := q.state(); written != 0 {
		t.Errorf("%d bytes were written remotely into memory that prefers pipes, want none", written)
	}
}

// TestUngrantDuringRemoteWrite: Ungrant returns while the peer writes, nothing is written afterwards, and the link goes on: the rest of the
// payload goes through the pipe and is discarded.
func TestUngrantDuringRemoteWrite(t *testing.T) {
	writing, resume := make(chan struct{}), make(chan struct{})
	var once sync.Once
	p := newRemotePair(t, func(p *remotePair) {
		p.ca.hold = func(context.Context) { once.Do(func() { close(writing); <-resume }) }
	})
	at, filled := newPlace(3<<20), make(signal)
	s := &Sink{Dst: at.mem, Owner: filled}
	_, delivered := p.send(p.grant(s), filler(3<<20, 1))
	<-writing
	if !p.b.IsShared(s) {
		t.Error("a sink that the peer writes is not shared")
	}
	soon(t, "Ungrant", func() { p.b.Ungrant(s) })
	clear(at.mem)
	close(resume)
	delivered.wait(t, "the transfer")
	p.exchange(t, 50_000)
	if at.check(t); !bytes.Equal(at.mem, make([]byte, 3<<20)) || filled.told() {
		t.Error("memory was written after Ungrant, or its owner was notified")
	}
	if _, grants := p.state(); grants != 0 {
		t.Errorf("%d grants of memory stand, want none", grants)
	}
	p.ha.quiet(t)
	p.hb.quiet(t)
}

// TestUngrantBeforeRemoteWrite: the peer uses the key of a withdrawn grant, and the link stands.
func TestUngrantBeforeRemoteWrite(t *testing.T) {
	p := newRemotePair(t, nil)
	at := newPlace(100_000)
	s := &Sink{Dst: at.mem, Owner: make(signal)}
	grant := p.grant(s)
	p.b.Ungrant(s)
	clear(at.mem)
	_, delivered := p.send(grant, filler(100_000, 1))
	delivered.wait(t, "the transfer")
	p.exchange(t, 50_000)
	if !bytes.Equal(at.mem, make([]byte, 100_000)) {
		t.Error("memory was written after Ungrant")
	}
}

// TestRecallDuringRemoteWrite: Recall interrupts a remote write, and the lane stays in sync.
func TestRecallDuringRemoteWrite(t *testing.T) {
	writing := make(chan struct{})
	var once sync.Once
	p := newRemotePair(t, func(p *remotePair) {
		p.ca.hold = func(ctx context.Context) { once.Do(func() { close(writing); <-ctx.Done() }) }
	})
	s := &Sink{Dst: make([]byte, 3<<20), Owner: make(signal)}
	x, delivered := p.send(p.grant(s), filler(3<<20, 1))
	<-writing
	soon(t, "Recall", func() { p.a.Recall(x) })
	p.exchange(t, 2<<20)
	if delivered.told() {
		t.Error("the owner of a recalled transfer was notified")
	}
	p.b.Ungrant(s)
}

// TestForgedKey: a peer that sends a wrong key loses its connection at the first write, and the reason names the refusal. A wrong length
// makes the payload go through the pipe.
func TestForgedKey(t *testing.T) {
	p := newRemotePair(t, func(p *remotePair) {
		p.cb.forge = func(k transport.RemoteKey) transport.RemoteKey { k.Key += 1000; return k }
	})
	at := newPlace(100_000)
	s := &Sink{Dst: at.mem, Owner: make(signal)}
	clear(at.mem)
	p.send(p.grant(s), filler(100_000, 1))
	if err := p.ha.wait(t); !errors.Is(err, transport.ErrRemoteAccess) {
		t.Errorf("the link ends with %v, want %v", err, transport.ErrRemoteAccess)
	}
	if !bytes.Equal(at.mem, make([]byte, 100_000)) {
		t.Error("a write with a forged key changes memory")
	}
	q := newRemotePair(t, func(p *remotePair) {
		p.cb.forge = func(k transport.RemoteKey) transport.RemoteKey { k.Len++; return k }
	})
	q.exchange(t, 100_000)
	if written, _ := q.state(); written != 0 {
		t.Errorf("%d bytes were written with a key of another length, want none", written)
	}
}

// TestBadWrittenFrames: a report of written bytes for a grant without a key, or of more than it has room for, is a protocol error.
func TestBadWrittenFrames(t *testing.T) {
	for _, test := range []struct {
		what   string
		owner  bool
		length int
		want   string
	}{
		{"no key", false, 10, "has no key"},
		{"too long", true, 1001, "which has room for 1000"},
	} {
		p := newRemotePair(t, func(p *remotePair) {
			p.cb.owner = test.owner
			p.ca.Conn = &conn{Conn: p.ca.Conn, sender: func(lane wire.Lane, s transport.Sender) transport.Sender {
				if lane != wire.Bulk {
					return s
				}
				return &forger{s, test.length}
			}}
		})
		p.send(p.grant(&Sink{Dst: make([]byte, 1000), Owner: make(signal)}), make([]byte, 1000))
		if err := p.hb.wait(t); !strings.Contains(fmt.Sprint(err), test.want) {
			t.Errorf("%s: the link ends with %v, want %q", test.what, err, test.want)
		}
	}
}

// A forger writes a Written frame before the first segment or Written frame.
type forger struct {
	transport.Sender
	length int
}

func (f *forger) Write(p []byte) (int, error) {
	if t := wire.Type(p[0]); t == wire.TypeSegment || t == wire.TypeWritten {
		w := wire.Written{Grant: 1, Length: f.length}
		f.Sender.Write(w.Append(nil))
	}
	return f.Sender.Write(p)
}

// breaking is a pair of links that become pending when their connection breaks.
type breaking struct {
	a, b     *Link
	ca, cb   transport.Conn
	hold     func(ctx context.Context) // called during the first remote write
	state    *remoteState
	grants   chan uint64
	writing  chan struct{}
	detached chan struct{}
}

func newBreaking(t *testing.T) *breaking {
	p := &breaking{
		state:  &remoteState{recalled: make(map[uint64]bool)},
		grants: make(chan uint64, 1), writing: make(chan struct{}), detached: make(chan struct{}, 2),
	}
	ha, hb := newHandler(), newHandler()
	ha.offerGrant = func(g wire.OfferGrant) { p.grants <- g.Grant }
	keep := func(*Link, transport.MemorySharer, Purpose, error) { p.detached <- struct{}{} }
	for h, l := range map[*handler]**Link{ha: &p.a, hb: &p.b} {
		*l = newPending(h, Config{Detached: keep}, func() {})
		t.Cleanup((*l).Abort)
	}
	p.ca, p.cb = conns(t)
	ra, rb := newRemoteConn(p.ca, p.state), newRemoteConn(p.cb, p.state)
	var once sync.Once
	ra.hold = func(ctx context.Context) { once.Do(func() { close(p.writing); p.hold(ctx) }) }
	if atA, atB := connect(t, p.a, p.b, ra, rb, admitAll); atA != nil || atB != nil {
		t.Fatal(atA, atB)
	}
	return p
}

// write begins a remote write of a transfer into a sink, which hold keeps from ending.
func (p *breaking) write(t *testing.T, s *Sink, x *Transfer, hold func(ctx context.Context)) {
	t.Helper()
	p.hold = hold
	p.b.GrantOffer(wire.OfferGrant{Grant: p.b.Grant(s)})
	x.Grant = <-p.grants
	p.a.Deliver(x)
	p.a.Push()
	<-p.writing
}

func (p *breaking) awaitDetached() {
	<-p.detached
	<-p.detached
}

// TestRemoteWriteGoesOnWithTheNextConnection: if the connection ends during a remote write, nothing is lost: the link becomes pending, and
// the payload goes on over the next connection, with keys of that connection or none.
func TestRemoteWriteGoesOnWithTheNextConnection(t *testing.T) {
	p := newBreaking(t)
	at, filled, delivered, data := newPlace(3<<20), make(signal), make(signal), filler(3<<20, 1)
	p.write(t, &Sink{Dst: at.mem, Owner: filled}, &Transfer{Data: data, Owner: delivered}, func(context.Context) { <-p.ca.Done() })
	p.cb.Close()
	p.awaitDetached()
	a, b := p.a, p.b
	for !a.IsPending() || !b.IsPending() {
		runtime.Gosched()
	}
	ca, cb := conns(t)
	if atA, atB := connect(t, a, b, ca, cb, admitAll); atA != nil || atB != nil {
		t.Fatal(atA, atB)
	}
	filled.wait(t, "the sink")
	delivered.wait(t, "the transfer")
	if at.check(t); !bytes.Equal(at.mem, data) {
		t.Error("the payload differs")
	}
	if p.state.grants != 0 {
		t.Errorf("%d grants of memory stand, want none", p.state.grants)
	}
}

// TestRecallWhileConnBreaks: a transfer that is recalled during a remote write is not sent over the next connection, also if the
// connection breaks before the write ends.
func TestRecallWhileConnBreaks(t *testing.T) {
	p := newBreaking(t)
	x := &Transfer{Data: filler(3<<20, 1), Owner: make(signal)}
	p.write(t, &Sink{Dst: make([]byte, 3<<20), Owner: make(signal)}, x, func(ctx context.Context) {
		<-ctx.Done()
		p.cb.Close()
		<-p.ca.Done()
	})
	p.a.Recall(x)
	p.awaitDetached()
	p.a.exchange().bulk.mu.Lock()
	defer p.a.exchange().bulk.mu.Unlock()
	if n := len(p.a.exchange().bulk.waiting); n > 0 {
		t.Errorf("%d transfers wait for the next connection, want none", n)
	}
}
