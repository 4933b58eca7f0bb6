package nexar

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"github.com/nexar-go/nexar/internal/epoch"
	"github.com/nexar-go/nexar/internal/host"
	"github.com/nexar-go/nexar/internal/member"
	"github.com/nexar-go/nexar/internal/mesh"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/seed"
	"github.com/nexar-go/nexar/internal/tune"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/mem"
	"github.com/nexar-go/nexar/transport/quic"
)

// A Node is this process in a cluster.
type Node struct {
	id       NodeID
	world    atomic.Pointer[Comm]
	follower epoch.Follower[*Comm]
	mesh     *mesh.Mesh
	session  *seed.Session
	endpoint *quic.Endpoint
	paths    []mesh.Path // to other nodes
	lacks    []string    // which paths there are not, and why
	close    func() error
}

// Join joins the cluster whose seeds cfg names, and returns when its world has
// formed: when all its nodes are there and connected to each other. Fields of
// cfg that are zero are taken from the environment; see ConfigFromEnv.
//
// The error of a world that does not form says who is missing, or who could
// not reach whom. A Join whose ctx ends leaves nothing behind.
//
// Nodes do not return from Join at the same moment. One that has and is closed
// at once is no error of the others' Join: their first operation that needs it
// gets a PeerError, whose Left is true. One whose process ends by then is: a
// PeerError of Join, or of their first operation.
func Join(ctx context.Context, cfg Config) (*Node, error) {
	cfg, err := cfg.fill()
	hints := ""
	for _, p := range UnknownEnv(os.Environ()) {
		hints += fmt.Sprintf(" (%s: %s)", p.What, p.Mend)
		if err == nil {
			cfg.Log.Warn(p.What, "mend", p.Mend)
		}
	}
	if err == nil && len(cfg.Seeds) == 0 {
		err = fmt.Errorf("%w: no seed: set NEXAR_SEEDS to the address of one, or start this program with 'nexar run'%s", ErrConfig, hints)
	}
	if err != nil {
		return nil, opError("join", err)
	}
	cfg.warnIdle()
	if cfg.FormTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, cfg.FormTimeout, fmt.Errorf("no world within %v", cfg.FormTimeout))
		defer cancel()
	}
	n := new(Node)
	if err := n.join(ctx, cfg); err != nil {
		n.abandon()
		return nil, opError("join", err)
	}
	n.close = sync.OnceValue(n.shut)
	return n, nil
}

// join does the work of Join. What it has made when it fails is in n.
func (n *Node) join(ctx context.Context, cfg Config) error {
	request, err := cfg.request()
	if err != nil {
		return err
	}
	var view atomic.Pointer[member.View]
	n.endpoint, err = quic.Listen(quic.Config{
		Addr: cfg.Listen, Log: cfg.Log,
		Heartbeat: -1, // The mesh has its own, for the peers that it watches.
		Watch:     func(peer string) bool { return member.Watches(view.Load(), member.NodeID(n.id), peer, mesh.WatchedMax) },
	})
	if err != nil {
		return err
	}
	request.Candidates = host.Addrs(n.endpoint.Addr())
	seeds := seed.Seeds{
		Addrs: cfg.Seeds, Timeout: cfg.FormTimeout, Log: cfg.Log,
		Dial: func(ctx context.Context, addr string) (transport.Conn, error) {
			return n.endpoint.Dial(ctx, addr, pki.Joining{}.Client(""))
		},
	}
	if n.session, err = seeds.Join(ctx, request); err != nil {
		return err
	}
	n.id = NodeID(n.session.ID)
	// Others dial this node as soon as they have the view, which they can
	// have before it.
	if err := n.listen(cfg); err != nil {
		return err
	}
	v, err := n.session.View(ctx)
	if err != nil {
		return err
	}
	view.Store(&v)
	return n.form(ctx, v, cfg)
}

// form links this node to the others of the view.
func (n *Node) form(ctx context.Context, v member.View, cfg Config) error {
	linking, cancel := n.session.While(ctx)
	defer cancel()
	var err error
	n.mesh, err = mesh.Form(linking, mesh.Config{
		Self: n.session.ID, View: v, Paths: n.paths, Loop: mem.Loop, Log: cfg.Log,
		HeartbeatInterval: cfg.HeartbeatInterval, HeartbeatTimeout: cfg.HeartbeatTimeout,
		Lost: n.session.Lost,
	})
	if ctx.Err() != nil {
		return context.Cause(ctx) // This node gives up, and blames nobody.
	}
	if err != nil {
		peer := n.session.ID
		if u, ok := errors.AsType[*mesh.UnreachableError](err); ok {
			peer, err = u.Node, u.Reason()
		}
		return n.session.Unable(ctx, peer, err)
	}
	if err := n.session.Ready(ctx); err != nil {
		return err
	}
	world, err := newWorld(ctx, n.mesh, v, tune.QUIC(), cfg)
	if err != nil {
		if u, ok := errors.AsType[*mesh.UnreachableError](err); ok {
			lost := v.Nodes[u.Rank]
			return &PeerError{Rank: u.Rank, Node: NodeID(lost.ID), Addr: lost.Addr(), Err: u.Reason()}
		}
		return err
	}
	n.world.Store(world)
	n.follower = n.newFollower(cfg.Recovery, cfg.RecoveryTimeout)
	return nil
}

// World is the communicator of all nodes: the one with which the world has formed,
// or the last that Epochs has yielded. It is closed with the Node.
func (n *Node) World() *Comm { return n.world.Load() }

// ID is the identity of this node.
func (n *Node) ID() NodeID { return n.id }

// Close leaves the cluster: it ends the operations that are under way with
// ErrClosed, and waits a few seconds at most until the peers have read what
// was sent to them, and a second at most for functions that they have called here,
// whose contexts end. Peers that still wait for this node in an operation get a
// PeerError that says that it has left.
func (n *Node) Close() error { return n.close() }

func (n *Node) shut() error {
	defer n.World().home.settleAll()
	// The seed hears first that this is no failure.
	return errors.Join(n.session.Close(), closeMesh(n.mesh), n.endpoint.Close())
}

// abandon drops what a failed join has made.
func (n *Node) abandon() {
	if n.mesh != nil {
		closeMesh(n.mesh)
	} else {
		for _, p := range n.paths {
			p.Transport.Close()
		}
	}
	if n.session != nil {
		n.session.Close()
	}
	if n.endpoint != nil {
		n.endpoint.Close()
	}
}

// request is what the node asks of the seed, save for its addresses.
func (cfg *Config) request() (seed.Request, error) {
	token, err := cfg.token()
	if err != nil {
		return seed.Request{}, err
	}
	r := seed.Request{Token: token, Host: host.ID(), Name: host.Process(), Rank: cfg.Rank, Log: cfg.Log}
	if a := cfg.Advertise; a != "" {
		_, port, _ := net.SplitHostPort(cfg.Listen)
		if !host.IsAddr(a, false) {
			a = net.JoinHostPort(a, port)
		}
		if !host.IsAddr(a, false) {
			return r, fmt.Errorf("%w: %s=%q: no port, and %s has none either", ErrConfig, variable("Advertise"), cfg.Advertise, variable("Listen"))
		}
		r.Advertise = []string{a}
	}
	return r, nil
}
