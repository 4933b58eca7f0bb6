package server

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/topology"
	"github.com/nexar-go/nexar/internal/wire"
)

// TestViewTraffic counts the messages of membership at the seed for a join, a departure and a death,
// without heartbeats. For a view the seed sends and gets a number of messages that does not depend
// on the size of the world. All numbers of messages are exact, and so are the bytes of views and confirmations without
// signatures. TRAFFIC=1024 counts them in a world of 1,024 nodes.
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
				other int // messages besides those of views
			}{
				{"join", w.grow, 1, 4*n + 7}, // four for each node that stays, and seven of the node that joins
				{"leave", func() { w.leave(n / 2) }, 0, 1},
				{"death", func() { w.die(time.Second, n/3) }, 0, w.reporters(n / 3)},
			}
			for _, s := range steps {
				w.listener.take()
				before := w.sessions[0].Newest()
				s.step()
				got := w.listener.take()
				view := len(wholeView(t, w.sessions[0].Newest()))
				staying := len(w.sessions) - s.whole
				difference, confirms, whole := got["wire.JoinDifference to nodes"], got["wire.JoinConfirm to the seed"], got["wire.JoinView to nodes"]
				if difference.messages != roots || confirms.messages != roots || whole.messages != s.whole {
					t.Errorf("%d nodes, %s: %d differences, %d confirmations, %d whole views; want %d, %d, %d",
						n, s.name, difference.messages, confirms.messages, whole.messages, roots, roots, s.whole)
				}
				d, ok := membership.Diff(before, w.sessions[0].Newest())
				if !ok {
					t.Fatalf("%d nodes, %s: there is no difference between the views", n, s.name)
				}
				wantDifference, wantConfirm := roots*len(handshake.Frame(wire.JoinDifference(d))), roots*len(handshake.Frame(wire.JoinConfirm{Epoch: d.Epoch}))
				if b := difference.bytes - difference.signatures; b != wantDifference || confirms.bytes != wantConfirm || whole.bytes != s.whole*view {
					t.Errorf("%d nodes, %s: %d bytes of differences without signatures, %d of confirmations, %d of whole views; want %d, %d, %d",
						n, s.name, b, confirms.bytes, whole.bytes, wantDifference, wantConfirm, s.whole*view)
				}
				out, in := got["to nodes"], got["to the seed"]
				if other := out.messages + in.messages - 2*roots - s.whole; other != s.other {
					t.Errorf("%d nodes, %s: %d messages besides those of views, want %d: %v", n, s.name, other, s.other, got)
				}
				t.Logf("%d nodes, %s: %d messages with %d bytes; with whole views from the seed to all: %d with %d", n, s.name,
					out.messages+in.messages, out.bytes+in.bytes,
					out.messages+in.messages-2*roots+staying, out.bytes+in.bytes-difference.bytes-confirms.bytes+staying*view)
			}
			if strings.Contains(w.log.String(), "that have not confirmed it") {
				t.Errorf("%d nodes: the seed has sent a difference to nodes that have parents", n)
			}
		})
	}
}

// TestSparseViewTraffic: in a sparse topology the seed sends a difference to 8 nodes as well, and the nodes
// send each other differences and confirmations over links of neighbors only, each difference over one link. A leave costs the
// seed as many messages in a world of 64 nodes as in one of 16, and a death one more for each neighbor of the dead node: a
// number that grows with the logarithm of the number of nodes or not at all. A join costs three for each node: it is told to expect the newcomer,
// is asked to quiesce, and answers. The neighbors of the newcomer confirm their links, and seven are about the newcomer itself.
func TestSparseViewTraffic(t *testing.T) {
	require.NoRace(t, "it repeats other tests in many topologies and orders")
	for _, name := range []string{"k-regular:2", "k-regular:4", "hypercube"} {
		links, err := topology.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{16, 64} {
			inViewWorldWith(t, links, n, (*viewWorld).sparseTraffic)
		}
	}
}

