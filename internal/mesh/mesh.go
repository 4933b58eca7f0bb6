// Package mesh links a node to all other nodes of its view and watches the links.
//
// [Form] dials the nodes before this one in the view and accepts the nodes behind it, over
// the best of several paths. It returns when every link is up. [Mesh.Paths] reports
// the path to each node. A node that loses a link tells all others, so that the failure of a
// node ends the operations that wait for it on every rank.
package mesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// Config configures a Mesh. Its functions must not block; nil functions are not called.
type Config struct {
	// Self returns the ID of this node. View lists all nodes: the first World of them are in the
	// world, or all if World is 0. The others are joining, as this node is. Form links
	// this node to a joining node if it can do so quickly.
	Self  membership.NodeID
	View  membership.View
	World int
	// Paths are tried in order of preference. Close closes their transports.
	Paths []Path
	// Loop makes both ends of a connection from this node to itself.
	Loop func(ctx context.Context) (out, in transport.Conn, err error)
	// HeartbeatInterval is the silence after which a watched peer is sent a ping, and
	// HeartbeatTimeout the silence after which its link fails. 0 disables both.
	HeartbeatInterval, HeartbeatTimeout time.Duration
	// SettleTimeout is how long Adopt waits for links to the new nodes of a view. The
	// default is HeartbeatTimeout, or settleDefault without one.
	SettleTimeout time.Duration
	// Linked is called when the link to an expected node comes up or is lost. The last
	// call has the current state.
	Linked func(id membership.NodeID, up bool)
	// Lost is called when this node has lost its own link to another node.
	Lost func(id membership.NodeID, err error)
	// Left is called when this node has received the goodbye of another node.
	Left func(id membership.NodeID)
	// Failed is called with the last rank of a node that this node or another one has
	// lost. It is not called for a node that leaves, unless its goodbye misses
	// another node, nor for a node that the next view omits for another reason.
	Failed func(rank int, n membership.Node, err error)
	// Newest returns the newest view of the seed, which this node may not have adopted.
	// Peers that are not in it are watched. The default is the adopted view.
	Newest func() membership.View
	// EagerMax is engine.Config.EagerMax.
	EagerMax int
	// Log defaults to a logger that discards.
	Log *slog.Logger
}

// A Mesh holds the links of a node to all nodes of its view.
//
// Every node has a slot, whose index is Link.Peer. A node keeps its slot while its rank
// changes from view to view. In the first view the slots are the ranks; nodes that are
// expected later get the next slots in the order of Expect.
type Mesh struct {
	cfg    Config
	self   int // the slot of this node
	engine *engine.Engine
	idle   link.IdleTimer
	log    *slog.Logger

	// applying is held while apply changes the state of a peer and carries out the
	// effects, so that events are applied one after the other.
	applying sync.Mutex
	// reporting is held while cfg.Linked is called.
	reporting sync.Mutex

	mu      sync.Mutex
	peers   []peer        // by slot
	free    []int         // slots of forgotten nodes, for reuse
	grown   chan struct{} // closed when an expected node is linked
	view    membership.View
	loop    *link.Link    // the accepting end of the link to this node
	missing int           // required links of the first view that are not up
	changed chan struct{} // has a value after missing became 0
	formed  bool
	redial  func(slot int) // links a node again
	closing bool

	arrivals arrivals
	pending  *pendingConns

	closed   chan struct{} // closed when Close is done
	closeErr error

	start func() // starts to watch the peers
	stop  context.CancelFunc
	wg    sync.WaitGroup
}

// A peer is the content of a slot. Mesh.mu guards it.
type peer struct {
	node     membership.Node
	rank     int        // the latest; -1 before the first view with the node
	link     *link.Link // nil if it is not up
	route    *route     // of link
	expected bool       // the node is in no view yet
	state    membership.PeerState
	report   error       // the first report of another node since the peer was linked
	ended    func() bool // after link has ended: whether the process of the peer has, too
}

// An UnreachableError is returned if a rank could not be linked.
type UnreachableError struct {
	Rank  int
	Node  membership.NodeID
	Addrs []string
	Err   error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("cannot reach rank %d (%s) at %s: %v", e.Rank, e.Node, list(e.Addrs), e.Err)
}

