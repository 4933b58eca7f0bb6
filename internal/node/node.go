// Package node makes this process a node of a cluster, or its seed.
//
// Most callers call Join: it asks a seed for a place, listens on the ways on which
// others reach this node, and links it to all other nodes, be it with those that
// form a world together or to one that has formed without it. What the nodes do with
// their links is the affair of others.
//
// Join gives up when its ctx ends, and leaves nothing behind then. A Node may be
// used by several goroutines.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/internal/host"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/mesh"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/mem"
	"github.com/nexar-go/nexar/transport/quic"
)

// closeTimeout is how long Close waits for peers to read what was sent.
const closeTimeout = 5 * time.Second

// Config is what a node needs to join a cluster.
type Config struct {
	// Seeds are the addresses of the seeds, and Timeout how long one is looked for;
	// 0 is a minute, less than 0 without limit.
	Seeds   []string
	Timeout time.Duration
	// Request is what is asked of the seed, save for candidates for addresses.
	Request client.Request
	// Listen is where the node listens. Packets, if not nil, takes the place of a
	// UDP socket there; over it there is QUIC alone.
	Listen  string
	Packets net.PacketConn
	// Transports are those that it may use.
	Transports Transports
	// Areas is how many areas of memory it shares with others of its host, and
	// AreaSize the length of each in bytes.
	Areas, AreaSize int
	// PlainBulk leaves unprotected what goes over TCP.
	PlainBulk bool
	// HeartbeatInterval and HeartbeatTimeout are those of the mesh.
	HeartbeatInterval, HeartbeatTimeout time.Duration
	// RecoveryTimeout and CollectiveTimeout are for how long others wait for this node
	// before they take it for the one that is late; 0 or less is for ever.
	RecoveryTimeout, CollectiveTimeout time.Duration
	Log                                *slog.Logger
}

// A Node is this process in a cluster.
type Node struct {
	Session *client.Session
	Mesh    *mesh.Mesh
	// View is the first with this node. If Late, the world has formed without it.
	View membership.View
	Late bool
	// Lacks are the transports that cannot be used, and why.
	Lacks []string

	cfg     Config
	broken  error // what is wrong with the links of a node that joins
	sockets *sockets
	creds   *pendingCredentials
	extra   []transport.Transport // from factories, until they are in paths
	paths   []mesh.Path           // to other nodes
	others  atomic.Pointer[membership.View]

	mu       sync.Mutex
	mesh     *mesh.Mesh        // that is to expect others
	expected []membership.Node // as long as this node is in no view
	inside   bool              // it is in one
	failures []Failure
	failed   chan struct{} // closed when there is another one
}

// A Failure is that of another node.
type Failure struct {
	Rank int // that it had
	Node membership.Node
	Err  error
}

// A PeerError is a failure of another node while a world forms.
type PeerError struct {
	Rank int
	Node membership.Node
	Err  error
}

func (e *PeerError) Error() string { return fmt.Sprintf("rank %d %v: %v", e.Rank, e.Node, e.Err) }
func (e *PeerError) Unwrap() error { return e.Err }

