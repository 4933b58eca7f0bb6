package mesh

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/mem"
	"github.com/nexar-go/nexar/transport/sim"
)

// A near transport reaches the nodes of its host through memory.
type near struct {
	transport.Transport
	broken error         // of every Dial
	takes  time.Duration // every Dial
}

func (n near) Name() string { return "near" }

func (n near) Capabilities() transport.Capabilities {
	return transport.Capabilities{Locality: transport.SameHost}
}

func (n near) Dial(ctx context.Context, addr, peer string) (transport.Conn, error) {
	if n.broken != nil {
		return nil, n.broken
	}
	select {
	case <-time.After(n.takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c, err := n.Transport.Dial(ctx, addr, peer)
	if err != nil {
		return nil, fmt.Errorf("near: %w", transport.ErrNotLocal)
	}
	return c, nil
}

// A multipath world has several paths between its nodes: near within a host, far between all, and
// bulk for second connections.
type multipath struct {
	*world
	hosts  []int // of each rank
	memory map[int]*mem.Network
	bulk   *sim.Network
	broken []error       // of the near path of each rank
	noBulk []bool        // ranks that do not listen for bulk
	takes  time.Duration // to dial the near path
}

// withPaths calls f with a multipath world, in fake time.
func withPaths(t *testing.T, hosts []int, f func(w *multipath)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := len(hosts)
		w := &multipath{
			world: newWorld(t, n, sim.Config{Seed: 1, Delay: delay}), hosts: hosts, memory: make(map[int]*mem.Network),
			bulk: sim.New(sim.Config{Seed: 2, Delay: delay}), broken: make([]error, n), noBulk: make([]bool, n),
		}
		// The nodes end before the network.
		t.Cleanup(func() { w.end(); w.bulk.Close() })
		w.paths = w.pathsOf
		for rank := range n {
			w.view.Nodes[rank].Host = fmt.Sprint("host ", hosts[rank])
			w.listen(rank)
		}
		f(w)
	})
}

func (w *multipath) pathsOf(rank int) []Path {
	host := w.memory[w.hosts[rank]]
	if host == nil {
		host = mem.NewNetwork()
		w.memory[w.hosts[rank]] = host
	}
	n, err := host.Listen(w.host(rank))
	if err != nil {
		w.Fatal(err)
	}
	paths := []Path{
		{Transport: near{n, w.broken[rank], w.takes}},
		{Transport: w.transports[rank], Name: "far", Encrypted: true},
	}
	if !w.noBulk[rank] {
		b, err := w.bulk.Host(w.host(rank)).Listen(7000)
		if err != nil {
			w.Fatal(err)
		}
		paths = append(paths, Path{Transport: named{b}, Name: "bulk", Encrypted: true, Bulk: true, Pipes: 2})
	}
	return paths
}

// form forms the world. It makes the paths of one rank at a time.
func (w *multipath) form() {
	w.Helper()
	made := make([][]Path, len(w.hosts))
	for rank := range w.hosts {
		made[rank] = w.paths(rank)
	}
	w.paths = func(rank int) []Path { return made[rank] }
	w.world.form()
}

// wantPath checks the PathInfo of a rank about another one.
func (w *multipath) wantPath(rank, to int, link, bulk string, encrypted bool, why string) {
	w.Helper()
	for _, i := range w.meshes[rank].Paths(w.meshes[rank].cfg.View) {
		if i.Rank != to {
			continue
		}
		if i.Transport != link || i.BulkTransport != bulk || i.Encrypted != encrypted || !strings.Contains(i.Reason, why) || i.Node != idOf(to) {
			w.Errorf("rank %d reaches rank %d by %+v, want %s, %s, encrypted %v, %q", rank, to, i, link, bulk, encrypted, why)
		}
		return
	}
	w.Errorf("rank %d has no path to rank %d", rank, to)
}

