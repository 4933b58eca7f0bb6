package nexar

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/internal/callback"
	"github.com/nexar-go/nexar/internal/comm"
	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/host"
	"github.com/nexar-go/nexar/internal/mesh"
	"github.com/nexar-go/nexar/internal/negotiate"
	"github.com/nexar-go/nexar/internal/node"
	"github.com/nexar-go/nexar/internal/recorder"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/testhook"
	"github.com/nexar-go/nexar/internal/topology"
	"github.com/nexar-go/nexar/launch"
	"github.com/nexar-go/nexar/transport"
)

// A Node is the membership of this process in a cluster. [Node.Epochs] and [Node.Reconfigure] belong to
// one goroutine at a time; the other methods may be called concurrently.
type Node struct {
	node     *node.Node
	state    *nodeState
	world    atomic.Pointer[Comm]
	follower comm.Follower
	rankFile *os.File // see rankFileVariable; may be nil

	departure departure
	failure   atomic.Pointer[string] // why Close is a failure of this rank

	leaving  atomic.Bool   // at the next reconfiguration
	isLeaver bool          // at the one with which the quiesced epoch has ended
	left     chan struct{} // closed when the node has left the world
	closed   chan struct{} // closed by Close
	leave    func()        // closes left
	heed     func() func() // makes SIGTERM a wish to leave, until it is stopped

	ranges        atomic.Int32  // loops over Epochs
	reconfiguring atomic.Int32  // calls of Reconfigure in progress
	reconfigured  atomic.Uint64 // all calls of Reconfigure
	mu            sync.Mutex
	leaves        map[*engine.WorldWait]func() // for each Leave: ends its wait on the communicator of the world
}

// Join joins the cluster of the seeds in cfg, and blocks until its world has formed: all nodes have
// joined and are connected to the nodes that they watch (if Config.Links is "eager", to all nodes). Zero
// fields of cfg are taken from the environment; see [ConfigFromEnv].
//
// Without seeds in cfg and the environment, the launcher of the process (Slurm, Kubernetes, torchrun, MPICH, Intel MPI or Open MPI; see package
// launch and Config.Launcher) tells the world and the rank, and one process of the world, as a rule that of rank 0, runs the seed. That seed ends
// with its world or its process. The world goes on without it until a node fails; with three or five seeds (Config.LaunchSeeds) it outlives
// the failure of one or two of their processes. Node.Close of a process with a seed waits some seconds for the other nodes to leave.
//
// The errors are [ErrConfig], [ErrToken], [ErrIdentity], [ErrVersion], [ErrRankTaken] and
// [NotFormedError], which has the nodes that had joined, or names two nodes that could not reach each
// other. A cancelled call leaves neither goroutines nor connections behind.
//
// Nodes do not return from Join at the same time. If a node returns and is closed at once, Join
// succeeds on the others, and their first operation that needs the node fails with a [PeerError] with
// Left set. If its process ends instead, the others get a [PeerError] from Join or from their first
// operation.
func Join(ctx context.Context, cfg Config) (*Node, error) { return joinWorld(ctx, cfg, false) }

// joinWorld is Join or, if a process without a seed or launcher may be alone, JoinOrLocal.
func joinWorld(ctx context.Context, cfg Config, mayBeAlone bool) (*Node, error) {
	inherited := len(cfg.Seeds) == 0
	cfg, err := cfg.fill()
	for _, p := range CheckEnviron(os.Environ()) {
		if err == nil && !othersWarn() { // The other ranks of a nexar run have the same variables.
			cfg.Log.Warn(p.Text, "fix", p.Fix)
		}
	}
	if err != nil {
		return nil, opError("join", err)
	}
	if cfg.FormTimeout > 0 && !cfg.Spare {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, cfg.FormTimeout, fmt.Errorf("%w within %v", ErrNotFormed, cfg.FormTimeout))
		defer cancel()
	}
	l := &launched{}
	switch {
	case len(cfg.Seeds) == 0:
		l, err = cfg.launch(ctx, mayBeAlone)
	case inherited:
		l, err = cfg.askRank()
	}
	if err != nil {
		return nil, opError("join", err)
	}
	rankFile, err := openRankFile(inherited)
	if err != nil {
		return nil, opError("join", errors.Join(err, l.close()))
	}
	n, err := join(ctx, cfg, l, rankFile)
	if err != nil {
		rankFile.Close()
		err = errors.Join(err, l.close())
	}
	return n, opError("join", explainJoin(err))
}

