package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/topology"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A viewWorld has a seed and nodes in fake time. Connections to the seed are TLS over pipes in memory,
// and their messages are counted. A link between two nodes is a queue of messages about views.
type viewWorld struct {
	*testSeed
	t        *testing.T
	listener *pipeListener
	sessions []*client.Session // by rank
	links    *viewLinks
	graph    membership.WatchGraph
}

// inViewWorld calls f with a world of n nodes that has formed, in fake time.
func inViewWorld(t *testing.T, n int, f func(w *viewWorld)) {
	t.Helper()
	inViewWorldWith(t, topology.Topology{}, n, f)
}

// inViewWorldWith is inViewWorld with a topology.
func inViewWorldWith(t *testing.T, links topology.Topology, n int, f func(w *viewWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ca := newAuthority(t)
		l := newPipeListener(t, ca)
		w := &viewWorld{t: t, listener: l, links: &viewLinks{nodes: make(map[membership.NodeID]*viewNode)}, graph: membership.WatchGraph{Topology: links}}
		w.testSeed = serveOver(t, l, ca, l.dial, n, elastic(n, func(cfg *Config) {
			cfg.Limits = handshake.Limits{Hello: time.Minute, Step: time.Minute, Ping: time.Second, Silence: time.Hour}
		}))
		defer func() {
			for _, s := range w.sessions {
				s.Close()
			}
			w.links.close()
			w.Close()
			l.Close()
		}()
		for i := range n {
			s := w.joinNode(i)
			w.sessions = append(w.sessions, s)
		}
		w.form(t, w.sessions...)
		v := w.sessions[0].Newest()
		slices.SortFunc(w.sessions, func(a, b *client.Session) int {
			i, _ := v.Rank(a.ID)
			j, _ := v.Rank(b.ID)
			return i - j
		})
		synctest.Wait()
		f(w)
	})
}

// joinNode lets the i-th node join, with links to all others.
func (w *viewWorld) joinNode(i int) *client.Session {
	w.t.Helper()
	n := w.links.open()
	req := w.request(i)
	req.Alternates = []string{fmt.Sprintf("10.0.%d.%d:7000", i/256, i%256)}
	req.Limits = handshake.Limits{Silence: time.Hour}
	req.SendView = n.send
	req.Topology = w.graph.Topology
	req.Endpoints = []membership.Endpoint{{Transport: "shm"}, {Transport: "tcp"}, {Transport: "quic"}}
	s, err := w.join(w.t, req)
	if err != nil {
		w.t.Fatal(err)
	}
	n.serve(s)
	return s
}

// await waits until all sessions have a view after an epoch, and requires that they have the same.
func (w *viewWorld) await(epoch uint64, within time.Duration) (v membership.View) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), within)
	defer cancel()
	var all sync.WaitGroup
	views := make([]membership.View, len(w.sessions))
	for i, s := range w.sessions {
		all.Go(func() {
			var err error
			if views[i], err = s.Next(ctx, epoch); err != nil {
				w.t.Errorf("node %d of %d: %v", i, len(w.sessions), err)
			}
		})
	}
	all.Wait()
	for i, v := range views {
		if v.Hash() != views[0].Hash() {
			w.t.Errorf("node %d has view %d of %d nodes, node 0 has view %d of %d", i, v.Epoch, v.Size(), views[0].Epoch, views[0].Size())
		}
	}
	if w.t.Failed() {
		w.t.FailNow()
	}
	return views[0]
}

// grow lets a node join the world.
func (w *viewWorld) grow() {
	w.t.Helper()
	epoch := w.sessions[0].Newest().Epoch
	late := w.joinNode(len(w.sessions))
	i := begin(w.t, late, 0)
	late.Linked(i.Number)
	n := len(w.sessions)
	graph := w.graph.Topology.Graph(n + 1)
	for rank, s := range w.sessions {
		if graph.IsNeighbor(rank, n) {
			s.Link(late.ID, true)
		}
	}
	synctest.Wait()
	for _, s := range w.sessions {
		if !s.IsQuiescing(epoch) {
			w.t.Fatal("a node is not asked to quiesce")
		}
		s.Quiesced(epoch, false, 0)
	}
	w.sessions = append(w.sessions, late)
	w.await(epoch, time.Second)
	synctest.Wait()
}