// Join joins a cluster. It returns when this node is linked to all others of a view
// that it is in.
func Join(ctx context.Context, cfg Config) (*Node, error) {
	n := &Node{cfg: cfg, failed: make(chan struct{})}
	if err := n.join(ctx); err != nil {
		n.abandon()
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.inside, n.expected = true, nil
	return n, nil
}

// ID is the identity of the node.
func (n *Node) ID() membership.NodeID { return n.Session.ID }

// join does the work of Join. What it has made when it fails is in n.
func (n *Node) join(ctx context.Context) (err error) {
	n.sockets, err = openSockets(ctx, n.cfg.Listen, n.cfg.Packets, n.cfg.Transports, quic.Config{
		Log:       n.cfg.Log,
		Heartbeat: -1, // The mesh has its own, for the peers that it watches.
		Watch: func(peer string) bool {
			v := n.others.Load()
			return v == nil || membership.Watches(v, n.ID(), peer, mesh.WatchedMax)
		},
	})
	if err != nil {
		return err
	}
	request := n.cfg.Request
	request.Candidates, request.Expect, request.Forget = host.Addrs(n.sockets.addr), n.expect, n.forget
	request.Port, request.Listen = portOf(n.sockets.addr), n.announce
	seeds := client.Seeds{Addrs: n.cfg.Seeds, Timeout: n.cfg.Timeout, Log: n.cfg.Log, Dial: n.sockets.dialSeed}
	if n.Session, err = seeds.Join(ctx, request); err != nil {
		return err
	}
	// Others dial this node as soon as they have the view, which they can
	// have before it.
	n.creds.admit(n.Session.Identity)
	if err := n.listen(); err != nil {
		return err
	}
	n.Lacks = slices.Clone(n.sockets.lacks)
	v, invitation, err := n.Session.Begin(ctx, 0)
	if err != nil {
		return err
	}
	if invitation.Number > 0 {
		return n.enter(ctx, invitation)
	}
	return n.form(ctx, v)
}

// form links this node to the others of the first view.
func (n *Node) form(ctx context.Context, v membership.View) (err error) {
	linking, cancel := n.Session.While(ctx)
	defer cancel()
	n.View = v
	n.Mesh, err = n.link(linking, v, v.Size())
	switch {
	case err != nil && ctx.Err() != nil:
		return late(ctx, v, err)
	case err != nil:
		peer, err := n.blame(err)
		return n.Session.Unreachable(ctx, peer, err)
	}
	if err := n.Session.Ready(ctx); err != nil {
		return err
	}
	if u, ok := errors.AsType[*mesh.UnreachableError](n.Mesh.Formed()); ok {
		return &PeerError{Rank: u.Rank, Node: v.Nodes[u.Rank], Err: u.Reason()}
	}
	return nil
}

// enter links this node to a world that has formed, and waits until it is in its
// view. Invitations may follow each other, as nodes of the world fail.
func (n *Node) enter(ctx context.Context, i client.Invitation) (err error) {
	n.Late = true
	for {
		number := i.Number
		if err := n.tryToEnter(ctx, i); err != nil {
			return err
		}
		if n.View, i, err = n.Session.Begin(ctx, number); err != nil {
			return err
		}
		if i.Number == 0 {
			n.others.Store(&n.View)
			return n.broken // In the view, and of no use there: it had lost a link by then.
		}
		if n.Mesh != nil {
			n.Mesh.Abort()
			n.Mesh = nil
		}
	}
}

// tryToEnter links this node to the nodes of the world that an invitation names, and to
// those that join beside it as far as they can be reached, and tells the seed whether that
// has worked, unless there is another invitation by then.
func (n *Node) tryToEnter(ctx context.Context, i client.Invitation) error {
	linking, cancel := n.Session.WhileInvited(ctx, i.Number)
	defer cancel()
	m, err := n.link(linking, i.View, i.World)
	if err == nil {
		n.Mesh = m // It is known whom to close.
		for _, id := range m.JoiningPeers() {
			n.Session.Link(id, true)
		}
		// What is said of links after that is of these, and not of those before.
		n.Session.Linked(i.Number)
		err = m.Formed()
		n.broken = err
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return late(ctx, i.View, err)
	case err != nil && linking.Err() == nil:
		peer, err := n.blame(err)
		n.Session.Lost(peer, err)
	}
	return nil
}

// link makes all links to others, of whom so many are in the world.
func (n *Node) link(ctx context.Context, v membership.View, world int) (*mesh.Mesh, error) {
	n.others.Store(&v)
	m, err := mesh.Form(ctx, mesh.Config{
		Self: n.ID(), View: v, World: world, Paths: n.paths, Loop: mem.Loop, Log: n.cfg.Log,
		HeartbeatInterval: n.cfg.HeartbeatInterval, HeartbeatTimeout: n.cfg.HeartbeatTimeout,
		SettleTimeout: n.cfg.settleTimeout(), Linked: n.Session.Link,
		Lost: n.Session.Lost, Left: n.Session.Left, Failed: n.note, Newest: n.Session.Newest,
	})
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	n.mesh = m
	m.Expect(n.expected)
	n.mu.Unlock()
	return m, nil
}

// expect lets other nodes link themselves to this one.
func (n *Node) expect(nodes []membership.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range nodes {
		if _, known := (membership.View{Nodes: n.expected}).Rank(m.ID); !known && !n.inside {
			n.expected = append(n.expected, m)
		}
	}
	if n.mesh != nil {
		n.mesh.Expect(nodes)
	}
}

// forget does not expect another node any more.
func (n *Node) forget(id membership.NodeID) {
	n.mu.Lock()
	n.expected = slices.DeleteFunc(n.expected, func(m membership.Node) bool { return m.ID == id })
	m := n.mesh
	n.mu.Unlock()
	if m != nil {
		m.Forget(id)
	}
}

// note keeps a failure for those who ask.
func (n *Node) note(rank int, failed membership.Node, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failures = append(n.failures, Failure{rank, failed, err})
	close(n.failed)
	n.failed = make(chan struct{})
}

// Failures are those of others after the first few, and a channel that is closed when
// there is another one.
func (n *Node) Failures(after int) (list []Failure, more <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failures[after:], n.failed
}

// late is the error of a node whose time is up while it links itself to the others of
// a view. It says whom it lacks, and blames nobody.
func late(ctx context.Context, v membership.View, err error) error {
	lacks := fmt.Sprintf("%d nodes", v.Size())
	if u, ok := errors.AsType[*mesh.UnreachableError](err); ok {
		if rank, ok := v.Rank(u.Node); ok {
			lacks = fmt.Sprintf("rank %d %v", rank, v.Nodes[rank])
		}
	}
	return fmt.Errorf("%w: this node was still linking itself to %s", context.Cause(ctx), lacks)
}

// blame is the node that an error is about.
func (n *Node) blame(err error) (membership.NodeID, error) {
	if u, ok := errors.AsType[*mesh.UnreachableError](err); ok {
		return u.Node, u.Reason()
	}
	return n.ID(), err
}

// Close leaves the cluster in good order.
func (n *Node) Close() error {
	// The seed hears first that this is no failure.
	return errors.Join(n.Session.Close(), CloseMesh(n.Mesh), n.sockets.close())
}

// CloseMesh ends all links in good order.
func CloseMesh(m *mesh.Mesh) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return m.Close(ctx)
}

// abandon drops what a failed join has made.
func (n *Node) abandon() {
	if n.Mesh != nil {
		CloseMesh(n.Mesh)
	} else {
		for _, p := range n.paths {
			p.Transport.Close()
		}
	}
	if n.Session != nil {
		n.Session.Close()
	}
	n.closeExtra()
	if n.sockets != nil {
		n.sockets.close()
	}
}

// settleTimeout is how long the links of a node that has just entered may be missing: as
// long as a peer may be silent, and at most half of the time that others wait for this
// node. 0 leaves it to the mesh.
func (cfg *Config) settleTimeout() (least time.Duration) {
	for _, d := range []time.Duration{cfg.HeartbeatTimeout, cfg.RecoveryTimeout / 2, cfg.CollectiveTimeout / 2} {
		if d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	return least
}

// portOf is the port of an address, 0 if it has none.
func portOf(addr string) int {
	_, port, _ := net.SplitHostPort(addr)
	n, _ := strconv.ParseUint(port, 10, 16)
	return int(n)
}