// othersWarn reports whether another process of this host, the first of a nexar run, warns of what concerns all of them.
func othersWarn() bool {
	localRank, _ := strconv.Atoi(os.Getenv(localRankVariable))
	return localRank > 0
}

// join does the work of Join.
func join(ctx context.Context, cfg Config, l *launched, rankFile *os.File) (*Node, error) {
	nodeConfig, err := cfg.node(ctx)
	if err != nil {
		return nil, err
	}
	if cfg.PlainBulk && slices.Contains(cfg.Transports, "tcp") {
		cfg.Log.Warn("payloads between hosts are not protected", "because", variable("PlainBulk"))
	}
	if !l.token.IsZero() {
		nodeConfig.Request.Token = l.token
	}
	n := &Node{rankFile: rankFile, left: make(chan struct{}), closed: make(chan struct{}), departure: newDeparture(), leaves: make(map[*engine.WorldWait]func())}
	n.leave = sync.OnceFunc(func() { close(n.left) })
	nodeConfig.Request.Status = n.status
	nodeConfig.OthersWarn, nodeConfig.SharedSeeds, nodeConfig.Request.World, nodeConfig.Request.Size = othersWarn() || l.process.LocalRank > 0, l.world.Shared, l.process.Size, l.size
	for again := true; again; again = l.process.Launcher == launch.Kubernetes && l.seed.Load() == nil && errors.Is(err, client.ErrSeedGone) && ctx.Err() == nil {
		n.node, err = node.Join(ctx, nodeConfig)
	}
	if p, ok := errors.AsType[*node.PeerError](err); ok {
		return nil, &PeerError{Rank: p.Rank, Node: NodeID(p.Node.ID), Addr: p.Node.Addr(), Err: p.Err}
	}
	if err != nil {
		return nil, err
	}
	if err := n.open(ctx, cfg); err != nil {
		n.node.Close()
		return nil, err
	}
	n.heed = sync.OnceValue(func() func() {
		if !cfg.LeaveOnTerm {
			return func() {}
		}
		return node.OnTerm(func() { n.leaving.Store(true) })
	})
	quit := func() {}
	if cfg.DumpOnQuit {
		quit = recorder.OnQuit(cfg.DumpStacks, func() { _, _ = n.Trace().WriteTo(os.Stderr) })
	}
	n.departure.leave = func(ctx context.Context) (unread []mesh.Unread, err error) {
		defer quit()
		defer rankFile.Close()
		n.heed()()
		close(n.closed)
		defer n.state.factory.Settle()
		defer n.state.direct.Close()
		if reason := n.failure.Load(); reason != nil {
			return nil, n.node.Fail(*reason)
		}
		return n.node.Leave(ctx)
	}
	l.own(n)
	return n, nil
}

// open makes the communicator of the world.
func (n *Node) open(ctx context.Context, cfg Config) (err error) {
	if n.state, err = newNodeState(n.node.Mesh, cost.QUIC(), cfg); err != nil {
		return err
	}
	n.state.node = n
	n.follower.Views, n.follower.Factory = n.node.Session, n.state.factory
	n.follower.Timeout, n.follower.Abort = max(0, cfg.RecoveryTimeout), cfg.Recovery != Automatic
	// A call may have been given up because of a host that has not been silent
	// for long enough yet, and the seed needs a moment.
	n.follower.Grace = mesh.SilenceMax(cfg.HeartbeatInterval, cfg.HeartbeatTimeout) + comm.NoticeTimeout
	n.follower.LeaveGrace = n.node.Mesh.GoodbyeTimeout()
	if !n.node.Late {
		world, err := n.state.first(ctx, n.node.View)
		if err == nil {
			n.setWorld(world)
		}
		return err
	}
	world, err := n.follower.From(ctx, n.node.View)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w: this node is in the world of epoch %d, but its communicator was not complete", context.Cause(ctx), n.node.View.Epoch)
	case err != nil:
		return err
	}
	n.setWorld(n.state.wrap(world))
	return nil
}

// World returns the communicator of all nodes: the one with which the world has formed, or the last
// that [Node.Epochs], [Comm.Exclude] or [Comm.Include] has made. It is closed with the Node.
func (n *Node) World() *Comm { return n.world.Load() }

