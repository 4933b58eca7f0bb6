// Package mesh links a node to the other nodes of its view, at once or on demand, and watches the links.
//
// [Form] dials the nodes before this one in the view and accepts the nodes behind it, each over
// the best of several paths. It returns when every link is up. [Mesh.Paths] reports the path to
// each node. A node that loses a link notifies all others, so that the failure of a node ends
// the operations that wait for it on every rank.
//
// Everything that happens to a peer is an event in the queue of one goroutine, the loop, which decides by a table ([membership.Peer.Next]). A second
// goroutine carries the effects out in the order of the decisions, with one call of [engine.Engine.PeerChanged] for each. Dials and other waits have
// goroutines of their own, which report back by events.
//
// With Config.OnDemand a node dials only the peers that it watches, and the others when a frame needs them; the dialed node counts a
// link as established when the other side has begun to use it, so an abandoned connection has no effect. A node
// opens shared memory and TCP before it answers on QUIC, so a peer that has reached it over QUIC tries the others once more. While it joins, a node
// has at most 4 dials in progress, and fewer where many nodes share its processors. A peer that cannot be reached within three
// heartbeat timeouts is lost. Idle connections are closed, and those to former neighbors when all nodes have adopted the view.
//
// Two nodes watch each other if the graph of watches links them: six for each node, all neighbors in a sparse topology. Reports of
// failures and goodbyes travel over that graph. With relays the mesh gives the endpoint the pipes to the neighbors, and routes of
// the newest view, the adopted one and the one before; if no view has a route, over the links of all, and at last at random. A node
// that leaves says goodbye over its relays before the seed learns of it, and relays until the others reach each other without it.
//
// Adopt waits for the links to new nodes. Then one event replaces the view, with decisions on every peer, which are carried out together. A link that leaves the mesh is ended before the engine releases its state.
package mesh

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/mesh/blame"
	"github.com/nexar-go/nexar/internal/topology"
	"github.com/nexar-go/nexar/internal/wake"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// Config configures a Mesh. Its functions, except Loop and Failing, must not block, and all but Loop may be nil.
type Config struct {
	// Self is the ID of this node. View lists all nodes: the first World of them are in the
	// world, or all if World is 0. The others are joining, like this node. Form succeeds
	// without a link to a joining node, and takes only joiningTimeout to make one.
	Self  membership.NodeID
	View  membership.View
	World int
	// Seed is the address at which this node has reached the seed. The interface to it is that to link-local addresses in View.
	Seed string
	// Paths are tried in order of preference. Close closes their transports.
	Paths []Path
	// Loop makes both ends of a connection from this node to itself. It is required.
	Loop func(ctx context.Context) (out, in transport.Conn, err error)
	// A node sends its watchers a beat in every second HeartbeatInterval. The link to a watched peer
	// fails after a silence of HeartbeatTimeout and the time between two beats. If either is 0, no peer is watched.
	HeartbeatInterval, HeartbeatTimeout time.Duration
	// SettleTimeout bounds the wait of Adopt for links to the new nodes of a view. The default
	// is HeartbeatTimeout, or settleDefault without one.
	SettleTimeout time.Duration
	// Forming is called before Form waits for the links that it needs. missing returns the ranks in View of
	// nodes without such a link. Form calls stop before it returns.
	Forming func(missing func() []int) (stop func())
	// Failing is called before Form fails and ends its links, which the others notice. It may block.
	Failing func(err error)
	// Linked is called when the link to an expected node comes up or is lost, and by Form for
	// each other joining node. The last call has the current state.
	Linked func(id membership.NodeID, up bool)
	// Lost is called when this node has lost its own link to another node.
	Lost func(id membership.NodeID, err error)
	// Left is called when this node has received the goodbye of another node.
	Left func(id membership.NodeID)
	// Failed is called with the last rank of a node that this node or another one has lost. It
	// is called for a node that leaves only if its goodbye does not reach some node. It is not
	// called for a node that the next view omits for another reason.
	Failed func(rank int, n membership.Node, err error)
	// Newest returns the newest view of the seed, which this node may not have adopted yet.
	// Peers that are not in it are watched. The default is the adopted view.
	Newest func() membership.View
	// HandleView handles a message about views from another node. An error ends the link to that node. The
	// message is valid during the call only.
	HandleView func(from membership.NodeID, message []byte) error
	// OnDemand makes Form link this node only to the nodes that it watches and to those that
	// watch it, or may do so if it is joining. The link to another node is pending until
	// something needs it. Without OnDemand, Form also links this node to all nodes before it in the
	// view, and Formed lets pending links to the nodes behind it connect: those nodes may have OnDemand.
	OnDemand bool
	// IdleTimeout is the time without traffic after which an unwatched link becomes pending again; 0
	// means that none does.
	IdleTimeout time.Duration
	// Watches is the number of peers that this node watches; 0 means [membership.WatchersDefault]. All nodes have the
	// same setting.
	Watches int
	// Topology says which nodes are neighbors. Unless it is full, OnDemand holds, this node connects to its
	// neighbors only and watches them, and it reaches the others over the path with Relay. All nodes have
	// the same topology.
	Topology topology.Topology
	// Relay, if not nil, relays frames over the links to neighbors. One of the Paths is its own. In a sparse topology
	// all nodes have one, or none.
	Relay *Relay
	// EagerMax is engine.Config.EagerMax.
	EagerMax int
	// Log receives events. Nil discards them.
	Log *slog.Logger
}

