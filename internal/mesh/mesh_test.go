package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/engine/linkexec"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/testpeer"
	"github.com/nexar-go/nexar/internal/topology"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/mem"
	"github.com/nexar-go/nexar/transport/sim"
)

const (
	delay    = 5 * time.Millisecond
	interval = time.Second
	timeout  = 5 * time.Second
	simPort  = ":7000"
	// silence is the silence after which the link to a peer fails.
	silence = timeout + beatIntervals*interval
)

// A world has the nodes of a view on a simulated network.
type world struct {
	testing.TB
	interval   time.Duration       // of heartbeats
	idle       time.Duration       // Config.IdleTimeout
	watches    int                 // if not 0, links are on demand, and each node watches so many others
	isEager    func(rank int) bool // excludes ranks from links on demand; nil excludes none
	topology   topology.Topology
	relays     []*Relay // if not nil, of the nodes
	ca         *testpeer.CA
	network    *sim.Network
	view       membership.View
	transports []transport.Transport
	paths      func(rank int) []Path // replaces the paths over the transports
	lost       func(id membership.NodeID, err error)
	lostBy     func(rank int, id membership.NodeID) // replaces lost
	newest     func() membership.View               // of the seed
	meshes     []*Mesh
	comms      []*engine.Comm
	notes      []*notes
}

// inBubble calls f with a world of n nodes that listen, in fake time.
func inBubble(t *testing.T, n int, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, n, sim.Config{Seed: 1, Delay: delay})
		for rank := range n {
			w.listen(rank)
		}
		f(w)
	})
}

// newWorld makes a world of nodes that do not listen yet.
func newWorld(t testing.TB, n int, cfg sim.Config) *world {
	w := &world{
		TB: t, interval: interval, network: sim.New(cfg), view: membership.View{Epoch: 1},
		transports: make([]transport.Transport, n), meshes: make([]*Mesh, n), comms: make([]*engine.Comm, n),
	}
	for rank := range n {
		id := idOf(rank)
		w.view.Nodes = append(w.view.Nodes, membership.Node{ID: id, Addrs: []string{id.String()}, Host: id.String()})
		w.notes = append(w.notes, &notes{failed: make(map[int]int)})
		w.network.Host(id.String())
	}
	t.Cleanup(w.end)
	return w
}

func idOf(rank int) (id membership.NodeID) {
	id[0], id[15] = byte(rank), 1
	return id
}

func (w *world) host(rank int) string { return idOf(rank).String() }

// listen starts the transport of a node.
func (w *world) listen(rank int) {
	t, err := w.network.Host(w.host(rank)).Listen(7000)
	if err != nil {
		w.Error(err)
		return
	}
	w.transports[rank] = named{t}
}

func (w *world) config(rank int) Config {
	paths := []Path{{Transport: w.transports[rank]}}
	if w.paths != nil {
		paths = w.paths(rank)
	}
	lost := w.lost
	if w.lostBy != nil {
		lost = func(id membership.NodeID, _ error) { w.lostBy(rank, id) }
	}
	var relay *Relay
	if w.relays != nil {
		relay = w.relays[rank]
		paths = append(paths, relay.Path())
	}
	return Config{
		Relay: relay,
		Self:  idOf(rank), View: w.view, Paths: paths, Loop: mem.Loop,
		HeartbeatInterval: w.interval, HeartbeatTimeout: timeout, Log: slog.New(w.notes[rank]), Lost: lost, Newest: w.newest,
		OnDemand: w.watches > 0 && (w.isEager == nil || !w.isEager(rank)), Watches: w.watches, IdleTimeout: w.idle,
		Topology: w.topology,
	}
}

// form links all nodes and makes a communicator of them.
func (w *world) form() {
	w.Helper()
	w.link()
	for rank := range w.meshes {
		w.open(rank)
	}
}

// link is form without Formed.
func (w *world) link() {
	w.Helper()
	var all sync.WaitGroup
	for rank := range w.meshes {
		all.Go(func() {
			m, err := Form(w.Context(), w.config(rank))
			if err != nil {
				w.Errorf("rank %d: %v", rank, err)
				return
			}
			w.meshes[rank] = m
		})
	}
	all.Wait()
	if w.Failed() {
		w.FailNow()
	}
}

// open calls Formed on a rank and makes its communicator.
func (w *world) open(rank int) {
	w.Helper()
	m := w.meshes[rank]
	if err := m.Formed(); err != nil {
		w.Fatalf("rank %d: %v", rank, err)
	}
	w.comms[rank] = m.Engine().NewComm(1, rank, linksOf(w, m, w.view))
}

// linksOf returns the links of a mesh to the nodes of a view.
func linksOf(t testing.TB, m *Mesh, v membership.View) []*link.Link {
	t.Helper()
	links, err := m.links(v)
	if err != nil {
		t.Error(err)
	}
	return links
}

// adopt makes a mesh adopt a later view.
func (w *world) adopt(m *Mesh, v membership.View) {
	w.Helper()
	if err := m.Adopt(w.Context(), v); err != nil {
		w.Error(err)
	}
}

// linkOf returns the link of a rank to another one.
func (w *world) linkOf(rank, to int) *link.Link {
	m := w.meshes[rank]
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.peers[to].link
}

// end closes all meshes and transports, and the network.
func (w *world) end() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var all sync.WaitGroup
	for rank, m := range w.meshes {
		if m != nil {
			all.Go(func() { m.Close(ctx) })
		} else if t := w.transports[rank]; t != nil {
			t.Close()
		}
	}
	all.Wait()
	w.network.Close()
}