func (w *viewWorld) sparseTraffic() {
	const roots = 8
	n, g := len(w.sessions), w.graph.Topology
	for _, s := range []struct {
		name        string
		step        func()
		gone, joins int
		other       func() int // messages at the seed besides those of views
	}{
		{"join", w.grow, 0, 1, func() int { return 3*n + len(g.Graph(n+1).Neighbors(n)) + 7 }},
		{"leave", func() { w.leave(n / 2) }, 1, 0, func() int { return 1 }},
		{"death", func() { w.die(time.Second, n/3) }, 1, 0, func() int { return w.reporters(n / 3) }},
	} {
		others := s.other()
		before := w.sessions[0].Newest()
		used, differences := make(map[[2]int]bool), 0
		w.links.mu.Lock()
		w.links.change = func(from, to membership.NodeID, b []byte) []byte {
			i, _ := before.Rank(from)
			j, _ := before.Rank(to)
			if !w.graph.Connects(before, i, j) {
				w.t.Errorf("%v, %s: a message about views goes from rank %d to rank %d, which is no neighbor", g, s.name, i, j)
			}
			if m, err := wire.DecodeViewMessage(b); err != nil {
				w.t.Error(err)
			} else if _, ok := m.(wire.JoinDifference); ok {
				differences++
				used[[2]int{min(i, j), max(i, j)}] = true
			}
			return b
		}
		w.links.mu.Unlock()
		w.listener.take()
		s.step()
		got := w.listener.take()
		difference, confirms, whole := got["wire.JoinDifference to nodes"], got["wire.JoinConfirm to the seed"], got["wire.JoinView to nodes"]
		if difference.messages != roots || confirms.messages != roots || whole.messages != s.joins {
			w.t.Errorf("%v, %d nodes, %s: %d differences, %d confirmations, %d whole views; want %d, %d, %d",
				g, n, s.name, difference.messages, confirms.messages, whole.messages, roots, roots, s.joins)
		}
		if other := got["to nodes"].messages + got["to the seed"].messages - 2*roots - s.joins; other != others {
			w.t.Errorf("%v, %d nodes, %s: %d messages besides those of views, want %d: %v", g, n, s.name, other, others, got)
		}
		w.links.mu.Lock()
		if want := before.Size() - s.gone - roots; differences != want || len(used) != want {
			w.t.Errorf("%v, %d nodes, %s: %d differences over %d links between nodes, want %d each", g, n, s.name, differences, len(used), want)
		}
		w.links.mu.Unlock()
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

// soon is longer than the seed needs for a decision, and shorter than nodes wait for confirmations.
const soon = 50 * time.Millisecond

// TestViewsWithoutLinks: nodes without links get views from the seed at once.
func TestViewsWithoutLinks(t *testing.T) {
	inViewWorld(t, 40, func(w *viewWorld) {
		for _, s := range w.sessions[10:30] {
			w.links.end(s.ID)
		}
		w.die(soon, 5)
		w.die(soon, 20)
	})
}

// TestViewsThatAreLost: if no message about views arrives, nodes get views from the seed when their
// parents have not confirmed, before a ping tells them of the views.
func TestViewsThatAreLost(t *testing.T) {
	inViewWorld(t, 40, func(w *viewWorld) {
		w.links.change = func(_, _ membership.NodeID, _ []byte) []byte { return nil }
		w.listener.take()
		w.die(time.Second, 5)
		if got := w.listener.take(); got["wire.JoinBehind to the seed"].messages > 0 || got["wire.JoinDifference to nodes"].messages != 39 {
			t.Errorf("the messages are %v, want a difference to each of 39 nodes", got)
		}
	})
}

// TestRootDies: a root gets a difference, and its session ends before it has forwarded it. Its subtree gets the
// difference from the seed at once.
func TestRootDies(t *testing.T) {
	for _, name := range []string{"full", "k-regular:4", "hypercube"} {
		t.Run(name, func(t *testing.T) {
			links, err := topology.Parse(name)
			if err != nil {
				t.Fatal(err)
			}
			inViewWorldWith(t, links, 60, (*viewWorld).rootDies)
		})
	}
}

func (w *viewWorld) rootDies() {
	v := w.sessions[0].Newest()
	_, roots := membership.NewViewSpread(time.Now(), w.graph.Topology, v, &membership.Difference{Epoch: v.Epoch + 1, Gone: []uint32{40}})
	rank, _ := v.Rank(roots[0])
	w.links.change = func(from, _ membership.NodeID, b []byte) []byte {
		if from == roots[0] {
			return nil
		}
		return b
	}
	root := w.sessions[rank]
	w.sessions[40].Break()
	w.links.end(w.sessions[40].ID)
	for peer := range v.Size() {
		if w.graph.Connects(v, peer, 40) {
			w.sessions[peer].Lost(w.sessions[40].ID, errors.New("killed"))
		}
	}
	if _, err := root.Next(w.t.Context(), v.Epoch); err != nil {
		w.t.Fatal(err)
	}
	w.links.end(root.ID)
	root.Break()
	w.sessions = slices.DeleteFunc(w.sessions, func(s *client.Session) bool { return s == root || s.ID == v.Nodes[40].ID })
	w.await(v.Epoch, soon)
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
// from the seed. The forged hash is that of the forged view, so that only the signature is wrong.
func TestViewIsForged(t *testing.T) {
	var earlier []byte // signature of the view before
	for name, forge := range map[string]func(base membership.View, d *wire.JoinDifference){
		"without the hash": func(membership.View, *wire.JoinDifference) {},
		"with the hash":    forgeHash,
		"with the hash and an earlier signature": func(base membership.View, d *wire.JoinDifference) {
			forgeHash(base, d)
			d.Signature = earlier
		},
	} {
		t.Run(name, func(t *testing.T) {
			earlier = nil
			inViewWorld(t, 40, func(w *viewWorld) { w.forged(&earlier, forge) })
		})
	}
}

// forgeHash sets the hash of a difference to the hash of the view after it.
func forgeHash(base membership.View, d *wire.JoinDifference) {
	difference := membership.Difference(*d)
	after, err := difference.Apply(base)
	if err != nil {
		panic(err)
	}
	d.Hash = after.Hash()
}

// forged lets one node remove rank 0 in all differences that it forwards. earlier gets the signature of the last of them.
func (w *viewWorld) forged(earlier *[]byte, forge func(base membership.View, d *wire.JoinDifference)) {
	t := w.t
	forger := w.sessions[8].ID
	forged := 0
	base, signature := w.sessions[0].Newest(), []byte(nil)
	w.links.change = func(from, _ membership.NodeID, b []byte) []byte {
		m, err := wire.DecodeViewMessage(b)
		d, ok := m.(wire.JoinDifference)
		if from != forger || err != nil || !ok {
			return b
		}
		forged++
		signature = slices.Clone(d.Signature)
		d.Gone = append([]uint32{0}, d.Gone...)
		forge(base, &d)
		return handshake.Frame(d)
	}
	for range 6 {
		w.die(time.Second, 20)
		w.links.mu.Lock()
		base, *earlier = w.sessions[0].Newest(), signature
		w.links.mu.Unlock()
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