// Reason returns the error without the rank.
func (e *UnreachableError) Reason() error { return fmt.Errorf("at %s: %w", list(e.Addrs), e.Err) }

func (e *UnreachableError) Unwrap() error { return e.Err }

// Form links this node to all others. If it fails, only the transports remain open.
func Form(ctx context.Context, cfg Config) (*Mesh, error) {
	self, ok := cfg.View.Rank(cfg.Self)
	if !ok {
		return nil, fmt.Errorf("mesh: this node (%s) is not in the view", cfg.Self)
	}
	if err := checkPaths(cfg.Paths); err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	m := &Mesh{
		cfg: cfg, self: self, log: cfg.Log, view: cfg.View,
		grown: make(chan struct{}), changed: make(chan struct{}, 1), closed: make(chan struct{}),
		arrivals: arrivals{conns: make(map[arrival]transport.Conn)}, pending: newPendingConns(),
	}
	for rank, n := range cfg.View.Nodes {
		if m.addPeerLocked(n, rank); rank != self && m.isRequired(rank) {
			m.missing++
		}
	}
	m.engine = engine.New(engine.Config{EagerMax: cfg.EagerMax, Log: cfg.Log})
	run, stop := context.WithCancel(context.Background())
	m.stop = stop
	m.start = func() { m.wg.Go(func() { m.watch(run) }) }
	m.redial = func(slot int) {
		m.wg.Go(func() {
			if err := m.dial(run, slot); err != nil {
				m.log.Warn("lost a link that was just made", m.note(slot), "err", err)
			}
		})
	}
	if err := m.form(ctx, run); err != nil {
		m.Abort()
		return nil, err
	}
	return m, nil
}

// Formed is called when all nodes have made their links. Before, a lost link is made again,
// because its other end may never have seen it up. Afterwards the end of a link is the
// failure of a node.
func (m *Mesh) Formed() error {
	m.mu.Lock()
	m.formed = m.missing == 0
	var joining []int
	for slot := range m.cfg.View.Size() {
		if m.formed && slot != m.self && !m.isRequired(slot) {
			m.peers[slot].expected = true
			joining = append(joining, slot)
		}
	}
	formed := m.formed
	m.mu.Unlock()
	if !formed {
		return m.missingLink(transport.ErrPeerGone)
	}
	for _, slot := range joining {
		m.reportLink(slot)
	}
	m.start()
	return nil
}

// form makes all links: to this node, to the slots before it, and from those behind it.
func (m *Mesh) form(ctx, run context.Context) error {
	if err := m.linkSelf(ctx); err != nil {
		return err
	}
	for i := range m.cfg.Paths {
		m.wg.Go(func() { m.accept(run, &m.cfg.Paths[i]) })
	}
	dialing, ctx, cancel := shares(ctx)
	errs := make(chan error, m.self)
	dials := m.dialAll(dialing, m.isRequired, func(_ int, err error) { errs <- err })
	defer func() { cancel(); dials.Wait() }()
	for !m.isComplete() {
		select {
		case <-m.changed:
		case err := <-errs:
			return err
		case <-ctx.Done():
			return m.missingLink(context.Cause(ctx))
		}
	}
	m.dialJoining(dialing)
	return nil
}

// linkSelf links this node to itself.
func (m *Mesh) linkSelf(ctx context.Context) error {
	out, in, err := m.cfg.Loop(ctx)
	if err != nil {
		return fmt.Errorf("mesh: link to itself: %w", err)
	}
	dialed, err := m.newLink(ctx, &route{conn: out}, m.self, link.Config{})
	if err != nil {
		in.Close()
		return err
	}
	m.mu.Lock()
	m.peers[m.self].link = dialed
	m.mu.Unlock()
	accepted, err := m.newLink(ctx, &route{conn: in}, m.self, link.Config{})
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.loop = accepted
	m.mu.Unlock()
	return nil
}

// dialAll links this node to the slots before it that include selects, dialsMax at a time,
// the nearest first. failed is called for each slot that cannot be linked.
func (m *Mesh) dialAll(ctx context.Context, include func(slot int) bool, failed func(slot int, err error)) *sync.WaitGroup {
	dials, tokens := new(sync.WaitGroup), make(chan struct{}, dialsMax)
	for slot := m.self - 1; slot >= 0; slot-- {
		if !include(slot) {
			continue
		}
		dials.Go(func() {
			tokens <- struct{}{}
			defer func() { <-tokens }()
			if err := m.dial(ctx, slot); err != nil {
				failed(slot, err)
			}
		})
	}
	return dials
}

