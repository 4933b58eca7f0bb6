// Package node makes this process a node of a cluster, or its seed.
//
// [Join] registers at a seed, listens on all transports, and links the node to all other nodes, or
// with links on demand to those that it watches:
// of a world that forms with it, or of one that has formed without it. If ctx ends first, Join
// fails and releases everything. The methods of a [Node] may be called concurrently.
//
// [StartSeed] runs a seed in this process.
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
	"github.com/nexar-go/nexar/internal/wake"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/mem"
	"github.com/nexar-go/nexar/transport/quic"
)

// closeTimeout is how long Close waits for peers to read all frames.
const closeTimeout = 5 * time.Second

// Config configures a Node.
type Config struct {
	// Seeds are the addresses of the seeds. Join looks for a seed for Timeout: a minute
	// if it is 0, without limit if it is negative.
	Seeds   []string
	Timeout time.Duration
	// Request is the request to the seed. Join sets the alternate addresses.
	Request client.Request
	// Listen is the address at which the node listens. Packets, if not nil, replaces the
	// UDP socket; QUIC is then the only built-in transport between hosts.
	Listen  string
	Packets net.PacketConn
	// Transports are the transports that the node may use.
	Transports Transports
	// OthersWarn says that another process of this host warns of what concerns all of them.
	OthersWarn bool
	// SharedSeeds is client.Seeds.Shared.
	SharedSeeds bool
	// Areas is the number of memory areas that the node shares with others of its host,
	// and AreaSize the length of each in bytes.
	Areas, AreaSize int
	// PlainBulk turns off encryption on TCP.
	PlainBulk bool
	// Tamper is mesh.RelayConfig.Tamper.
	Tamper mesh.Tamper
	// Bulk is the name of a factory whose transport is a path with Bulk; "" is none.
	Bulk string
	// OnDemand is mesh.Config.OnDemand.
	OnDemand bool
	// LinkIdleTimeout is mesh.Config.IdleTimeout.
	LinkIdleTimeout time.Duration
	// HeartbeatInterval and HeartbeatTimeout configure the mesh.
	HeartbeatInterval, HeartbeatTimeout time.Duration
	// RecoveryTimeout and CollectiveTimeout are the times after which other nodes report this
	// node as late. 0 or less means no limit.
	RecoveryTimeout, CollectiveTimeout time.Duration
	Log                                *slog.Logger
}

// A Node is this process in a cluster.
type Node struct {
	Session *client.Session
	Mesh    *mesh.Mesh
	// View is the first view with this node. If Late, the world has formed without it.
	View membership.View
	Late bool
	// Unavailable lists the transports that cannot be used, each with the reason.
	Unavailable []string

	cfg     Config
	linkErr error // the first error of links to a formed world
	sockets *sockets
	creds   *pendingCredentials
	started []transport.Transport           // by factories, until they are in paths
	paths   []mesh.Path                     // to other nodes
	relay   *mesh.Relay                     // nil in the full topology
	view    atomic.Pointer[membership.View] // of the nodes that this node links itself to

	mu       sync.Mutex
	mesh     *mesh.Mesh        // gets the expected nodes
	expected []membership.Node // until joined
	joined   bool              // this node is in a view
	failures []PeerError
	failed   wake.Signal // when a failure is added
}

// A PeerError is the failure of another node.
type PeerError struct {
	Rank int // its last rank
	Node membership.Node
	Err  error
}

func (e *PeerError) Error() string { return fmt.Sprintf("rank %d %v: %v", e.Rank, e.Node, e.Err) }
func (e *PeerError) Unwrap() error { return e.Err }