// ID returns the identity of this node.
func (n *Node) ID() NodeID { return NodeID(n.node.ID()) }

// Close leaves the cluster. Operations in progress end with [ErrClosed]. Close waits for at most a few
// seconds until the peers have read all sent data, and logs a warning that names each rank that has not. It waits for at most a
// second for functions that they have called here. In a sparse topology it also relays data of other nodes until they reach each
// other without this node, for at most two HeartbeatTimeouts, or 2 s if that is longer. The contexts of these functions end. Peers
// that wait for this node in an operation get a [PeerError] with Left set. Close may be called more than once. To wait for longer,
// and to know the peers that have not finished, call [Node.Shutdown] first.
//
// A Close in a deferred call while the goroutine panics is a failure of this rank: the others get a [PeerError] without Left, and in its
// text the value of the panic, if Close itself is the deferred call. The panic goes on.
func (n *Node) Close() error {
	if v := recover(); v != nil {
		n.fail(fmt.Sprintf("it panicked: %v", v))
		panic(v) // The trace still has the frames of the first panic, which are below this one.
	}
	if callback.Panicking() {
		n.fail("it panicked")
	}
	return n.departure.within(n.node.CloseTimeout())
}

// fail closes the node because of a failure of this rank.
func (n *Node) fail(reason string) {
	n.failure.CompareAndSwap(nil, &reason)
	_ = n.departure.within(n.node.CloseTimeout())
}

// node returns the configuration of the node.
func (cfg *Config) node(ctx context.Context) (c node.Config, err error) {
	request, err := cfg.request(ctx)
	if err != nil {
		return c, err
	}
	use, err := cfg.transports()
	if err != nil {
		return c, err
	}
	if use.Roots, err = cfg.roots(ctx); err != nil {
		return c, err
	}
	for _, f := range cfg.Factories {
		if !use.Warned && !slices.Contains(use.Names, f.Name) {
			cfg.Log.Warn("a transport of Factories is not used: "+variable("Transports")+" does not name it", "transport", f.Name, "transports", strings.Join(use.Names, ","))
		}
	}
	return node.Config{
		Seeds: cfg.Seeds, Timeout: cfg.FormTimeout, Request: request, Listen: cfg.Listen, Packets: testhook.PacketsFrom(ctx), Tamper: testhook.TamperFrom(ctx), Bulk: testhook.BulkFrom(ctx), Transports: use,
		Areas: negotiate.Areas, AreaSize: negotiate.AreaSize(), PlainBulk: cfg.PlainBulk, OnDemand: cfg.Links != linksEager,
		LinkIdleTimeout:   max(0, cfg.LinkIdleTimeout),
		HeartbeatInterval: cfg.HeartbeatInterval, HeartbeatTimeout: cfg.HeartbeatTimeout, Log: cfg.Log,
		RecoveryTimeout: cfg.RecoveryTimeout, CollectiveTimeout: cfg.CollectiveTimeout,
	}, nil
}

// request is the request for the seed, without the addresses of transports.
func (cfg *Config) request(ctx context.Context) (client.Request, error) {
	token, err := cfg.token(ctx)
	if err != nil {
		return client.Request{}, err
	}
	r := client.Request{Token: token, Host: host.ID(), Name: host.Process(), Process: host.ProcessID(), Rank: cfg.Rank, Spare: cfg.Spare, Place: launch.Here().Pod(), Patience: cfg.RecoveryTimeout, CertificateGrace: cfg.CertificateGrace, Log: cfg.Log}
	if r.Topology, err = topology.Parse(cfg.Topology); err != nil {
		return r, fmt.Errorf("%w: %s=%q: %w", ErrConfig, variable("Topology"), cfg.Topology, err)
	}
	if a := cfg.Advertise; a != "" {
		_, port, _ := net.SplitHostPort(cfg.Listen)
		if !host.IsAddr(a, false) {
			a = net.JoinHostPort(a, port)
		}
		if !host.IsAddr(a, false) {
			return r, fmt.Errorf("%w: %s=%q: add a port, since %s has none", ErrConfig, variable("Advertise"), cfg.Advertise, variable("Listen"))
		}
		r.Advertise, r.CheckAddress = []string{a}, !cfg.AdvertiseUnchecked
	}
	return r, nil
}