// isRequired reports whether Form fails without a link to a slot of the first view.
func (m *Mesh) isRequired(slot int) bool {
	return slot < m.cfg.View.Size() && (m.cfg.World == 0 || slot < m.cfg.World)
}

func (m *Mesh) isComplete() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.missing == 0
}

// missingLink returns the error of Form: it names a required node without a link.
func (m *Mesh) missingLink(cause error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for slot, p := range m.peers {
		if p.link == nil && !p.expected && m.isRequired(slot) {
			err := &UnreachableError{Rank: p.rank, Node: p.node.ID, Addrs: p.node.Addrs, Err: cause}
			if slot > m.self {
				err.Err = fmt.Errorf("it has not connected to this node: %w", cause)
			}
			err.Err = m.orFiles(err.Err)
			return err
		}
	}
	return cause
}

// orFiles adds to the reason of a failed dial that this process has run out of file
// descriptors: the silence of the other node may be a consequence.
func (m *Mesh) orFiles(why error) error {
	for _, p := range m.cfg.Paths {
		if user := transport.CapabilitiesOf(p.Transport).FileUser; user != nil {
			if err := user.OutOfFiles(); err != nil {
				return fmt.Errorf("%w (%w)", why, err)
			}
		}
	}
	return why
}

// newLink makes a link of the connections of a route, or closes them.
func (m *Mesh) newLink(ctx context.Context, r *route, slot int, cfg link.Config) (*link.Link, error) {
	cfg.Peer, cfg.Log, cfg.IdleTimer = slot, m.log, &m.idle
	l, err := link.New(ctx, r.conn, handler{m.engine, m}, cfg)
	if err != nil {
		r.close()
	}
	return l, err
}

// A handler passes the frames of a link to the engine. Ends of links and reports of failures
// go to the mesh alone, which decides and then tells the engine the consequences.
type handler struct {
	*engine.Engine
	mesh *Mesh
}

func (h handler) Lost(l *link.Link, err error) { h.mesh.linkEnded(l, lossEvent(err), err) }

func (h handler) Left(l *link.Link) { h.mesh.linkEnded(l, membership.Goodbye, nil) }

func (h handler) Failed(l *link.Link, f wire.Failed, text string) { h.mesh.peerReported(l, f, text) }

// add puts a link into the slot of its peer. It replaces a link that the peer has given up.
func (m *Mesh) add(l *link.Link, r *route) error {
	slot := l.Peer
	m.mu.Lock()
	p := &m.peers[slot]
	// Another node may have the slot by now.
	refused := m.closing || m.formed && !p.expected || r.peer != (membership.NodeID{}) && r.peer != p.node.ID
	old, expected, id := p.link, p.expected, p.node.ID
	if !refused {
		p.link, p.route, p.ended = l, r, nil
		switch {
		case expected:
			close(m.grown)
			m.grown = make(chan struct{})
		case old == nil && m.isRequired(slot):
			m.missing--
		}
		if m.missing == 0 {
			select {
			case m.changed <- struct{}{}:
			default:
			}
		}
	}
	m.mu.Unlock()
	switch {
	case refused:
		l.Abort()
		return errors.New("mesh: a second connection")
	case old != nil:
		old.Abort()
	}
	if expected {
		m.reportLink(slot)
	}
	i := r.info(slot, id)
	m.log.Debug("linked a node", m.note(slot), "path", i.Link, "bulk", i.Bulk, "why", i.Why)
	select {
	case <-l.Done():
		// The handler ignored an end before the link was in its slot.
		err := cmp.Or(l.Err(), transport.ErrPeerClosed)
		m.linkEnded(l, lossEvent(err), err)
	default:
	}
	return nil
}

// Engine returns the engine that handles the frames of the links.
func (m *Mesh) Engine() *engine.Engine { return m.engine }

// Self returns the ID of this node.
func (m *Mesh) Self() membership.NodeID { return m.cfg.Self }
