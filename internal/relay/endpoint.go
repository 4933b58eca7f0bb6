// Package relay connects nodes that are no neighbors, through relays. An [Endpoint] is a transport: QUIC, whose packets go from
// neighbor to neighbor over the links of the mesh. Each node is a router for the packets of others.
//
// Package forward decides where frames with packets go; it is pure. This package has the goroutines, one that reads and one that writes for
// each neighbor, and the [net.PacketConn] for QUIC. Identity, sealing, order, loss and back pressure are those of package quic.
//
// An address is the NodeID of a node, as text. The mesh calls [Endpoint.Attach] when a link to a neighbor is up, and [Endpoint.NodeGone]
// when a node has died.
package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/deadline"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/relay/forward"
	"github.com/nexar-go/nexar/internal/wake"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/quic"
)

// HopLimitMax is the largest Config.HopLimit.
const HopLimitMax = forward.HopLimitMax

const (
	// handshakeTime is the maximum duration of the first handshake of a Dial. Each further one may
	// take twice as long.
	handshakeTime = 3 * time.Second
	// silenceMax is the time after which a conn ends without a packet of its peer, if no report says before that the peer is gone.
	silenceMax = 15 * time.Second
	// pipeWindow and pipesMax bound the memory of a conn with pipes that are not read.
	pipeWindow = 512 << 10
	pipesMax   = 16
	// packetSize is the length of packets. The pacing of quic-go 0.65 assumes this length as long as it does not discover a larger one: with
	// longer packets, it looks for time to send the next one in a loop.
	packetSize = 1280
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
	// node passes on, and returns the frames that are written instead.
	Tamper Tamper

	// Log defaults to a logger that discards.
	Log *slog.Logger
}

// credentials are those of a Config, for package quic.
type credentials struct{ cfg *Config }

func (c credentials) Server() *tls.Config                            { return c.cfg.Server }
func (c credentials) Client(peer string) *tls.Config                 { return c.cfg.Client(peer) }
func (c credentials) Peer(state tls.ConnectionState) (string, error) { return c.cfg.Peer(state) }

// An Endpoint implements [transport.Transport] over links between neighbors.
type Endpoint struct {
	cfg     Config
	packets *packets
	socket  *quic.Endpoint
	quic    *quic.Transport
	done    chan struct{} // closed by Close
	tasks   sync.WaitGroup

	// mu guards the fields below.
	mu        sync.Mutex
	node      *forward.Node
	neighbors map[membership.NodeID]*neighbor
	alone     chan struct{}               // closed as long as there is no neighbor
	written   wake.Signal                 // frames have been written, or a neighbor has gone
	awaited   bool                        // a goroutine waits for it
	salts     map[membership.NodeID]uint8 // for the next dial, if another one than 0
	dials     map[*dial]bool
	closed    bool
}

// A dial is in progress.
type dial struct {
	peer   membership.NodeID
	cancel context.CancelCauseFunc
	lost   forward.Outcome // of the last packet to the peer that was dropped here
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
	e := &Endpoint{
		cfg: cfg, node: node, alone: make(chan struct{}), done: make(chan struct{}), written: wake.NewSignal(),
		neighbors: make(map[membership.NodeID]*neighbor), salts: make(map[membership.NodeID]uint8), dials: make(map[*dial]bool),
	}
	close(e.alone)
	e.packets = newPackets(e)
	e.socket, err = quic.Listen(quic.Config{
		PacketConn: e.packets, Log: cfg.Log, PipeWindow: pipeWindow, MaxPipes: pipesMax, Heartbeat: silenceMax, IdleTimeout: silenceMax,
		HandshakeTimeout: handshakeTime << 3, PacketSize: packetSize,
	})
	if err != nil {
		return nil, err
	}
	if e.quic, err = e.socket.Transport(credentials{&e.cfg}); err != nil {
		e.socket.Close()
		return nil, err
	}
	return e, nil
}

// Name implements [transport.Transport].
func (e *Endpoint) Name() string { return "relay" }

// Addr returns the NodeID of this node.
func (e *Endpoint) Addr() string { return e.cfg.Self.String() }