// A Mesh holds the links of a node to the nodes of its view. Its methods may be called
// concurrently.
//
// Every node has a peer slot with the index Link.Peer. A node keeps its slot while its rank
// changes from view to view. In the first view the slots are the ranks; nodes that are expected
// later get the next free slots.
type Mesh struct {
	cfg       Config
	self      int // the slot of this node
	reach     *Reach
	dialer    *dialer
	acceptor  *acceptor
	proposals proposals
	formation *formation
	graph     membership.WatchGraph // of the views
	engine    *engine.Engine
	idle      link.IdleTimer
	common    *link.Common // of the links
	log       *slog.Logger

	run  context.Context // ends with Close and Abort
	stop context.CancelFunc
	wg   sync.WaitGroup

	loop loop

	told chan blame.Reason // the last one that Explain has sent; empty while it runs: in tests, fake time passes for calls that wait

	mu      sync.Mutex
	peers   []peer // by slot
	slots   map[membership.NodeID]int
	free    []int // slots for reuse
	view    membership.View
	before  membership.View // adopted before view
	routed  uint64          // epoch of the newest view with routes of the relay
	back    *link.Link      // the accepting end of the link to this node
	changed wake.Signal     // when a link comes up
	formed  bool
	closing bool
	out     bool // this node is not in the next view: see LeaveWorld
	// failedIn is 1 more than the epoch of the view in which the last failure was logged as an error; 0 before.
	failedIn uint64
	// reportLeaving tells the seed that this node leaves, unless it has; nil before Leave.
	reportLeaving func()

	monitor *monitor

	dials      *dialLimit // of the dials of Form
	onDemand   *dialLimit // of the dials on demand in the view with the epoch onDemandIn; nil until it is needed
	onDemandIn uint64

	closed   chan struct{} // closed when Close or Abort is done
	closeErr error
}

// An UnreachableError says that this node could not be linked to a rank.
type UnreachableError struct {
	Rank  int
	Node  membership.NodeID
	Addrs []string
	// Relayed says that the node was dialed over relays, and not at its addresses.
	Relayed bool
	Err     error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("cannot reach rank %d (%s) %s: %v", e.Rank, e.Node, e.where(), e.Err)
}

// Reason returns the error without the rank.
func (e *UnreachableError) Reason() error { return fmt.Errorf("%s: %w", e.where(), e.Err) }

