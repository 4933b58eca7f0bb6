// Package mesh links a node to all other nodes of its view, and watches over
// the links.
//
// Form dials the nodes before this one in the view and accepts those behind
// it; it returns when every link stands. When a node fails, whoever notices
// tells all others, so that the failure of a node ends what waits for it on
// every rank and not only on its neighbours.
package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/member"
	"github.com/nexar-go/nexar/transport"
)

// Config configures a Mesh.
type Config struct {
	// Self is this node, and View all nodes.
	Self member.NodeID
	View member.View
	// Transport reaches them. Close closes it.
	Transport transport.Transport
	// Loop makes both ends of a connection from this node to itself.
	Loop func(ctx context.Context) (out, in transport.Conn, err error)
	// HeartbeatInterval is how often a silent peer that this node watches is
	// asked for a sign of life, and HeartbeatTimeout how long it may be
	// silent. 0 means never.
	HeartbeatInterval, HeartbeatTimeout time.Duration
	// EagerMax is that of the engine.
	EagerMax int
	// Log takes notes; nil discards them.
	Log *slog.Logger
}

// A Mesh is the links of a node to all nodes of its view.
type Mesh struct {
	cfg    Config
	rank   int
	engine *engine.Engine
	log    *slog.Logger

	mu      sync.Mutex
	links   []*link.Link  // by rank
	loop    *link.Link    // the other end of the link to itself
	missing int           // links
	changed chan struct{} // gets a value when none is missing
	formed  bool
	redial  func(rank int) // makes a link again
	failed  map[int]bool   // by rank
	closing bool

	closed   chan struct{} // by Close, at its end
	closeErr error

	start func() // begins to watch over the peers
	stop  context.CancelFunc
	wg    sync.WaitGroup
}

// An UnreachableError says to which rank no link could be made.
type UnreachableError struct {
	Rank  int
	Node  member.NodeID
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
// but the transport.
func Form(ctx context.Context, cfg Config) (*Mesh, error) {
	rank, ok := cfg.View.Rank(cfg.Self)
	if !ok {
		return nil, fmt.Errorf("mesh: this node (%s) is not in the view", cfg.Self)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	m := &Mesh{
		cfg: cfg, rank: rank, log: cfg.Log,
		links: make([]*link.Link, cfg.View.Size()), missing: cfg.View.Size() - 1,
		changed: make(chan struct{}, 1), failed: make(map[int]bool), closed: make(chan struct{}),
	}
	m.engine = engine.New(engine.Config{
		EagerMax: cfg.EagerMax, Log: cfg.Log, Lost: m.lost, Failed: m.told, Left: m.left,
	})
	run, stop := context.WithCancel(context.Background())
	m.stop = stop
	m.start = func() { m.wg.Go(func() { m.watch(run) }) }
	m.redial = func(rank int) {
		m.wg.Go(func() {
			if err := m.dial(run, rank); err != nil {
				m.log.Warn("lost a link that was just made", m.note(rank), "err", err)
			}
		})
	}
	if err := m.form(ctx, run); err != nil {
		m.abort()
		return nil, err
	}
	return m, nil
}

// Formed says that all nodes have made their links. Until then a link that is
// lost is made again, because its other end may never have seen it stand;
// from now on its end is the failure of a node. Formed returns the links.
func (m *Mesh) Formed() ([]*link.Link, error) {
	m.mu.Lock()
	missing := m.missing
	m.formed = missing == 0
	m.mu.Unlock()
	if missing > 0 {
		return nil, m.unlinked(transport.ErrPeerGone)
	}
	m.start()
	return m.links, nil
}

// form makes all links: to itself, to the ranks before it, from those behind.
func (m *Mesh) form(ctx, run context.Context) error {
	out, in, err := m.cfg.Loop(ctx)
	if err != nil {
		return fmt.Errorf("mesh: link to itself: %w", err)
	}
	if m.links[m.rank], err = m.newLink(ctx, out, m.rank); err != nil {
		in.Close()
		return err
	}
	if m.loop, err = m.newLink(ctx, in, m.rank); err != nil {
		return err
	}
	m.wg.Go(func() { m.accept(run) })
	dialing, ctx, cancel := shares(ctx)
	errs := make(chan error, m.rank)
	var dials sync.WaitGroup
	defer func() { cancel(); dials.Wait() }()
	slots := make(chan struct{}, dialsMax)
	for rank := m.rank - 1; rank >= 0; rank-- {
		dials.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if err := m.dial(dialing, rank); err != nil {
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
	return nil
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
	for rank, l := range m.links {
		if l == nil {
			n := m.cfg.View.Nodes[rank]
			err := &UnreachableError{Rank: rank, Node: n.ID, Addrs: n.Addrs, Err: cause}
			if rank > m.rank {
				err.Err = fmt.Errorf("it has not connected to this node: %w", cause)
			}
			return err
		}
	}
	return cause
}

// newLink makes a link of a connection, or closes it.
func (m *Mesh) newLink(ctx context.Context, c transport.Conn, rank int) (*link.Link, error) {
	l, err := link.New(ctx, c, m.engine, link.Config{Peer: rank, Log: m.log})
	if err != nil {
		c.Close()
	}
	return l, err
}

// add takes a connection to a rank as its link.
func (m *Mesh) add(ctx context.Context, c transport.Conn, rank int) error {
	l, err := m.newLink(ctx, c, rank)
	if err != nil {
		return err
	}
	m.mu.Lock()
	refuse := m.closing || m.formed
	old := m.links[rank]
	if !refuse {
		m.links[rank] = l
		if old == nil {
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
	select {
	case <-c.Done():
		m.lost(l, c.Err()) // Nobody knew the link if its end was told before.
	default:
	}
	return nil
}

// unlink forgets a link that was lost before all nodes had made theirs. It
// reports false if that is not so.
func (m *Mesh) unlink(l *link.Link) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.formed {
		return false
	}
	if m.links[l.Peer] != l {
		return true
	}
	m.links[l.Peer] = nil
	m.missing++
	if l.Peer < m.rank && !m.closing {
		m.redial(l.Peer)
	}
	return true
}

// accept takes the connections of the ranks behind this one.
func (m *Mesh) accept(ctx context.Context) {
	for {
		c, err := m.cfg.Transport.Accept(ctx)
		if err != nil {
			return
		}
		id, err := member.ParseNodeID(c.Peer())
		rank, ok := m.cfg.View.Rank(id)
		if err != nil || !ok || rank <= m.rank {
			m.log.Warn("refused a connection", "from", c.RemoteAddr(), "peer", c.Peer())
			c.Close()
			continue
		}
		if err := m.add(ctx, c, rank); err != nil {
			m.log.Warn("lost a connection that was just made", "rank", rank, "err", err)
		}
	}
}

// Engine is the engine that the links serve.
func (m *Mesh) Engine() *engine.Engine { return m.engine }

// Rank is the rank of this node in its view.
func (m *Mesh) Rank() int { return m.rank }
