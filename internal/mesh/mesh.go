// Package mesh links a node to all other nodes of its view, and watches over
// the links.
//
// Form dials the nodes before this one in the view and accepts those behind
// it, over the best of several paths; it returns when every link stands. Paths
// tells which way each node is reached. When a node fails, whoever notices
// tells all others, so that the failure of a node ends what waits for it on
// every rank and not only on its neighbours.
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

// Config configures a Mesh.
type Config struct {
	// Self is this node, and View all nodes. World of them, the first ones, are in
	// the world; 0 is all. Those behind them wait for it to let them in, as this node
	// does: Form links it to them as far as they can be reached soon.
	Self  membership.NodeID
	View  membership.View
	World int
	// Paths reach them, the best first. Close closes their transports.
	Paths []Path
	// Loop makes both ends of a connection from this node to itself.
	Loop func(ctx context.Context) (out, in transport.Conn, err error)
	// HeartbeatInterval is how often a silent peer that this node watches is
	// asked for a sign of life, and HeartbeatTimeout how long it may be
	// silent. 0 means never.
	HeartbeatInterval, HeartbeatTimeout time.Duration
	// SettleTimeout is how long Adopt waits for links to nodes that are new in a view. 0
	// is HeartbeatTimeout, or else settleDefault.
	SettleTimeout time.Duration
	// Linked is called when the link to an expected node stands, or is lost. The last call
	// has the present state. It must not block; nil ignores.
	Linked func(id membership.NodeID, up bool)
	// Lost is called when this node has lost its link to another, but not when
	// others have. It must not block; nil ignores.
	Lost func(id membership.NodeID, err error)
	// Left is called when another node has taken its leave of this one. It must not
	// block; nil ignores.
	Left func(id membership.NodeID)
	// Failed is called when a node counts as failed, with its last rank, whether this
	// node or another one has lost it. It is not called for a node that leaves, unless
	// its goodbye does not reach another node, nor for one that is not in the next
	// view for another reason. It must not block; nil ignores.
	Failed func(rank int, n membership.Node, err error)
	// Newest returns the newest view that the seed has made, which this node may not have
	// adopted. Peers that are not in it are watched. It must not block; nil is the view
	// that this node has adopted.
	Newest func() membership.View
	// EagerMax is that of the engine.
	EagerMax int
	// Log takes notes; nil discards them.
	Log *slog.Logger
}

// A Mesh is the links of a node to all nodes of its view.
//
// Its nodes have seats, which they keep: those of the first view have their ranks
// there, and those that are expected later the next ones, in the order in which
// this node hears of them.
type Mesh struct {
	cfg    Config
	self   int // the seat of this node
	engine *engine.Engine
	minder link.Minder
	log    *slog.Logger

	// telling is held while apply changes the state of a peer and carries the
	// effects out: an event that arrives meanwhile must find all of them done.
	telling sync.Mutex
	// reporting is held while cfg.Linked is called, so that the last call has the present
	// state.
	reporting sync.Mutex

	mu       sync.Mutex
	nodes    []membership.Node // by seat, as are all that follow
	ranks    []int             // the last that they had, -1: none yet
	links    []*link.Link
	routes   []*route
	free     []int                  // seats of nodes that did not come, to be used again
	expected map[int]bool           // they are in no view yet
	grown    chan struct{}          // closed when there is a link to one of these
	states   []membership.PeerState // changed by apply, Expect and shut
	reports  []error                // of other nodes about each, the first since it was linked
	parted   map[int]func() bool    // whether those whose links have ended are gone

	view    membership.View // the newest
	loop    *link.Link      // the other end of the link to itself
	missing int             // links to nodes of the first view that are required
	changed chan struct{}   // gets a value when none is missing
	formed  bool
	redial  func(seat int) // makes a link again
	closing bool

	arrivals arrivals
	lobby    *lobby

	closed   chan struct{} // by Close, at its end
	closeErr error

	start func() // begins to watch over the peers
	stop  context.CancelFunc
	wg    sync.WaitGroup
}