// A Peer is another node of the world, with the transports that connect it to this one.
type Peer struct {
	Rank int
	Node NodeID
	// Addr is the address of the peer, "host:port", or its NodeID if shared memory
	// connects it. It is empty if relays connect it.
	Addr string
	// Transport is "shm", "quic", "tcp+tls", "tcp", "relay" or the name of one of
	// Config.Factories. BulkTransport carries payloads: it is the same, or TCP beside
	// QUIC.
	Transport, BulkTransport string
	// DeviceMemory says how the last vector on a device (see [DeviceComm]) of more than 128 KiB was exchanged with the peer:
	// "staged" through memory of this host, or by the method with which the network card of this node accesses the
	// device, "dma-buf" or "peer memory". It is "" before the first such vector. The peer may use another method.
	DeviceMemory string
	// Encrypted reports whether all data between the nodes is encrypted and
	// authenticated. Data in shared memory, which does not leave the host, is not.
	Encrypted bool
	// LinkPurpose is the reason why the nodes are connected; see Config.Links:
	//
	//   - "": they are not, as long as no operation has needed a connection, or it is just being made
	//   - "watch": one of the nodes watches the other for failures
	//   - "collective": a collective has needed the connection
	//   - "message": a message has needed it
	//   - "call": a remote call has needed it
	//   - "memory": the nodes can share memory over a connection only
	//   - "wait": an operation has waited for the peer
	//   - "report": a node has asked whether another one has failed
	//   - "peer": the peer has needed the connection, or has made it because of its Config.Links
	//   - "again": a connection that the peer had needed broke, and was made again
	//   - "eager": this node has made the connection because its Config.Links is "eager"; the other one shows "peer"
	LinkPurpose string
	// Reason explains the choice of the transport as text, such as "same host", or why a faster
	// one is not in use. The node with the higher rank makes the choice at first. After the failure of a connection over a faster one, such as RDMA,
	// it contains the error.
	Reason string
	// Hops is the number of connections that data to the peer passes: 1, or more over relays of a sparse topology
	// (Config.Topology).
	Hops int
	// Relay is the rank of the first relay if Hops is more than 1. Another one is used while that one is lost.
	Relay int
	// Delay is the time between a packet to the peer over relays and its acknowledgement, a smoothed mean. It is 0 before
	// the first acknowledgement, and without relays.
	Delay time.Duration
	// LostPackets is the number of packets to the peer over relays that were lost: a relay has dropped, altered or delayed them. No data is
	// lost, since they are sent again. It begins at 0 with each connection.
	LostPackets uint64
	// UnacknowledgedBytes is the number of bytes that this node keeps until the peer has acknowledged them, to send them again over
	// the next connection if this one breaks. It is at most a few MiB for a peer that reads: a node asks for acknowledgements when it keeps 512 KiB beyond
	// the data that the peer may leave unread, and ends the link to a peer that does not give them. Over shared memory, except in a sparse topology, only bytes that wait count.
	UnacknowledgedBytes int
}

// Neighbors returns the ranks of the world that this node connects to without relays, in ascending order; see
// Config.Topology. In the full topology these are all others.
func (n *Node) Neighbors() []int { return n.World().impl.Neighbors() }

// Peers returns the other nodes of the world, by rank. Without a connection, Transport and
// BulkTransport are those that this node would try first, and Addr is "". Except for counts and Delay, the result is the same until the
// world or a connection changes; see [Node.Epochs].
func (n *Node) Peers() []Peer {
	var peers []Peer
	for _, i := range n.World().impl.Paths() {
		p := Peer{
			Rank: i.Rank, Node: NodeID(i.Node), Addr: i.Addr, Transport: i.Transport, BulkTransport: i.BulkTransport, DeviceMemory: i.DeviceMemory,
			Encrypted: i.Encrypted, LinkPurpose: i.Purpose, Reason: i.Reason, Hops: i.Hops,
			Relay: i.Relay, Delay: i.Delay, LostPackets: i.Lost,
			UnacknowledgedBytes: i.Unacknowledged,
		}
		if i.Locality == transport.AnyHost && len(n.node.Unavailable) > 0 {
			p.Reason = strings.Join(append(slices.Clone(n.node.Unavailable), p.Reason), "; ")
		}
		peers = append(peers, p)
	}
	return peers
}