func TestPaths(t *testing.T) {
	withPaths(t, []int{0, 1, 0, 1, 2}, func(w *multipath) {
		w.form()
		w.wantWhole()
		for rank, m := range w.meshes {
			if got := len(m.Paths(m.cfg.View)); got != 4 {
				t.Errorf("rank %d has paths to %d nodes", rank, got)
			}
		}
		w.wantPath(2, 0, "near", "near", false, "same host")
		w.wantPath(0, 2, "near", "near", false, "same host")
		w.wantPath(3, 1, "near", "near", false, "same host")
		w.wantPath(1, 0, "far", "bulk", true, "not on this host")
		w.wantPath(0, 1, "far", "bulk", true, chosenByPeer)
		w.wantPath(4, 3, "far", "bulk", true, "not on this host")
		for rank, n := range w.notes {
			if len(n.warned) > 0 {
				t.Errorf("rank %d warns of %q", rank, n.warned)
			}
		}
		// Short and long messages use this path.
		w.bulk.Partition(w.host(4))
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		arrived := time.Now().Add(3 * time.Second)
		time.AfterFunc(3*time.Second, w.bulk.Heal)
		for tag, size := range []int{100, 1 << 20} {
			go sendOn(ctx, w.comms[0], make([]byte, size), 1, 4, int64(tag))
			if _, err := recvOn(ctx, w.comms[4], make([]byte, size), 1, 0, int64(tag)); err != nil || time.Now().Before(arrived) {
				t.Errorf("a message of %d bytes: %v, and bulk is still cut off: %v", size, err, time.Now().Before(arrived))
			}
		}
	})
}

// TestWithoutBulk: the link to a node that cannot be reached on the path for bulk, or has none, has
// one connection, and its PathInfo the reason.
func TestWithoutBulk(t *testing.T) {
	for name, test := range map[string]struct {
		before func(w *multipath)
		warns  bool
		why    string
		most   time.Duration
	}{
		"refused":       {func(w *multipath) { w.noBulk[0] = true }, true, "bulk: ", time.Second},
		"no answer":     {func(w *multipath) { w.bulk.Partition(w.host(0)) }, true, "bulk: ", 2 * addrTimeout},
		"not available": {func(w *multipath) { w.noBulk[2] = true; w.noBulk[1] = true }, false, "not on this host", time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			withPaths(t, []int{0, 1, 2}, func(w *multipath) {
				test.before(w)
				began := time.Now()
				w.form()
				if took := time.Since(began); took > test.most {
					t.Errorf("it took %v", took)
				}
				w.wantWhole()
				w.wantPath(2, 0, "far", "far", true, test.why)
				w.wantPath(0, 2, "far", "far", true, chosenByPeer)
				warned := strings.Join(w.notes[2].warned, "\n")
				if told := strings.Contains(warned, w.host(0)) && strings.Contains(warned, "bulk"); told != test.warns {
					t.Errorf("rank 2 warns of %q", warned)
				}
			})
		})
	}
}

// TestNearIsBroken: a path within a host that fails unexpectedly is not taken, with one warning.
func TestNearIsBroken(t *testing.T) {
	withPaths(t, []int{0, 0, 0}, func(w *multipath) {
		w.broken[2] = errors.New("no memory left")
		w.form()
		w.wantWhole()
		w.wantPath(1, 0, "near", "near", false, "same host")
		w.wantPath(2, 0, "far", "bulk", true, "near: no memory left")
		w.wantPath(0, 2, "far", "bulk", true, chosenByPeer)
		if got := w.notes[2].warned; len(got) != 2 || !strings.Contains(got[0], "no memory left") {
			t.Errorf("rank 2 warns of %q, want a warning for each node", got)
		}
	})
}

// TestNoWarningWithoutLink: a path that fails is a part of the error of the dial if no other path leads to the node, such as one that has
// ended. Only a link over another path is worth a warning.
func TestNoWarningWithoutLink(t *testing.T) {
	withPaths(t, []int{0, 0}, func(w *multipath) {
		w.broken[1] = errors.New("no hello")
		for _, network := range []*sim.Network{w.network, w.bulk} {
			network.Partition(w.host(0))
		}
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		_, err := Form(ctx, w.config(1))
		if got := w.notes[1].warned; err == nil || !strings.Contains(err.Error(), "no hello") || strings.Contains(strings.Join(got, "\n"), "no hello") {
			t.Errorf("%v, with warnings %q", err, got)
		}
	})
}

