// Package relay connects nodes that are no neighbors, through relays. An [Endpoint] is a transport
// over the links between neighbors: it forwards the frames of others, and its conns are sealed from end
// to end.
//
// Package forward decides where frames go, and package session has the state of a conn; both are
// pure. This package has the goroutines: one that reads and one that writes for each neighbor. A frame for
// this node is handled by the goroutine that reads it.
//
// An address is the NodeID of a node, as text. The mesh calls [Endpoint.Attach] when a link to a
// neighbor is up, [Endpoint.RoutesChanged] when the routes have changed, and [Endpoint.NodeGone] when a
// node has died.
package relay

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/deadline"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/relay/forward"
	"github.com/nexar-go/nexar/internal/relay/session"
	"github.com/nexar-go/nexar/transport"
)

// HopLimitMax is the largest Config.HopLimit.
const HopLimitMax = forward.HopLimitMax

const (
	// backlogMax is the number of conns that wait for Accept.
	backlogMax = 256
	// handshakesMax is the number of handshakes in progress with frames from one neighbor.
	handshakesMax = 64
	// dialAttempts is the number of handshakes of one Dial, each over another path.
	dialAttempts = 4
	// handshakeTime is the maximum duration of the first handshake of a Dial. Each further one may
	// take twice as long.
	handshakeTime = 3 * time.Second
	// warningPause is the minimum time between two warnings about frames.
	warningPause = 10 * time.Second
)

// Config configures an [Endpoint].
type Config struct {
	Self membership.NodeID
	// Routes are the next hops of this node. They must not call the Endpoint.
	Routes forward.Routes
	// HopLimit is the maximum number of hops of a frame; see [forward.Config].
	HopLimit int

	// Server, Client and Peer are those of [transport.Env]. Identities are NodeIDs as text.
	Server *tls.Config
	Client func(peer string) *tls.Config
	Peer   func(state tls.ConnectionState) (string, error)

	// Tamper, if not nil, makes this node a hostile relay, for tests. It is called for each frame of another node that this
	// node passes on, and returns the frames that are written instead. An added frame needs the credit of a dropped one.
	Tamper Tamper

	// Log defaults to a logger that discards.
	Log *slog.Logger
}

// Stats count the frames of an [Endpoint].
type Stats struct {
	forward.Stats
	// Altered, Repeated and Unexpected count the frames with these verdicts.
	Altered, Repeated, Unexpected uint64
	// Held is the number of bytes of others' frames in memory.
	Held int
}

// An Endpoint implements [transport.Transport] over links between neighbors.
type Endpoint struct {
	cfg      Config
	accepted chan *conn
	done     chan struct{} // closed by Close
	tasks    sync.WaitGroup

	// mu guards the fields below. A conn may lock it while its own mutex is held.
	mu         sync.Mutex
	node       *forward.Node
	neighbors  map[membership.NodeID]*neighbor
	alone      chan struct{} // closed as long as there is no neighbor
	conns      map[connKey]*conn
	handshakes map[membership.NodeID]int // in progress, by neighbor
	closed     bool
	ticking    bool // a call of tick is due
	verdicts   [4]uint64
	warned     time.Time
}

type connKey struct {
	peer    membership.NodeID
	session uint64
}

// New returns an endpoint without neighbors.
func New(cfg Config) (*Endpoint, error) {
	node, err := forward.New(forward.Config{Self: cfg.Self, Routes: cfg.Routes, HopLimit: cfg.HopLimit})
	if err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	alone := make(chan struct{})
	close(alone)
	return &Endpoint{
		cfg: cfg, node: node, alone: alone, accepted: make(chan *conn, backlogMax), done: make(chan struct{}),
		neighbors: make(map[membership.NodeID]*neighbor), conns: make(map[connKey]*conn),
		handshakes: make(map[membership.NodeID]int),
	}, nil
}

// Name implements [transport.Transport].
func (e *Endpoint) Name() string { return "relay" }

// Addr returns the NodeID of this node.
func (e *Endpoint) Addr() string { return e.cfg.Self.String() }

// Stats returns the counters.
func (e *Endpoint) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return Stats{
		Stats: e.node.Stats(), Held: e.node.Held(),
		Altered: e.verdicts[session.Altered], Repeated: e.verdicts[session.Repeated], Unexpected: e.verdicts[session.Unexpected],
	}
}

// Dial implements [transport.Transport]. It makes several handshakes, since a relay can make one fail.
func (e *Endpoint) Dial(ctx context.Context, addr, peer string) (transport.Conn, error) {
	c, err := e.dial(ctx, addr, peer)
	if err != nil {
		return nil, fmt.Errorf("relay: dial node %s from node %v%s: %w", addr, e.cfg.Self, e.via(addr), err)
	}
	return c, nil
}