// leave makes the node of a rank leave.
func (w *viewWorld) leave(rank int) {
	w.t.Helper()
	epoch := w.sessions[0].Newest().Epoch
	w.sessions[rank].Close()
	w.sessions = slices.Delete(w.sessions, rank, rank+1)
	w.await(epoch, time.Second)
	synctest.Wait()
}

// reporters returns the number of nodes that report the death of the node of a rank: those that watch it or that it watches.
func (w *viewWorld) reporters(rank int) (n int) {
	v := w.sessions[0].Newest()
	for peer := range v.Size() {
		if w.graph.Connects(v, rank, peer) {
			n++
		}
	}
	return n
}

// die makes the nodes of some ranks die, in descending order. The nodes that watch them, or that they watch, report it.
func (w *viewWorld) die(within time.Duration, ranks ...int) {
	w.t.Helper()
	v := w.sessions[0].Newest()
	for _, rank := range ranks {
		w.links.end(w.sessions[rank].ID)
		w.sessions[rank].Break()
	}
	for _, rank := range ranks {
		for peer := range v.Size() {
			if w.graph.Connects(v, rank, peer) && !slices.Contains(ranks, peer) {
				w.sessions[peer].Lost(w.sessions[rank].ID, errors.New("killed"))
			}
		}
	}
	for _, rank := range ranks {
		w.sessions = slices.Delete(w.sessions, rank, rank+1)
	}
	w.await(v.Epoch, within)
	synctest.Wait()
}

// A count is a number of messages and their bytes. The signatures of views, of 70 to 72 bytes, are counted apart.
type count struct{ messages, bytes, signatures int }

// A pipeListener accepts TLS over pipes in memory, and counts the messages in both directions by
// their types.
type pipeListener struct {
	conf   *tls.Config
	conns  chan transport.Conn
	closed chan struct{}
	wg     sync.WaitGroup

	mu     sync.Mutex
	port   int
	counts map[string]count
}

func newPipeListener(t *testing.T, ca *pki.Authority) *pipeListener {
	t.Helper()
	joining, err := ca.Joining()
	if err != nil {
		t.Fatal(err)
	}
	return &pipeListener{conf: joining.Server(), conns: make(chan transport.Conn), closed: make(chan struct{}), counts: make(map[string]count)}
}

func (l *pipeListener) Name() string { return "pipe" }
func (l *pipeListener) Addr() string { return "127.0.0.1:7946" }

func (l *pipeListener) Dial(ctx context.Context, addr, _ string) (transport.Conn, error) {
	return l.dial(ctx, addr)
}

func (l *pipeListener) dial(ctx context.Context, _ string) (transport.Conn, error) {
	l.mu.Lock()
	l.port++
	from := fmt.Sprintf("10.1.%d.%d:7000", l.port/256, l.port%256)
	l.mu.Unlock()
	near, far := net.Pipe()
	l.wg.Go(func() {
		c := tls.Server(far, l.conf)
		if c.Handshake() != nil {
			far.Close()
			return
		}
		conn := newTLSConn(c, func(string) string { return from })
		select {
		case l.conns <- countedConn{conn, l, "to nodes"}:
		case <-l.closed:
			conn.Close()
		}
	})
	c := tls.Client(near, pki.Joining{}.Client(""))
	if err := c.HandshakeContext(ctx); err != nil {
		near.Close()
		return nil, err
	}
	return countedConn{newTLSConn(c, func(string) string { return l.Addr() }), l, "to the seed"}, nil
}