// TestNearIsSlow: ranks of a host that is so busy that a dial takes several seconds use their near path.
func TestNearIsSlow(t *testing.T) {
	withPaths(t, []int{0, 0}, func(w *multipath) {
		w.takes = 3 * addrTimeout
		w.form()
		w.wantPath(0, 1, "near", "near", false, "same host")
		w.wantPath(1, 0, "near", "near", false, "same host")
	})
}

// TestNearIsMissing: a node of this host without the near path is reached by another path.
func TestNearIsMissing(t *testing.T) {
	withPaths(t, []int{0, 0}, func(w *multipath) {
		made := [][]Path{w.pathsOf(0)[1:], w.pathsOf(1)}
		w.memory[0].Kill(w.host(0))
		w.paths = func(rank int) []Path { return made[rank] }
		w.world.form()
		w.wantWhole()
		w.wantPath(1, 0, "far", "bulk", true, "no near there")
	})
}

// TestNearListensLate: a node that does not listen on the near path at first is dialed there again
// when it has answered on another path.
func TestNearListensLate(t *testing.T) {
	withPaths(t, []int{0, 0}, func(w *multipath) {
		w.transports[0].Close()
		formed := make(chan struct{})
		form := func(rank int) {
			m, err := Form(w.Context(), w.config(rank))
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
			w.meshes[rank] = m
		}
		go func() { defer close(formed); form(1) }()
		time.Sleep(3 * time.Second)
		w.listen(0)
		form(0)
		<-formed
		for rank := range w.meshes {
			w.open(rank)
		}
		w.wantWhole()
		w.wantPath(1, 0, "near", "near", false, "same host")
		w.wantPath(0, 1, "near", "near", false, "same host")
	})
}