// Stats returns the counters.
func (e *Endpoint) Stats() forward.Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.node.Stats()
}

// Dial implements [transport.Transport]. It makes several handshakes, since a relay can make one fail.
func (e *Endpoint) Dial(ctx context.Context, addr, peer string) (transport.Conn, error) {
	c, err := e.dial(ctx, addr, peer)
	if err != nil {
		return nil, fmt.Errorf("relay: dial node %s from node %v%s: %w", addr, e.cfg.Self, e.via(addr), err)
	}
	return e.wrap(c), nil
}

func (e *Endpoint) dial(ctx context.Context, addr, peer string) (c transport.Conn, err error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
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
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d := &dial{peer: id, cancel: cancel}
	e.mu.Lock()
	e.dials[d] = true
	salt := e.salts[id]
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.dials, d)
		if err != nil && d.lost != forward.Queued {
			err = fmt.Errorf("%w: packets were lost here: %v", err, d.lost)
		}
	}()
	// Bit 0 is for the other next hop of this node, bit 1 for that of the peer. Most paths are the same in both directions.
	for attempt, change := range [...]uint8{0, 3, 1, 2} {
		limited, cancel := context.WithTimeout(ctx, handshakeTime<<attempt)
		path, before := salt^change, err
		c, err = e.quic.Dial(limited, (&address{node: id, salt: path}).text(), addr)
		cancel()
		if ctx.Err() != nil { // NodeGone does not see a connection that is not registered yet.
			if err == nil {
				c.Close()
			}
			if err = context.Cause(ctx); before != nil { // Over that path the peer may have refused the connection.
				err = fmt.Errorf("%w; over another path: %v", err, before)
			}
			return nil, err
		}
		if err == nil {
			e.prefer(id, path)
			return c, nil
		}
		if errors.Is(err, transport.ErrClosed) {
			return nil, err
		}
	}
	e.prefer(id, uint8(rand.Uint32()))
	return nil, err
}

// prefer makes the next Dial begin with a salt.
func (e *Endpoint) prefer(id membership.NodeID, salt uint8) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.salts[id] = salt
}

// A conn names the path in the error of its end.
type conn struct {
	*quic.Conn
	endpoint *Endpoint
}

func (e *Endpoint) wrap(c transport.Conn) transport.Conn { return &conn{c.(*quic.Conn), e} }

// Err implements [transport.Conn].
func (c *conn) Err() error {
	err := c.Conn.Err()
	if errors.Is(err, transport.ErrPeerGone) {
		return fmt.Errorf("relay: conn of node %v with node %s%s: %w", c.endpoint.cfg.Self, c.Peer(), c.endpoint.via(c.Peer()), err)
	}
	return err
}

// via names the first relays on the paths to a node.
func (e *Endpoint) via(addr string) string {
	id, err := membership.ParseNodeID(addr)
	if err != nil || id == e.cfg.Self {
		return ""
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return fmt.Sprintf(" over the relays %v", e.cfg.Routes.NextHops(id, 0, nil))
}

// Accept implements [transport.Transport].
func (e *Endpoint) Accept(ctx context.Context) (transport.Conn, error) {
	c, err := e.quic.Accept(ctx)
	if err != nil {
		return nil, fmt.Errorf("relay: accept: %w", err)
	}
	return e.wrap(c), nil
}

// NodeGone ends the conns to a node that has died, and the dials.
func (e *Endpoint) NodeGone(id membership.NodeID) {
	e.mu.Lock()
	delete(e.salts, id)
	for d := range e.dials {
		if d.peer == id {
			d.cancel(transport.ErrPeerGone)
		}
	}
	e.mu.Unlock()
	e.quic.PeerGone(id.String(), "it was reported to be gone")
}

// isolated returns a channel that is closed when there is no neighbor.
func (e *Endpoint) isolated() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.alone
}

// Flush waits until this node has written its packets, such as those that end conns, there is no neighbor, or ctx ends.
func (e *Endpoint) Flush(ctx context.Context) {
	e.awaitWritten(ctx.Done(), e.hasUnwrittenLocked)
}