// Join joins a cluster. It returns when this node is in a view and linked to all other nodes of the
// view or, with links on demand, to those that it watches.
func Join(ctx context.Context, cfg Config) (*Node, error) {
	n := &Node{cfg: cfg, failed: wake.NewSignal()}
	if err := n.join(ctx); err != nil {
		n.abandon()
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.joined, n.expected = true, nil
	return n, nil
}

// ID returns the identity of the node.
func (n *Node) ID() membership.NodeID { return n.Session.ID }

// join is Join, but leaves its resources in n on an error.
func (n *Node) join(ctx context.Context) error {
	if err := n.register(ctx, n.cfg.Request); err != nil {
		return err
	}
	v, invitation, err := n.Session.Begin(ctx, 0)
	if err != nil {
		return err
	}
	if invitation.Number > 0 {
		return n.enter(ctx, invitation)
	}
	return n.form(ctx, v)
}

// register registers this node at a seed, and listens on all transports.
func (n *Node) register(ctx context.Context, request client.Request) (err error) {
	n.sockets, err = openSockets(ctx, n.cfg.Listen, n.cfg.Packets, n.cfg.Transports, quic.Config{
		Log:        n.cfg.Log,
		OthersWarn: n.cfg.OthersWarn,
		Heartbeat:  -1, // The mesh sends heartbeats to the peers that it watches.
		Watch: func(peer string) bool {
			n.mu.Lock()
			m := n.mesh
			n.mu.Unlock()
			if m != nil {
				return m.Watches(peer)
			}
			v := n.view.Load()
			watches := membership.WatchGraph{Topology: request.Topology}
			return v == nil || watches.Watches(v, n.ID(), peer)
		},
	})
	if err != nil {
		return err
	}
	request.Alternates, request.Expect, request.Forget = host.Addrs(n.sockets.addr), n.expect, n.forget
	request.SendView, request.Removed = n.sendView, n.removed
	request.Port, request.Listen, request.Roots = portOf(n.sockets.addr), n.announce, n.cfg.Transports.Roots
	seeds := client.Seeds{Addrs: n.cfg.Seeds, Timeout: n.cfg.Timeout, Log: n.cfg.Log, Dial: n.sockets.dialSeed, Shared: n.cfg.SharedSeeds, OthersWarn: n.cfg.OthersWarn}
	if n.Session, err = seeds.Join(ctx, request); err != nil {
		return err
	}
	// Other nodes dial this node as soon as they have the view, possibly before this node
	// has it.
	n.creds.admit(n.Session.Identity)
	if err := n.listen(); err != nil {
		return err
	}
	n.Unavailable = slices.Clone(n.sockets.unavailable)
	return nil
}

// form links this node to all others of the first view.
func (n *Node) form(ctx context.Context, v membership.View) (err error) {
	n.View = v
	n.Mesh, err = n.link(ctx, v, v.Size(), 0)
	switch {
	case err != nil && ctx.Err() != nil:
		return timedOut(ctx, v, err)
	case err != nil:
		peer, err := n.culprit(err)
		return n.Session.AwaitFailure(ctx, peer, err)
	}
	if err := n.Session.Ready(ctx); err != nil {
		return err
	}
	if u, ok := errors.AsType[*mesh.UnreachableError](n.Mesh.Formed()); ok {
		rank, _ := v.Rank(u.Node)
		return &PeerError{Rank: rank, Node: v.Nodes[rank], Err: u.Reason()}
	}
	return nil
}

// enter links this node to a formed world, and waits until it is in a view. When nodes of the
// world fail meanwhile, it gets another invitation.
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
			n.view.Store(&n.View)
			return n.linkErr // The node has lost a link before it was in the view.
		}
		if n.Mesh != nil {
			n.Mesh.Abort()
			n.Mesh = nil
		}
	}
}

// tryToEnter links this node to the nodes of the world in an invitation and, if it can reach
// them, to the other joining nodes, and reports the result to the seed.
func (n *Node) tryToEnter(ctx context.Context, i client.Invitation) error {
	m, err := n.link(ctx, i.View, i.World, i.Number)
	if err == nil {
		n.Mesh = m
		n.Session.Linked(i.Number) // Form has reported the links to other joining nodes.
		if err = m.Formed(); err != nil {
			n.giveUp(ctx, i.Number, err)
		}
		n.linkErr = err
	}
	if err != nil && ctx.Err() != nil {
		return timedOut(ctx, i.View, err)
	}
	return nil
}

// giveUp tells the seed why this node ends its links, before the others notice that and report it: it cannot reach a node, or leaves since ctx
// has ended. Number is that of the invitation, if any.
func (n *Node) giveUp(ctx context.Context, number uint64, err error) {
	if ctx.Err() != nil {
		n.Session.Close()
		return
	}
	n.Session.LinksOf(number).Lost(n.culprit(err))
}