// TestBulkLost: if the second connection of a link ends, before Formed or after it, both connections are replaced, and operations go on.
func TestBulkLost(t *testing.T) {
	withPaths(t, []int{0, 1, 2}, func(w *multipath) {
		made := make([][]Path, len(w.hosts))
		for rank := range w.hosts {
			made[rank] = w.pathsOf(rank)
		}
		w.paths = func(rank int) []Path { return made[rank] }
		w.link()
		w.meshes[2].mu.Lock()
		apart := w.meshes[2].peers[0].route.second
		w.meshes[2].mu.Unlock()
		apart.Close()
		time.Sleep(time.Second)
		if a, b := w.linkOf(0, 2), w.linkOf(2, 0); a.IsPending() || b.IsPending() || a.Connections() != 2 {
			t.Error("the link has no new connection")
		}
		for rank := range w.meshes {
			w.open(rank)
		}
		w.wantWhole()
		w.wantPath(2, 0, "far", "bulk", true, "not on this host")
		w.bulk.Crash(w.host(1))
		for rank, err := range w.reduce(w.ranks()...) {
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
	})
}

// TestRouteOfConnectionThatIsReplaced: the peer has lost the connection of a link, and makes others, of which the second is slow. The route of the link
// has both.
func TestRouteOfConnectionThatIsReplaced(t *testing.T) {
	withPaths(t, []int{0, 1}, func(w *multipath) {
		w.form()
		m := w.meshes[0]
		before := m.peer(1).route
		for _, to := range [][2]int{{0, 1}, {1, 0}} {
			w.bulk.SetOneWay(w.host(to[0]), w.host(to[1]), sim.Link{Delay: 10 * delay})
		}
		w.network.CutAt(w.host(1), w.host(0))
		for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(delay / 4) {
			m.mu.Lock()
			r := m.peers[1].route
			isBare := r != nil && r != before && r.bulk == nil
			m.mu.Unlock()
			if isBare {
				t.Fatal("the route has no second connection")
			}
		}
		if r := m.peer(1).route; r == before || r == nil {
			t.Error("the connection was not replaced")
		}
		w.wantWhole()
	})
}

// TestPeerThatBeginsNoLink: a connection without a link delays no other connection and is closed
// after a while.
func TestPeerThatBeginsNoLink(t *testing.T) {
	inBubble(t, 4, func(w *world) {
		var idle []transport.Conn
		connect := func() {
			c, err := w.transports[3].Dial(w.Context(), w.host(0), w.host(0))
			if err != nil {
				w.Fatal(err)
			}
			idle = append(idle, c)
		}
		connect()
		time.Sleep(time.Millisecond)
		connect()
		w.link()
		select {
		case <-idle[0].Done():
		default:
			t.Error("a connection stays open after the next one")
		}
		began := time.Now()
		<-idle[1].Done()
		if d := time.Since(began); d > unusedTimeout+delay {
			t.Errorf("a connection without a link stays open for %v", d)
		}
		for rank := range w.meshes {
			w.open(rank)
		}
		w.wantWhole()
	})
}

// TestEndOfUnusedConnection: a node has not failed when a connection without a link ends.
func TestEndOfUnusedConnection(t *testing.T) {
	inBubble(t, 2, func(w *world) {
		w.link()
		c, err := w.transports[1].Dial(w.Context(), w.host(0), w.host(0))
		if err != nil {
			w.Fatal(err)
		}
		time.Sleep(time.Second)
		for rank := range w.meshes {
			w.open(rank)
		}
		if s, err := c.OpenPipe(w.Context()); err == nil {
			s.Write(wire.Preamble{Lane: wire.Data}.Append(nil))
			s.Write([]byte{200})
		}
		time.Sleep(time.Second)
		c.Close()
		time.Sleep(time.Second)
		w.wantWhole()
	})
}

func TestInvalidPaths(t *testing.T) {
	inBubble(t, 1, func(w *world) {
		whole, bulk := Path{Transport: w.transports[0]}, Path{Transport: w.transports[0], Bulk: true}
		for _, paths := range [][]Path{nil, {bulk}, {whole, bulk, bulk}} {
			cfg := w.config(0)
			cfg.Paths = paths
			if _, err := Form(w.Context(), cfg); err == nil {
				t.Errorf("%d paths: no error", len(paths))
			}
		}
	})
}

// TestBrokenPathIsDialedLast: a link whose connection breaks goes on over another path, on both sides for a reason that names the failure.
// When that path breaks, the link returns to the first one.
func TestBrokenPathIsDialedLast(t *testing.T) {
	withPaths(t, []int{0, 1, 2}, func(w *multipath) {
		w.paths = func(rank int) []Path {
			fast, err := w.bulk.Host(w.host(rank)).Listen(7000)
			if err != nil {
				t.Fatal(err)
			}
			return []Path{{Transport: named{fast}, Name: "fast", Alone: true}, {Transport: w.transports[rank], Name: "far", Encrypted: true}}
		}
		w.form()
		check := func(name string, encrypted bool, why ...string) {
			t.Helper()
			time.Sleep(time.Second)
			for rank, err := range w.reduce(w.ranks()...) {
				if err != nil {
					t.Errorf("rank %d: %v", rank, err)
				}
			}
			for _, ends := range [][2]int{{0, 1}, {1, 0}} {
				for _, text := range why {
					w.wantPath(ends[0], ends[1], name, name, encrypted, text)
				}
			}
		}
		check("fast", false, "")
		w.bulk.Cut(w.host(0), w.host(1))
		check("far", true, "fast: ", "peer is gone")
		w.wantPath(0, 2, "fast", "fast", false, "")
		w.network.Cut(w.host(0), w.host(1))
		check("fast", false, "")
		w.bulk.Cut(w.host(0), w.host(1))
		check("far", true, "fast: ")
		w.wantWhole()
	})
}