func (e *Endpoint) dial(ctx context.Context, addr, peer string) (c *conn, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	id, err := membership.ParseNodeID(addr)
	if err != nil {
		return nil, err
	}
	if peer != "" && peer != addr {
		return nil, fmt.Errorf("%w: its address names another node than the expected %q", transport.ErrIdentity, peer)
	}
	if id == e.cfg.Self {
		return nil, errors.New("it is this node")
	}
	for attempt := range uint8(dialAttempts) {
		limited, cancel := context.WithTimeout(ctx, handshakeTime<<attempt)
		c, err = e.handshake(limited, id, attempt)
		cancel()
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil || errors.Is(err, transport.ErrClosed) || errors.Is(err, transport.ErrPeerGone) {
			return nil, err
		}
	}
	return nil, err
}

// handshake dials a peer once.
func (e *Endpoint) handshake(ctx context.Context, peer membership.NodeID, attempt uint8) (*conn, error) {
	var random [8]byte
	rand.Read(random[:])
	c := newConn(e, peer, binary.BigEndian.Uint64(random[:]))
	cfg := c.config(e.cfg.Client(peer.String()))
	cfg.Attempt = attempt
	c.mu.Lock()
	now := time.Now()
	var err error
	c.session, err = session.Dial(now, cfg)
	if err == nil && !e.add(c) {
		c.session.Fail(now, transport.ErrClosed)
	}
	c.flushLocked(now)
	established := c.event.Next()
	c.mu.Unlock()
	select {
	case <-established:
	case <-c.done:
	case <-ctx.Done():
		c.Close()
		if err := c.Err(); errors.Is(err, transport.ErrPeerGone) {
			return nil, err
		}
		if reason := c.dropped.Load(); reason != nil {
			return nil, fmt.Errorf("%w: frames were lost: %v", ctx.Err(), *reason)
		}
		return nil, ctx.Err()
	}
	return c, c.Err()
}

// add registers a conn. It returns false if the endpoint is closed.
func (e *Endpoint) add(c *conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.conns[c.key] = c
	}
	return !e.closed
}

// Accept implements [transport.Transport].
func (e *Endpoint) Accept(ctx context.Context) (transport.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case <-e.done:
		return nil, fmt.Errorf("relay: accept: %w", transport.ErrClosed)
	default:
	}
	select {
	case c := <-e.accepted:
		return c, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-e.done:
		return nil, fmt.Errorf("relay: accept: %w", transport.ErrClosed)
	}
}

// RoutesChanged makes the conns send frames again that may be lost.
func (e *Endpoint) RoutesChanged() {
	for _, c := range e.all() {
		c.do(func(now time.Time) { c.session.RoutesChanged(now) })
	}
}

// NodeGone ends the conns to a node that has died.
func (e *Endpoint) NodeGone(id membership.NodeID) {
	for _, c := range e.all() {
		if c.key.peer == id {
			c.do(func(now time.Time) {
				c.session.Fail(now, fmt.Errorf("relay: conn to node %v: %w", id, transport.ErrPeerGone))
			})
		}
	}
}

func (e *Endpoint) all() (conns []*conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.conns {
		conns = append(conns, c)
	}
	return conns
}

// isolated returns a channel that is closed when there is no neighbor.
func (e *Endpoint) isolated() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.alone
}

// Flush waits until the peers have acknowledged the ends of the conns that this node has closed, there is no
// neighbor, or ctx ends.
func (e *Endpoint) Flush(ctx context.Context) {
	for _, c := range e.all() {
		if c.Err() == nil {
			continue // It is in use.
		}
		select {
		case <-c.flushed:
		case <-e.isolated():
			return
		case <-ctx.Done():
			return
		}
	}
}

// AwaitQuiet waits until this node has relayed no frame for some time, there is no neighbor, or ctx ends.
func (e *Endpoint) AwaitQuiet(ctx context.Context, quiet time.Duration) {
	tick := time.NewTicker(quiet)
	defer tick.Stop()
	for before := e.Stats().Forwarded; ; {
		select {
		case <-tick.C:
		case <-e.isolated():
			return
		case <-ctx.Done():
			return
		}
		now := e.Stats().Forwarded
		if now == before {
			return
		}
		before = now
	}
}