// link makes the links to the nodes of a view, or of the invitation with a number. The first world nodes are in the world. A newer invitation
// ends the attempt.
func (n *Node) link(ctx context.Context, v membership.View, world int, number uint64) (*mesh.Mesh, error) {
	linking, cancel := n.Session.While(ctx, number)
	defer cancel()
	n.view.Store(&v)
	links := n.Session.LinksOf(number)
	m, err := mesh.Form(linking, mesh.Config{
		Self: n.ID(), View: v, World: world, Seed: n.Session.Seed(), Paths: n.paths, Relay: n.relay, Loop: mem.Loop, Log: n.cfg.Log,
		HeartbeatInterval: n.cfg.HeartbeatInterval, HeartbeatTimeout: n.cfg.HeartbeatTimeout,
		SettleTimeout: n.cfg.settleTimeout(), Linked: links.Link, OnDemand: n.cfg.OnDemand, Topology: n.cfg.Request.Topology,
		IdleTimeout: n.cfg.LinkIdleTimeout, HandleView: n.Session.HandleView,
		Lost: links.Lost, Left: links.Left, Failed: n.addFailure, Newest: n.Session.Newest,
		Forming: func(missing func() []int) (stop func()) { return n.Session.WarnOfLinks(v, missing) },
		Failing: func(err error) { n.giveUp(ctx, number, err) },
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

// expect accepts links from nodes that may be in the next view.
func (n *Node) expect(nodes []membership.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range nodes {
		if _, known := (membership.View{Nodes: n.expected}).Rank(m.ID); !known && !n.joined {
			n.expected = append(n.expected, m)
		}
	}
	if n.mesh != nil {
		n.mesh.Expect(nodes)
	}
}

// forget undoes expect for a node.
func (n *Node) forget(id membership.NodeID) {
	n.mu.Lock()
	n.expected = slices.DeleteFunc(n.expected, func(m membership.Node) bool { return m.ID == id })
	m := n.mesh
	n.mu.Unlock()
	if m != nil {
		m.Forget(id)
	}
}

// sendView sends a message about views to another node, if there is a link to it.
func (n *Node) sendView(to membership.NodeID, message []byte) bool {
	n.mu.Lock()
	m := n.mesh
	n.mu.Unlock()
	return m != nil && m.SendView(to, message)
}

// removed ends all communicators after the seed has removed this node from the world.
func (n *Node) removed(err *client.RemovedError) {
	n.mu.Lock()
	m := n.mesh
	n.mu.Unlock()
	if m != nil {
		m.LeaveWorld()
		m.Engine().RemoveSelf(err.Excluded, err.Error(), "the seed has removed it from the world: "+err.Text)
	}
}

// addFailure adds to the list of Failures.
func (n *Node) addFailure(rank int, failed membership.Node, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failures = append(n.failures, PeerError{rank, failed, err})
	n.failed.Send()
}

// Failures returns the failures of other nodes except the first seen of them, and a channel
// that is closed by the next failure.
func (n *Node) Failures(seen int) (list []PeerError, more <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failures[seen:], n.failed.Next()
}

// timedOut returns the error of a node after the end of ctx while it links itself to the nodes
// of a view. It names a node without a link, but does not blame it.
func timedOut(ctx context.Context, v membership.View, err error) error {
	missing := fmt.Sprintf("%d nodes", v.Size())
	if u, ok := errors.AsType[*mesh.UnreachableError](err); ok {
		if rank, ok := v.Rank(u.Node); ok {
			missing = fmt.Sprintf("rank %d %v", rank, v.Nodes[rank])
		}
	}
	return fmt.Errorf("%w: this node was still linking itself to %s", context.Cause(ctx), missing)
}

// culprit returns the node that an error names.
func (n *Node) culprit(err error) (membership.NodeID, error) {
	if u, ok := errors.AsType[*mesh.UnreachableError](err); ok {
		return u.Node, u.Reason()
	}
	return n.ID(), err
}

// Leave leaves the cluster, and returns the peers that have not read all data before ctx ends. It reports to the seed before it ends
// links to neighbors, so that no node takes their end for a failure.
func (n *Node) Leave(ctx context.Context) ([]mesh.Unread, error) {
	unread, err := n.Mesh.Leave(ctx, func() { n.Session.Close() })
	return unread, errors.Join(err, n.Session.Close(), n.sockets.close())
}

// CloseTimeout is the time after which Close leaves without waiting for peers.
func (n *Node) CloseTimeout() time.Duration { return closeTimeout + n.Mesh.GoodbyeTimeout() }

// Close is Leave within CloseTimeout.
func (n *Node) Close() error {
	ctx, cancel := closing(n.Mesh)
	defer cancel()
	_, err := n.Leave(ctx)
	return err
}

// Fail ends the node for a reason of its program, which the peers learn. They count it as failed.
func (n *Node) Fail(reason string) error {
	return errors.Join(n.Mesh.Fail(reason), n.Session.Fail(), n.sockets.close())
}

// CloseMesh ends all links with goodbyes, within closeTimeout, or longer over relays.
func CloseMesh(m *mesh.Mesh) error {
	ctx, cancel := closing(m)
	defer cancel()
	return m.Close(ctx)
}

// closing returns the context of the end of a mesh.
func closing(m *mesh.Mesh) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), closeTimeout+m.GoodbyeTimeout())
}

// abandon releases the resources of a failed join. The seed hears first: see giveUp.
func (n *Node) abandon() {
	if n.Mesh != nil {
		_ = n.Close() // the error of joining is reported
		return
	}
	if n.Session != nil {
		n.Session.Close()
	}
	for _, p := range n.paths {
		p.Transport.Close()
	}
	n.closeStarted()
	if n.sockets != nil {
		n.sockets.close()
	}
}

// settleTimeout returns the time that this node waits for the links of a new node:
// HeartbeatTimeout, and at most half of the time that others wait for this node. 0 means the
// default of the mesh.
func (cfg *Config) settleTimeout() (least time.Duration) {
	for _, d := range []time.Duration{cfg.HeartbeatTimeout, cfg.RecoveryTimeout / 2, cfg.CollectiveTimeout / 2} {
		if d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	return least
}

// portOf returns the port of an address, or 0 if it has none.
func portOf(addr string) int {
	_, port, _ := net.SplitHostPort(addr)
	n, _ := strconv.ParseUint(port, 10, 16)
	return int(n)
}