// hasUnwrittenLocked reports whether frames of this node wait for neighbors, or any are being written.
func (e *Endpoint) hasUnwrittenLocked() bool {
	for _, v := range e.neighbors {
		if v.writing {
			return true
		}
	}
	return e.node.Waiting() > 0
}

// awaitWritten waits until frames have been written such that a condition does not hold any more, or until the end.
func (e *Endpoint) awaitWritten(end <-chan struct{}, whileLocked func() bool) {
	for {
		e.mu.Lock()
		written, waits := e.written.Next(), whileLocked()
		e.awaited = e.awaited || waits
		e.mu.Unlock()
		if !waits {
			return
		}
		select {
		case <-written:
		case <-end:
			return
		}
	}
}

// wroteLocked wakes those that wait until frames have been written.
func (e *Endpoint) wroteLocked() {
	if e.awaited {
		e.awaited = false
		e.written.Send()
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

// Close implements [transport.Transport]. It also stops relaying.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	again := e.closed
	e.closed = true
	e.mu.Unlock()
	if again {
		<-e.done
		return nil
	}
	defer close(e.done)
	e.socket.Close()
	limited, cancel := context.WithTimeout(context.Background(), deadline.Linger)
	defer cancel()
	e.Flush(limited)
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
	return nil
}

// sendPacket sends a packet of this node. It waits while many packets wait for the same neighbor, up to roomTime, and only once for a neighbor
// that does not read: quic-go sends refusals and resets of all connections on one goroutine.
func (e *Endpoint) sendPacket(f forward.Frame, packet []byte) {
	e.mu.Lock()
	mustWait := func() bool {
		to, waits := e.node.Waits(f)
		return waits >= roomMin && !e.neighbors[to].isSlow
	}
	isFull := mustWait()
	e.mu.Unlock()
	if isFull {
		limited, cancel := context.WithTimeout(context.Background(), roomTime)
		defer cancel()
		e.awaitWritten(limited.Done(), mustWait)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if to, waits := e.node.Waits(f); isFull && waits >= roomMin {
		e.neighbors[to].isSlow = true
	}
	e.sendLocked(f, packet)
}

// send sends a frame of this node.
func (e *Endpoint) send(f forward.Frame) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sendLocked(f, nil)
}

// answer answers a question that a neighbor has delivered.
func (e *Endpoint) answer(v *neighbor, f forward.Frame) {
	e.mu.Lock()
	defer e.mu.Unlock()
	reply := forward.Frame{Kind: forward.Answer, Salt: forward.ReplySalt(f.Salt), Source: e.cfg.Self, Destination: f.Source, Payload: f.Payload}
	if o, to := e.node.Answer(time.Now(), v.id, reply); o == forward.Queued {
		e.neighbors[to].wakeUp()
	}
}

// sendLocked sends a frame of this node, and notes why it is lost.
func (e *Endpoint) sendLocked(f forward.Frame, packet []byte) {
	o, to := e.node.Send(time.Now(), f, packet)
	if o == forward.Queued {
		e.neighbors[to].wakeUp()
		return
	}
	for d := range e.dials {
		if d.peer == f.Destination {
			d.lost = o
		}
	}
}

// receive handles a frame of a neighbor.
func (e *Endpoint) receive(v *neighbor, f forward.Frame) error {
	e.mu.Lock()
	if e.neighbors[v.id] != v {
		e.mu.Unlock()
		return transport.ErrClosed
	}
	o, to, err := e.node.Receive(time.Now(), v.id, f)
	if o == forward.Queued {
		e.neighbors[to].wakeUp()
	}
	e.mu.Unlock()
	switch {
	case err != nil:
		return violation(err)
	case o != forward.Delivered || f.Source == e.cfg.Self:
	case f.Kind == forward.Packets && forward.IsValid(f.Payload):
		e.packets.deliver(f.Payload, &address{f.Source, forward.ReplySalt(f.Salt), v.id})
	case f.Kind == forward.Question && len(f.Payload) == numberSize:
		e.answer(v, f)
	case f.Kind == forward.Answer && len(f.Payload) == numberSize:
		e.packets.answer(f.Source, f.Payload)
	}
	return nil
}