// An UnreachableError says to which rank no link could be made.
type UnreachableError struct {
	Rank  int
	Node  membership.NodeID
	Addrs []string
	Err   error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("cannot reach rank %d (%s) at %s: %v", e.Rank, e.Node, list(e.Addrs), e.Err)
}

// Reason is the error without the rank.
func (e *UnreachableError) Reason() error { return fmt.Errorf("at %s: %w", list(e.Addrs), e.Err) }

func (e *UnreachableError) Unwrap() error { return e.Err }

// Form links this node to all others. If it fails it leaves nothing behind
// but the transports.
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
		expected: make(map[int]bool), grown: make(chan struct{}), parted: make(map[int]func() bool),
		changed:  make(chan struct{}, 1),
		arrivals: arrivals{conns: make(map[arrival]transport.Conn)}, lobby: newLobby(), closed: make(chan struct{}),
	}
	for rank, n := range cfg.View.Nodes {
		if m.seat(n, rank); rank != self && m.isRequired(rank) {
			m.missing++
		}
	}
	m.engine = engine.New(engine.Config{EagerMax: cfg.EagerMax, Log: cfg.Log})
	run, stop := context.WithCancel(context.Background())
	m.stop = stop
	m.start = func() { m.wg.Go(func() { m.watch(run) }) }
	m.redial = func(seat int) {
		m.wg.Go(func() {
			if err := m.dial(run, seat); err != nil {
				m.log.Warn("lost a link that was just made", m.note(seat), "err", err)
			}
		})
	}
	if err := m.form(ctx, run); err != nil {
		m.Abort()
		return nil, err
	}
	return m, nil
}

// Formed says that all nodes have made their links. Until then a link that is
// lost is made again, because its other end may never have seen it stand;
// from now on its end is the failure of a node.
func (m *Mesh) Formed() error {
	m.mu.Lock()
	missing := m.missing
	m.formed = missing == 0
	var beside []int // nodes that join as this one does
	for seat := m.cfg.World; m.formed && m.cfg.World > 0 && seat < m.cfg.View.Size(); seat++ {
		if seat != m.self {
			m.expected[seat] = true
			beside = append(beside, seat)
		}
	}
	m.mu.Unlock()
	if missing > 0 {
		return m.unlinked(transport.ErrPeerGone)
	}
	for _, seat := range beside {
		m.reportLink(seat)
	}
	m.start()
	return nil
}

// form makes all links: to itself, to the ranks before it, from those behind.
func (m *Mesh) form(ctx, run context.Context) error {
	out, in, err := m.cfg.Loop(ctx)
	if err != nil {
		return fmt.Errorf("mesh: link to itself: %w", err)
	}
	here, err := m.newLink(ctx, &route{conn: out}, m.self, link.Config{})
	if err != nil {
		in.Close()
		return err
	}
	m.mu.Lock()
	m.links[m.self] = here
	m.mu.Unlock()
	there, err := m.newLink(ctx, &route{conn: in}, m.self, link.Config{})
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.loop = there
	m.mu.Unlock()
	for i := range m.cfg.Paths {
		m.wg.Go(func() { m.accept(run, &m.cfg.Paths[i]) })
	}
	dialing, ctx, cancel := shares(ctx)
	errs := make(chan error, m.self)
	var dials sync.WaitGroup
	defer func() { cancel(); dials.Wait() }()
	slots := make(chan struct{}, dialsMax)
	for seat := m.self - 1; seat >= 0; seat-- {
		if !m.isRequired(seat) {
			continue
		}
		dials.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := m.dial(dialing, seat); err != nil {
				errs <- err
			}
		})
	}
	for !m.isComplete() {
		select {
		case <-m.changed:
		case err := <-errs:
			return err
		case <-ctx.Done():
			return m.unlinked(context.Cause(ctx))
		}
	}
	m.dialBeside(dialing)
	return nil
}