func (l *pipeListener) Accept(ctx context.Context) (transport.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, transport.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	l.wg.Wait()
	return nil
}

// take returns the counts, and begins to count again. Pings are not counted.
func (l *pipeListener) take() map[string]count {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := l.counts
	l.counts = make(map[string]count)
	return counts
}

// A countedConn counts the messages that it sends.
type countedConn struct {
	*tlsConn
	l         *pipeListener
	direction string
}

func (c countedConn) OpenPipe(ctx context.Context) (transport.Sender, error) {
	s, err := c.tlsConn.OpenPipe(ctx)
	return countedSender{s, c}, err
}

type countedSender struct {
	transport.Sender
	conn countedConn
}

// Write is called with one message.
func (s countedSender) Write(b []byte) (int, error) {
	if m, err := wire.ReadJoin(strings.NewReader(string(b)), wire.JoinBytesMax); err == nil {
		if _, ping := m.(wire.JoinPing); !ping {
			signature := 0
			if d, ok := m.(wire.JoinDifference); ok {
				signature = len(d.Signature)
			}
			s.conn.l.mu.Lock()
			for _, name := range []string{s.conn.direction, fmt.Sprintf("%T %s", m, s.conn.direction)} {
				c := s.conn.l.counts[name]
				s.conn.l.counts[name] = count{c.messages + 1, c.bytes + len(b), c.signatures + signature}
			}
			s.conn.l.mu.Unlock()
		}
	}
	return s.Sender.Write(b)
}

// viewLinks are the links between the nodes of a viewWorld.
type viewLinks struct {
	mu    sync.Mutex
	nodes map[membership.NodeID]*viewNode
	// change may replace a message from one node to another; nil drops it.
	change func(from, to membership.NodeID, b []byte) []byte
}

type viewNode struct {
	links   *viewLinks
	session *client.Session
	inbox   chan viewMessage
	ended   chan struct{}
	stopped chan struct{}
	errs    []error // of HandleView; guarded by links.mu
}

type viewMessage struct {
	from membership.NodeID
	b    []byte
}

func (l *viewLinks) open() *viewNode {
	return &viewNode{links: l, inbox: make(chan viewMessage, 1024), ended: make(chan struct{}), stopped: make(chan struct{})}
}

// serve handles the messages of other nodes to a session.
func (n *viewNode) serve(s *client.Session) {
	n.links.mu.Lock()
	n.session = s
	n.links.nodes[s.ID] = n
	n.links.mu.Unlock()
	go func() {
		defer close(n.stopped)
		for {
			select {
			case m := <-n.inbox:
				if err := s.HandleView(m.from, m.b); err != nil {
					n.links.mu.Lock()
					n.errs = append(n.errs, fmt.Errorf("from %v: %w", m.from, err))
					n.links.mu.Unlock()
				}
			case <-n.ended:
				return
			}
		}
	}()
}

func (n *viewNode) send(to membership.NodeID, b []byte) bool {
	n.links.mu.Lock()
	defer n.links.mu.Unlock()
	peer := n.links.nodes[to]
	if peer == nil || n.links.nodes[n.session.ID] != n {
		return false // The links of one of the two have ended.
	}
	b = slices.Clone(b)
	if n.links.change != nil {
		if b = n.links.change(n.session.ID, to, b); b == nil {
			return true
		}
	}
	peer.inbox <- viewMessage{n.session.ID, b}
	return true
}

// end ends all links of a node.
func (l *viewLinks) end(id membership.NodeID) {
	l.mu.Lock()
	n := l.nodes[id]
	delete(l.nodes, id)
	l.mu.Unlock()
	if n != nil {
		close(n.ended)
		<-n.stopped
	}
}

func (l *viewLinks) close() {
	l.mu.Lock()
	var ids []membership.NodeID
	for id := range l.nodes {
		ids = append(ids, id)
	}
	l.mu.Unlock()
	for _, id := range ids {
		l.end(id)
	}
}