// Close implements [transport.Transport]. It also stops relaying. It waits until the peers have acknowledged
// the ends of the conns, for a second at most.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	again := e.closed
	e.closed = true
	e.mu.Unlock()
	if again {
		<-e.done
		e.tasks.Wait()
		return nil
	}
	close(e.done)
	limit := time.NewTimer(deadline.Linger)
	defer limit.Stop()
	conns := e.all()
	for _, c := range conns {
		c.Close()
	}
	for _, c := range conns {
		select {
		case <-c.flushed:
		case <-e.isolated():
		case <-limit.C:
			limit.Reset(0)
		}
	}
	e.mu.Lock()
	var gone []*neighbor
	for _, v := range e.neighbors {
		gone = append(gone, v)
	}
	e.mu.Unlock()
	for _, v := range gone {
		e.detach(v, transport.ErrClosed)
	}
	e.tasks.Wait()
	for _, c := range e.all() {
		c.do(func(now time.Time) { c.session.Fail(now, transport.ErrClosed) })
	}
	return nil
}

// send passes frames of a session to the node.
func (e *Endpoint) send(now time.Time, frames []forward.Frame) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, f := range frames {
		e.carryOutLocked(now, e.node.Send(now, f))
	}
}

// receive handles a frame of a neighbor.
func (e *Endpoint) receive(v *neighbor, f forward.Frame) error {
	e.mu.Lock()
	if e.neighbors[v.id] != v {
		e.mu.Unlock()
		return transport.ErrClosed
	}
	now := time.Now()
	effects, err := e.node.Receive(now, v.id, f)
	if err != nil {
		e.mu.Unlock()
		return violation(err)
	}
	delivered := effects.Delivered
	e.carryOutLocked(now, effects)
	var c *conn
	if delivered {
		c = e.connLocked(now, v.id, &f)
	}
	e.mu.Unlock()
	switch {
	case c != nil:
		verdict := session.Unexpected
		c.do(func(now time.Time) {
			if verdict = c.session.Receive(now, f); verdict == session.Altered {
				c.altered++
				c.alteredBy = v.id
			}
		})
		e.report(v.id, &f, verdict)
	case delivered:
		e.report(v.id, &f, session.Unexpected)
	}
	return nil
}

// connLocked returns the conn of a frame. The first frame of a handshake makes one.
func (e *Endpoint) connLocked(now time.Time, from membership.NodeID, f *forward.Frame) *conn {
	key := connKey{f.Source, f.Session}
	if c := e.conns[key]; c != nil {
		return c
	}
	if e.closed || f.Kind != forward.Handshake || f.Seq != 0 || f.Source == e.cfg.Self || e.handshakes[from] >= handshakesMax {
		return nil
	}
	c := newConn(e, f.Source, f.Session)
	c.incoming, c.from = true, from
	var err error
	if c.session, err = session.Accept(now, c.config(e.cfg.Server)); err != nil {
		e.cfg.Log.Warn("relay: the TLS configuration of the server does not work", "error", err)
		return nil
	}
	e.handshakes[from]++
	e.conns[key] = c
	return c
}

// report counts a frame that was dropped, and logs one that is not authentic.
func (e *Endpoint) report(from membership.NodeID, f *forward.Frame, v session.Verdict) {
	if v == session.Accepted {
		return
	}
	now := time.Now()
	e.mu.Lock()
	e.verdicts[v]++
	warn := v == session.Altered && now.Sub(e.warned) >= warningPause
	if warn {
		e.warned = now
	}
	count := e.verdicts[v]
	e.mu.Unlock()
	if warn {
		e.cfg.Log.Warn("relay: a frame was altered or forged on its path and is dropped", "source", f.Source, "destination", e.cfg.Self,
			"from", from, "seq", f.Seq, "total", count)
	}
}

// carryOutLocked carries out the effects of an event of the node.
func (e *Endpoint) carryOutLocked(now time.Time, effects *forward.Effects) {
	for _, id := range effects.Wake {
		e.neighbors[id].wakeUp()
	}
	for _, d := range effects.Drops {
		if c := e.conns[connKey{d.Frame.Destination, d.Frame.Session}]; c != nil && d.Frame.Source == e.cfg.Self {
			c.dropped.Store(&d.Reason)
		}
		e.cfg.Log.Debug("relay: a frame is lost", "reason", d.Reason, "source", d.Frame.Source, "destination", d.Frame.Destination, "from", d.From)
	}
	if e.ticking {
		return
	}
	if at := e.node.Deadline(); !at.IsZero() {
		e.ticking = true
		time.AfterFunc(at.Sub(now), e.tick)
	}
}

// tick handles frames that have waited too long.
func (e *Endpoint) tick() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ticking = false
	if now := time.Now(); len(e.neighbors) > 0 {
		e.carryOutLocked(now, e.node.Tick(now))
	}
}

// handshakeOver is called when a handshake with an incoming conn is over.
func (e *Endpoint) handshakeOver(from membership.NodeID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.handshakes[from]--; e.handshakes[from] == 0 {
		delete(e.handshakes, from)
	}
}

// forget removes a conn.
func (e *Endpoint) forget(c *conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.conns[c.key] == c {
		delete(e.conns, c.key)
	}
}