// reduce carries out an all-reduce on some ranks and returns their errors.
func (w *world) reduce(ranks ...int) []error {
	errs := make([]error, len(w.comms))
	var all sync.WaitGroup
	for _, rank := range ranks {
		all.Go(func() { errs[rank] = reduce(w.Context(), w.comms[rank], rank, w.comms[rank].Size()) })
	}
	all.Wait()
	return errs
}

// reduce carries out the all-reduce of a rank and checks the result.
func reduce(ctx context.Context, c *engine.Comm, rank, n int) error {
	data := make([]byte, 3*n)
	for i := range data {
		data[i] = byte(rank + i)
	}
	op, err := c.Start(&exec.Work{
		Schedule: &exec.Schedule{
			Call: wire.Call{Kind: uint8(plan.AllReduce), Count: uint64(len(data))},
			Plan: linkexec.Compile(plan.RingAllReduce(n, 0).Plan(rank), n), Channels: 1,
			Layout: exec.Layout{Elem: 1, Count: len(data)},
		},
		Data: data,
		Reduce: func(dst, a, b []byte) {
			for i := range dst {
				dst[i] = a[i] + b[i]
			}
		},
	})
	if err != nil {
		return err
	}
	if err := op.Wait(ctx); err != nil {
		return err
	}
	for i := range data {
		if want := byte(n*(n-1)/2 + n*i); data[i] != want {
			return fmt.Errorf("element %d is %d, want %d", i, data[i], want)
		}
	}
	return nil
}

// wantWhole checks that an all-reduce of all ranks succeeds and no node counts as failed.
func (w *world) wantWhole() {
	w.Helper()
	for rank, err := range w.reduce(w.ranks()...) {
		if err != nil {
			w.Errorf("rank %d: %v", rank, err)
		}
	}
	w.wantNoFailures()
}

// wantNoFailures checks that no node counts as failed.
func (w *world) wantNoFailures() {
	w.Helper()
	for rank, n := range w.notes {
		if f := n.all(); len(f) > 0 {
			w.Errorf("rank %d: failed nodes %v", rank, f)
		}
	}
}

// ranks returns all ranks except some.
func (w *world) ranks(but ...int) (ranks []int) {
	for rank := range w.comms {
		if !slices.Contains(but, rank) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// wantPeerError checks that an error names a rank.
func wantPeerError(t testing.TB, err error, rank int, left bool) {
	t.Helper()
	if e, ok := errors.AsType[*engine.PeerError](err); !ok || !isRank(e.Rank, rank) || e.Left != left {
		t.Errorf("got error %v, want a PeerError of rank %d (left: %v)", err, rank, left)
	}
}

// notes is a slog.Handler that counts the failures that a node has logged, and keeps its warnings.
type notes struct {
	mu     sync.Mutex
	failed map[int]int // number of failures, by rank
	errors int         // number of lines with slog.LevelError
	warned []string
	ends   []string // lines of nodes that have failed
}

func (n *notes) Enabled(context.Context, slog.Level) bool { return true }
func (n *notes) WithAttrs([]slog.Attr) slog.Handler       { return n }
func (n *notes) WithGroup(string) slog.Handler            { return n }

func (n *notes) Handle(_ context.Context, r slog.Record) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r.Level == slog.LevelError {
		n.errors++
	}
	text := func() string {
		text := r.Message
		r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
		return text
	}
	if r.Level == slog.LevelWarn {
		n.warned = append(n.warned, text())
	}
	if r.Message != "a node has failed" {
		return nil
	}
	n.ends = append(n.ends, time.Now().Format("04:05.000 ")+text())
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "node" {
			n.failed[int(a.Value.Group()[0].Value.Int64())]++
		}
		return true
	})
	return nil
}

// all returns the ranks that have failed, once for each log line.
func (n *notes) all() (ranks []int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for rank, times := range n.failed {
		for range times {
			ranks = append(ranks, rank)
		}
	}
	slices.Sort(ranks)
	return ranks
}

// A named transport dials over a simulated network of hosts with the IDs of nodes as names.
type named struct{ transport.Transport }

func (n named) Dial(ctx context.Context, addr, peer string) (transport.Conn, error) {
	c, err := n.Transport.Dial(ctx, addr+simPort, peer+simPort)
	if err != nil {
		return nil, err
	}
	return namedConn{c}, nil
}

func (n named) Accept(ctx context.Context) (transport.Conn, error) {
	c, err := n.Transport.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return namedConn{c}, nil
}

type namedConn struct{ transport.Conn }

func (c namedConn) Peer() string { return strings.TrimSuffix(c.Conn.Peer(), simPort) }

// sendOn sends data to a rank of c.
func sendOn(ctx context.Context, c *engine.Comm, data []byte, typ uint8, to int, tag int64) error {
	s, err := c.Messages().StartSend(p2p.Bytes(data), typ, to, tag)
	if s == nil {
		return err
	}
	return s.Wait(ctx)
}

// recvOn receives a message from a rank of c into buf.
func recvOn(ctx context.Context, c *engine.Comm, buf []byte, typ uint8, source int, tag int64) (p2p.Received, error) {
	r, err := c.Messages().StartRecv(p2p.Bytes(buf), typ, source, tag)
	if err != nil {
		return p2p.Received{}, err
	}
	return r.Wait(ctx)
}

// isRank reports whether an error calls a member by the number of a rank.
func isRank(m p2p.Member, rank int) bool { return m.String() == fmt.Sprint("rank ", rank) }
