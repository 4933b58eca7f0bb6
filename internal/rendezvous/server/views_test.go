package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
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
}

// inViewWorld calls f with a world of n nodes that has formed, in fake time.
func inViewWorld(t *testing.T, n int, f func(w *viewWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ca := newAuthority(t)
		joining, err := ca.Joining()
		if err != nil {
			t.Fatal(err)
		}
		l := &pipeListener{conf: joining.Server(), conns: make(chan transport.Conn), closed: make(chan struct{}), counts: make(map[string]count)}
		w := &viewWorld{t: t, listener: l, links: &viewLinks{nodes: make(map[membership.NodeID]*viewNode)}}
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
	req.Candidates = []string{fmt.Sprintf("10.0.%d.%d:7000", i/256, i%256)}
	req.Limits = handshake.Limits{Silence: time.Hour}
	req.SendView = n.send
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
	confirm(late, w.sessions...)
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

// die makes the nodes of some ranks die, in descending order. The nodes that watch them, or that they watch, report it.
func (w *viewWorld) die(within time.Duration, ranks ...int) {
	w.t.Helper()
	v := w.sessions[0].Newest()
	for _, rank := range ranks {
		w.links.end(w.sessions[rank].ID)
		w.sessions[rank].Break()
	}
	for _, rank := range ranks {
		for _, peer := range slices.Concat(membership.Watched(v, rank, 0), membership.Watchers(v, rank, 0)) {
			if !slices.Contains(ranks, peer) {
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

// A count is a number of messages and their bytes.
type count struct{ messages, bytes int }

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
			s.conn.l.mu.Lock()
			for _, name := range []string{s.conn.direction, fmt.Sprintf("%T %s", m, s.conn.direction)} {
				c := s.conn.l.counts[name]
				s.conn.l.counts[name] = count{c.messages + 1, c.bytes + len(b)}
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
	if peer == nil {
		return false
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

// TestViewTraffic counts the messages of membership at the seed for a join, a departure and a death,
// without heartbeats. For a view the seed sends and gets a number of messages that does not depend
// on the size of the world. TRAFFIC=1024 counts them in a world of 1,024 nodes.
func TestViewTraffic(t *testing.T) {
	sizes := []int{16, 64, 128}
	if text := os.Getenv("TRAFFIC"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 16 {
			t.Fatalf("TRAFFIC=%s: must be a number of nodes, at least 16", text)
		}
		sizes = []int{n}
	}
	for _, n := range sizes {
		inViewWorld(t, n, func(w *viewWorld) {
			const roots = 8
			steps := []struct {
				name  string
				step  func()
				whole int // whole views
				other int // messages besides those of views, at most
			}{
				{"join", w.grow, 1, 4*n + 20},
				{"leave", func() { w.leave(n / 2) }, 0, 2},
				{"death", func() { w.die(time.Second, n/3) }, 0, 2 * 12},
			}
			for _, s := range steps {
				w.listener.take()
				s.step()
				got := w.listener.take()
				view := len(wholeView(t, w.sessions[0].Newest()))
				staying := len(w.sessions) - s.whole
				difference, confirms, whole := got["wire.JoinDifference to nodes"], got["wire.JoinConfirm to the seed"], got["wire.JoinView to nodes"]
				if difference.messages != roots || confirms.messages != roots || whole.messages != s.whole {
					t.Errorf("%d nodes, %s: %d differences, %d confirmations, %d whole views; want %d, %d, %d",
						n, s.name, difference.messages, confirms.messages, whole.messages, roots, roots, s.whole)
				}
				if difference.bytes > roots*512 || confirms.bytes > roots*64 || whole.bytes != s.whole*view {
					t.Errorf("%d nodes, %s: %d bytes of differences, %d of confirmations, %d of whole views", n, s.name, difference.bytes, confirms.bytes, whole.bytes)
				}
				out, in := got["to nodes"], got["to the seed"]
				if other := out.messages + in.messages - 2*roots - s.whole; other > s.other {
					t.Errorf("%d nodes, %s: %d messages besides those of views, want at most %d: %v", n, s.name, other, s.other, got)
				}
				t.Logf("%d nodes, %s: %d messages with %d bytes; with whole views from the seed to all: %d with %d", n, s.name,
					out.messages+in.messages, out.bytes+in.bytes,
					out.messages+in.messages-2*roots+staying, out.bytes+in.bytes-difference.bytes-confirms.bytes+staying*view)
			}
			if strings.Contains(w.log.String(), "have not confirmed") {
				t.Errorf("%d nodes: the seed has sent a difference to nodes that have parents", n)
			}
		})
	}
}

func wholeView(t *testing.T, v membership.View) []byte {
	t.Helper()
	b, err := wire.AppendJoin(nil, wire.JoinView(v))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestViewsWithoutLinks: nodes without links get views from the seed.
func TestViewsWithoutLinks(t *testing.T) {
	inViewWorld(t, 40, func(w *viewWorld) {
		for _, s := range w.sessions[10:30] {
			w.links.end(s.ID)
		}
		w.die(5*time.Second, 5)
		w.die(5*time.Second, 20)
	})
}

// TestInnerNodeIsSilent: a node that gets differences, and neither forwards nor confirms them, delays
// its subtree by less than a second. It stays in the world.
func TestInnerNodeIsSilent(t *testing.T) {
	inViewWorld(t, 60, func(w *viewWorld) {
		for rank := range 3 {
			silent := w.sessions[30+rank].ID
			w.links.mu.Lock()
			w.links.change = func(from, _ membership.NodeID, b []byte) []byte {
				if from == silent {
					return nil
				}
				return b
			}
			w.links.mu.Unlock()
			w.die(time.Second, 1)
		}
	})
}

// TestInnerNodesDieMeanwhile: nodes die while a view travels, and are removed by the next one, which
// arrives at nodes that lack the first.
func TestInnerNodesDieMeanwhile(t *testing.T) {
	inViewWorld(t, 60, func(w *viewWorld) {
		v := w.sessions[0].Newest()
		doomed := w.sessions[20].ID
		w.links.mu.Lock()
		w.links.change = func(from, to membership.NodeID, b []byte) []byte {
			if from == doomed || to == doomed {
				return nil
			}
			return b
		}
		w.links.mu.Unlock()
		w.sessions[40].Break()
		w.links.end(w.sessions[40].ID)
		for _, peer := range membership.Watchers(v, 40, 0) {
			w.sessions[peer].Lost(w.sessions[40].ID, errors.New("killed"))
		}
		time.Sleep(15 * time.Millisecond) // The view without rank 40 is on its way.
		w.links.end(doomed)
		w.sessions[20].Break()
		for _, peer := range membership.Watchers(v, 20, 0) {
			w.sessions[peer].Lost(doomed, errors.New("killed"))
		}
		w.sessions = slices.Delete(slices.Delete(w.sessions, 40, 41), 20, 21)
		got := w.await(v.Epoch+1, 2*time.Second)
		if got.Size() != 58 {
			t.Errorf("view %d has %d nodes, want 58", got.Epoch, got.Size())
		}
	})
}

// TestViewIsForged: nodes refuse differences that another node has changed, name it, and get the view
// from the seed.
func TestViewIsForged(t *testing.T) {
	inViewWorld(t, 40, func(w *viewWorld) {
		forger := w.sessions[8].ID
		forged := 0
		w.links.change = func(from, _ membership.NodeID, b []byte) []byte {
			m, err := wire.DecodeViewMessage(b)
			d, ok := m.(wire.JoinDifference)
			if from != forger || err != nil || !ok {
				return b
			}
			forged++
			d.Gone = append([]uint32{0}, d.Gone...)
			return handshake.Frame(d)
		}
		for range 6 {
			w.die(time.Second, 20)
		}
		w.links.mu.Lock()
		defer w.links.mu.Unlock()
		refused := 0
		for id, n := range w.links.nodes {
			for _, err := range n.errs {
				refused++
				if !errors.Is(err, membership.ErrForged) || !strings.Contains(err.Error(), forger.String()) {
					t.Errorf("node %v has refused a message: %v", id, err)
				}
			}
		}
		if forged == 0 || refused != forged {
			t.Errorf("%d of %d forged views are refused", refused, forged)
		}
	})
}

// TestLateNodeAsksTheSeed: a node that gets no view over its links, and not from the seed since its
// parent confirms for it, learns of the view by a ping, and asks the seed.
func TestLateNodeAsksTheSeed(t *testing.T) {
	inViewWorld(t, 40, func(w *viewWorld) {
		late := w.sessions[30]
		w.links.change = func(from, to membership.NodeID, b []byte) []byte {
			m, err := wire.DecodeViewMessage(b)
			if d, ok := m.(wire.JoinDifference); err == nil && ok && to == late.ID {
				// The confirmation of the late node, which has not got the view.
				w.links.nodes[from].inbox <- viewMessage{late.ID, handshake.Frame(wire.JoinConfirm{Epoch: d.Epoch})}
				return nil
			}
			return b
		}
		for range 3 {
			w.die(5*time.Second, 10)
		}
		if got := w.listener.take()["wire.JoinBehind to the seed"].messages; got == 0 {
			t.Error("the node has not asked the seed")
		}
	})
}