// isRequired reports whether Form fails without a link to a node of the first view.
func (m *Mesh) isRequired(seat int) bool {
	return seat < m.cfg.View.Size() && (m.cfg.World == 0 || seat < m.cfg.World)
}

func (m *Mesh) isComplete() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.missing == 0
}

// unlinked says which rank has not come.
func (m *Mesh) unlinked(cause error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for seat, l := range m.links {
		if l == nil && !m.expected[seat] && m.isRequired(seat) {
			n := m.nodes[seat]
			err := &UnreachableError{Rank: m.ranks[seat], Node: n.ID, Addrs: n.Addrs, Err: cause}
			if seat > m.self {
				err.Err = fmt.Errorf("it has not connected to this node: %w", cause)
			}
			err.Err = m.orFiles(err.Err)
			return err
		}
	}
	return cause
}

// orFiles adds to why a node is not reached that this process has had no files for
// sockets: then what it got from others, as their silence, says little.
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
func (m *Mesh) newLink(ctx context.Context, r *route, seat int, cfg link.Config) (*link.Link, error) {
	cfg.Peer, cfg.Log, cfg.Minder = seat, m.log, &m.minder
	l, err := link.New(ctx, r.conn, handler{m.engine, m}, cfg)
	if err != nil {
		r.close()
	}
	return l, err
}

// A handler passes the frames of a link to the engine, and its end and reports of
// failures to the mesh, which tells the engine the consequences. It ignores the
// ends of links that are not in use: for the engine, a node has one link.
type handler struct {
	*engine.Engine
	mesh *Mesh
}

func (h handler) Lost(l *link.Link, err error) {
	if h.mesh.uses(l) {
		h.mesh.lost(l, err)
	}
}

func (h handler) Left(l *link.Link) {
	if h.mesh.uses(l) {
		h.mesh.left(l)
	}
}

func (h handler) Failed(l *link.Link, f wire.Failed, text string) { h.mesh.told(l, f, text) }

func (m *Mesh) uses(l *link.Link) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.links[l.Peer] == l || m.loop == l
}

// add puts a link to a rank to use.
func (m *Mesh) add(l *link.Link, r *route) error {
	seat := l.Peer
	m.mu.Lock()
	// The number may belong to another node by now.
	refuse := m.closing || m.formed && !m.expected[seat] || r.peer != (membership.NodeID{}) && r.peer != m.nodes[seat].ID
	old, expected := m.links[seat], m.expected[seat]
	if !refuse {
		m.links[seat], m.routes[seat] = l, r
		delete(m.parted, seat) // if it has come again
		switch {
		case expected:
			close(m.grown)
			m.grown = make(chan struct{})
		case old == nil && m.isRequired(seat):
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
	case refuse:
		l.Abort()
		return errors.New("mesh: a second connection")
	case old != nil:
		old.Abort() // Its other end has given it up.
	}
	if expected {
		m.reportLink(seat)
	}
	i := r.info(seat, m.node(seat).ID)
	m.log.Debug("linked a node", m.note(seat), "path", i.Link, "bulk", i.Bulk, "why", i.Why)
	select {
	case <-l.Done():
		// Nobody knew the link if its end was told before.
		m.lost(l, cmp.Or(l.Err(), transport.ErrPeerClosed))
	default:
	}
	return nil
}

// unlink forgets a link that was lost before all nodes had made theirs. It
// reports false if that is not so.
func (m *Mesh) unlink(l *link.Link) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	expected := m.expected[l.Peer]
	if m.formed && !expected {
		return false
	}
	if m.links[l.Peer] != l {
		return true
	}
	m.links[l.Peer], m.routes[l.Peer] = nil, nil
	if expected || !m.isRequired(l.Peer) {
		return true // It makes another one, or does not come.
	}
	m.missing++
	if l.Peer < m.self && !m.closing {
		m.redial(l.Peer)
	}
	return true
}

// Engine is the engine that the links serve.
func (m *Mesh) Engine() *engine.Engine { return m.engine }

// Self is this node.
func (m *Mesh) Self() membership.NodeID { return m.cfg.Self }