func (e *UnreachableError) where() string {
	if e.Relayed {
		return "over relays"
	}
	return "at " + list(e.Addrs)
}

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
	cfg.OnDemand = cfg.OnDemand || !cfg.Topology.IsFull()
	m := &Mesh{
		cfg: cfg, self: self, reach: newReach(&cfg), log: cfg.Log, view: cfg.View,
		changed: wake.NewSignal(), closed: make(chan struct{}), told: make(chan blame.Reason, 1),
	}
	m.told <- blame.Reason{}
	m.dialer, m.proposals = newDialer(&cfg, m.reach), proposals{m}
	m.engine = engine.New(engine.Config{EagerMax: cfg.EagerMax, QueryLinkedOnly: !cfg.Topology.IsFull() && !m.reach.hasRelay(), Log: cfg.Log})
	m.common = link.NewCommon(handler{m.engine, m}, link.Config{Log: m.log, IdleTimer: &m.idle, Detached: m.linkDetached, Disconnects: cfg.Relay != nil}, m.linkNeeded)
	m.peers, m.slots = make([]peer, 0, cfg.View.Size()), make(map[membership.NodeID]int, cfg.View.Size())
	for rank := range cfg.View.Nodes {
		m.addPeerLocked(&cfg.View.Nodes[rank], rank)
	}
	m.graph = membership.WatchGraph{Topology: cfg.Topology, Count: cfg.Watches}
	m.formation, m.dials = newFormation(&cfg, self, m.graph, m.reach), newDialLimit(dialsMax, cfg.View, m.reach.host, runtime.NumCPU(), cfg.Paths)
	m.monitor = newMonitor(m, time.Now())
	m.reach.setNear(m.formation.neighbors())
	m.logTopology(slog.LevelWarn, m.formation.world)
	m.run, m.stop = context.WithCancel(context.Background())
	m.acceptor = &acceptor{
		reach: m.reach, common: m.common, log: m.log, run: m.run, wg: &m.wg, answerTimeout: cfg.answerTimeout(), caller: m.caller, connect: m.proposals.accept,
		conns: newConnSet[acceptedKey](), seconds: newConnSet[membership.NodeID](),
	}
	m.loop.begin(&m.mu)
	m.reroute()
	if err := m.form(ctx); err != nil {
		if cfg.Failing != nil {
			cfg.Failing(err)
		}
		m.Abort()
		return nil, err
	}
	return m, nil
}

// Engine returns the engine that handles the frames of the links.
func (m *Mesh) Engine() *engine.Engine { return m.engine }

// Self returns the ID of this node.
func (m *Mesh) Self() membership.NodeID { return m.cfg.Self }

// Reach returns the paths of this node to the others.
func (m *Mesh) Reach() *Reach { return m.reach }

// A handler passes the frames of a link to the engine. Ends of links and reports of failures go
// to the mesh alone, which decides and then notifies the engine of the consequences.
type handler struct {
	*engine.Engine
	mesh *Mesh
}

func (h handler) Lost(l *link.Link, err error) { h.mesh.linkEnded(l, lossEvent(err), err) }

func (h handler) Left(l *link.Link) { h.mesh.linkEnded(l, membership.Goodbye, nil) }

func (h handler) Reason(l *link.Link, f wire.Reason, text string) { h.mesh.peerExplained(l, f, text) }

func (h handler) Gone(l *link.Link, f wire.Gone) { h.mesh.peerGone(l, f) }

func (h handler) Leaving(l *link.Link, f wire.Leaving) { h.mesh.peerLeaving(l, f) }

func (h handler) View(l *link.Link, message []byte) { h.mesh.peerSentView(l, message) }

func (h handler) Failed(l *link.Link, f wire.Failed, text string) { h.mesh.peerReported(l, f, text) }

// discard aborts a link outside slots, and releases its state in the engine.
func (m *Mesh) discard(l *link.Link) {
	l.Abort()
	m.engine.Forget(l)
}
