package session

import (
	"bytes"
	"crypto/tls"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/relay/forward"
	"github.com/nexar-go/nexar/internal/relay/relaytest"
	"github.com/nexar-go/nexar/internal/testpeer"
)

// A world is a simulated network of nodes with sessions.
type world struct {
	*relaytest.Network
	t     *testing.T
	creds []*testpeer.Creds
	hosts []map[sessionKey]*side
	ids   uint64
	// verdicts counts the frames of all sessions by verdict, and suspects the neighbors that frames
	// with the verdict Altered came from.
	verdicts map[Verdict]int
	suspects map[int]int
}

type sessionKey struct {
	peer membership.NodeID
	id   uint64
}

// A side is one side of a session and its application: it reads all pipes.
type side struct {
	*Session
	world  *world
	node   int
	timer  time.Time
	pipes  []*Incoming
	read   map[uint32]*bytes.Buffer // by pipe
	paused bool                     // it reads nothing
	outbox []*source
}

// A source is a pipe that is being written.
type source struct {
	pipe *Outgoing
	data []byte
	end  bool
}

func newWorld(t *testing.T, seed uint64, graph relaytest.Graph, hopLimit int) *world {
	w := &world{
		Network: relaytest.New(seed, graph, forward.Config{HopLimit: hopLimit, Buffer: 80 << 10}), t: t,
		verdicts: make(map[Verdict]int), suspects: make(map[int]int),
	}
	ca := testpeer.NewCA(t)
	for i, n := range w.Nodes {
		w.creds = append(w.creds, ca.Node(t, relaytest.ID(i).String()))
		w.hosts = append(w.hosts, make(map[sessionKey]*side))
		n.Deliver = func(f forward.Frame, from int) { w.deliver(i, f, from) }
		n.Rerouted = func() {
			for _, s := range w.hosts[i] {
				s.RoutesChanged(w.Now)
				s.flush()
			}
		}
	}
	return w
}

func (w *world) config(node, peer int, id uint64, conf *tls.Config) Config {
	return Config{Self: relaytest.ID(node), Peer: relaytest.ID(peer), ID: id, TLS: conf, Identify: w.creds[node].Peer}
}

func (w *world) add(node, peer int, id uint64, s *Session) *side {
	x := &side{Session: s, world: w, node: node, read: make(map[uint32]*bytes.Buffer)}
	w.hosts[node][sessionKey{relaytest.ID(peer), id}] = x
	return x
}

// dial starts a session.
func (w *world) dial(from, to int) *side {
	w.ids++
	s, err := Dial(w.Now, w.config(from, to, w.ids, w.creds[from].Client(relaytest.ID(to).String())))
	if err != nil {
		w.t.Fatal(err)
	}
	x := w.add(from, to, w.ids, s)
	x.flush()
	return x
}

// other returns the other side of a session, or nil.
func (x *side) other() *side {
	return x.world.hosts[relaytest.Index(x.cfg.Peer)][sessionKey{x.cfg.Self, x.cfg.ID}]
}

func (w *world) deliver(i int, f forward.Frame, from int) {
	key := sessionKey{f.Source, f.Session}
	x := w.hosts[i][key]
	if x == nil {
		if f.Kind != forward.Handshake || f.Seq != 0 {
			w.verdicts[Unexpected]++
			return
		}
		s, err := Accept(w.Now, w.config(i, relaytest.Index(f.Source), f.Session, w.creds[i].Server()))
		if err != nil {
			w.t.Fatal(err)
		}
		x = w.add(i, relaytest.Index(f.Source), f.Session, s)
	}
	v := x.Receive(w.Now, f)
	w.verdicts[v]++
	if v == Altered {
		w.suspects[from]++
	}
	x.flush()
}

// flush carries out everything that a session can do: it reads, writes, sends and sets the timer.
func (x *side) flush() {
	w := x.world
	for more := true; more; {
		more = x.pump()
	}
	for _, f := range x.Take() {
		w.Send(x.node, f)
	}
	if at := x.Deadline(); !at.IsZero() && !at.Equal(x.timer) {
		x.timer = at
		w.At(max(at.Sub(w.Now), 0), func() {
			if x.timer.Equal(at) && !w.Nodes[x.node].Dead {
				x.timer = time.Time{}
				x.Tick(w.Now)
				x.flush()
			}
		})
	}
}

// pump reads and writes as much as possible, and reports whether anything was.
func (x *side) pump() (more bool) {
	for p := x.AcceptPipe(x.world.Now); p != nil; p = x.AcceptPipe(x.world.Now) {
		x.pipes = append(x.pipes, p)
		x.read[p.id] = new(bytes.Buffer)
	}
	for _, p := range x.pipes {
		for b := x.Peek(p, 5000); len(b) > 0 && !x.paused; b = x.Peek(p, 5000) {
			x.read[p.id].Write(b)
			x.Consume(x.world.Now, p, len(b))
			more = true
		}
	}
	for _, s := range x.outbox {
		if s.pipe == nil {
			s.pipe = x.Open(x.world.Now)
		}
		if s.pipe == nil {
			continue
		}
		n := x.Session.Write(x.world.Now, s.pipe, s.data)
		s.data = s.data[n:]
		more = more || n > 0
		if len(s.data) == 0 && !s.end {
			s.end = true
			x.End(x.world.Now, s.pipe)
		}
	}
	return more
}

// send writes data to a new pipe.
func (x *side) send(data []byte) {
	x.outbox = append(x.outbox, &source{data: data})
	x.flush()
}

// A transfer is the data of the pipes of one direction of a session.
type transfer struct {
	from *side
	data [][]byte
}

// transfer sends random data over some pipes of a session.
func (x *side) transfer(rng *rand.Rand, pipes, size int) transfer {
	t := transfer{from: x}
	for range pipes {
		b := make([]byte, rng.IntN(size))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		t.data = append(t.data, b)
		x.send(b)
	}
	return t
}

// check requires that all data has arrived, each byte once.
func (f transfer) check() {
	w, to := f.from.world, f.from.other()
	w.t.Helper()
	if to == nil || f.from.Err() != nil || to.Err() != nil {
		w.t.Fatalf("the session from %d has ended: %v", f.from.node, f.from.Err())
	}
	if len(to.pipes) < len(f.data) {
		w.t.Fatalf("%d pipes have arrived, want %d", len(to.pipes), len(f.data))
	}
	for i, want := range f.data {
		p := to.pipes[i]
		if got := to.read[p.id].Bytes(); !bytes.Equal(got, want) || !p.Ended() {
			w.t.Fatalf("from %d to %d: pipe %d has %d bytes, want %d; ended: %v", f.from.node, to.node, i, len(got), len(want), p.Ended())
		}
	}
}
