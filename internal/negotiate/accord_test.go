package negotiate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/internal/bufpool"
	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/engine/shmexec"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/mesh"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/selector"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A world is nodes of one process that are linked to each other.
type world struct {
	meshes     []*mesh.Mesh
	links      [][]*link.Link // of each node
	hosts      []string       // of each node
	allocators []shmexec.Allocator
	pool       *bufpool.Pool
}

// newWorld links nodes that share as much memory as sizes say.
func newWorld(t *testing.T, sizes ...int) *world {
	t.Helper()
	n := len(sizes)
	w := &world{meshes: make([]*mesh.Mesh, n), links: make([][]*link.Link, n), allocators: make([]shmexec.Allocator, n)}
	var err error
	if w.pool, err = bufpool.New(bufpool.Config{}); err != nil {
		t.Fatal(err)
	}
	network, view := mem.NewNetwork(), membership.View{Epoch: 1}
	paths := make([][]mesh.Path, n)
	for rank, size := range sizes {
		w.hosts = append(w.hosts, "here")
		id := membership.NodeID{byte(rank + 1)}
		view.Nodes = append(view.Nodes, membership.Node{ID: id, Addrs: []string{id.String()}, Host: "here"})
		network.Share(Areas, size)
		l, err := network.Listen(id.String())
		if err != nil {
			t.Fatal(err)
		}
		paths[rank] = []mesh.Path{{Transport: l}}
	}
	errs := w.each(func(rank int) (err error) {
		w.meshes[rank], err = mesh.Form(t.Context(), mesh.Config{
			Self: view.Nodes[rank].ID, View: view, Paths: paths[rank], Loop: mem.Loop,
		})
		return err
	})
	t.Cleanup(func() { w.each(func(rank int) error { return w.leave(rank) }) })
	noError(t, errs)
	for rank, m := range w.meshes {
		if err = m.Formed(); err == nil {
			w.links[rank], err = m.Links(view)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// shared is so many nodes that share memory, and unshared nodes that share none.
func shared(t *testing.T, n int) *world {
	t.Helper()
	return newWorld(t, slices.Repeat([]int{AreaSize()}, n)...)
}

func unshared(t *testing.T, n int) *world {
	t.Helper()
	return newWorld(t, make([]int, n)...)
}

// spread puts nodes on so many hosts.
func (w *world) spread(hosts int) {
	for i := range w.hosts {
		w.hosts[i] = fmt.Sprint("host ", i%hosts)
	}
}

// each calls f for all nodes at the same time.
func (w *world) each(f func(rank int) error) []error {
	errs := make([]error, len(w.meshes))
	var all sync.WaitGroup
	for rank := range w.meshes {
		all.Go(func() { errs[rank] = f(rank) })
	}
	all.Wait()
	return errs
}

// leave closes a node in good order, and die without a word.
func (w *world) leave(rank int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return w.meshes[rank].Close(ctx)
}

func (w *world) die(rank int) {
	for peer, l := range w.links[rank] {
		if peer != rank {
			l.Conn().Close()
		}
	}
}

func noError(t *testing.T, errs []error) {
	t.Helper()
	for rank, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", rank, err)
		}
	}
}

// A party is one rank of a communicator.
type party struct {
	Config
	node  int
	part  int
	found Finding
}

// inMemory reports whether collectives of the party run in shared memory.
func (p *party) inMemory() bool {
	_, ok := p.Selector.Tuner().(*cost.SharedTuner)
	return ok
}

// party makes the communicator with this id of some nodes, on the one of them
// that is rank, and what is needed to agree on it.
func (w *world) party(id uint64, nodes []int, rank int, class transport.Class, log *slog.Logger) *party {
	links := make([]*link.Link, len(nodes))
	hosts := make([]string, len(nodes))
	p := &party{node: nodes[rank], part: NoPart}
	for r, node := range nodes {
		links[r] = w.links[p.node][node]
		hosts[r] = w.hosts[node]
		if r != rank {
			p.Classes.Add(class, hosts[r] == w.hosts[p.node])
		}
	}
	e := w.meshes[p.node].Engine()
	p.Comm, p.Vote = e.NewComm(id, rank, links), e.NewComm(id+1<<32, rank, links)
	if tried := TrialRanks(plan.HostsOf(hosts)); slices.Contains(tried, rank) {
		var some []*link.Link
		for _, r := range tried {
			some = append(some, links[r])
		}
		p.Trial = e.NewComm(id+2<<32, slices.Index(tried, rank), some)
	}
	p.Rank, p.Hosts, p.Allocator, p.Pool, p.Log = rank, plan.HostsOf(hosts), &w.allocators[p.node], w.pool, log
	p.SameProcess = true
	p.Selector = selector.New(rank, len(nodes), w.pool, cost.New(cost.QUIC()))
	return p
}

// reach has the nodes agree, all over paths of one class.
func (w *world) reach(t *testing.T, id uint64, nodes []int, class transport.Class) []*party {
	t.Helper()
	parties := make([]*party, len(nodes))
	for rank := range nodes {
		parties[rank] = w.party(id, nodes, rank, class, slog.New(slog.DiscardHandler))
	}
	reachAll(t, parties)
	return parties
}

func reachAll(t *testing.T, parties []*party) {
	t.Helper()
	errs := make([]error, len(parties))
	var all sync.WaitGroup
	for i, p := range parties {
		all.Go(func() { errs[i] = p.reach(t.Context()) })
	}
	all.Wait()
	noError(t, errs)
}

func (p *party) reach(ctx context.Context) error {
	defer p.Vote.Close()
	if p.Trial != nil {
		defer p.Trial.Close()
	}
	a, err := Reach(ctx, p.Config)
	p.part, p.found = a.Part, a.Found
	return err
}

// close ends the communicator on a rank.
func (p *party) close() {
	p.Comm.Close()
	if p.part != NoPart {
		p.Allocator.Return(p.part)
	}
}

func closeAll(parties []*party) {
	for _, p := range parties {
		p.close()
	}
}

// sum adds the ranks' vectors of count elements up, and checks the result.
func (p *party) sum(ctx context.Context, count int) error {
	task := selector.Task{Kind: plan.AllReduce, Type: uint8(kernel.Uint8), Op: uint8(kernel.Sum), Elem: 1, Count: count}
	work := exec.Work{
		Recipe: p.Selector.Recipe(&task),
		Data:   bytes.Repeat([]byte{byte(p.Rank + 1)}, count), Reduce: kernel.Reducer(kernel.Uint8, kernel.Sum),
	}
	op, err := p.Comm.Start(&work)
	if err == nil {
		err = op.Wait(ctx)
	}
	n := p.Comm.Size()
	if want := byte(n * (n + 1) / 2); err == nil && !bytes.Equal(work.Data, bytes.Repeat([]byte{want}, count)) {
		err = fmt.Errorf("the sum of %d ranks is %d, …, want %d", n, work.Data[0], want)
	}
	return err
}

// sumAll has all parties add up vectors, short and long if counts do not say
// other lengths.
func sumAll(t *testing.T, parties []*party, counts ...int) {
	t.Helper()
	if counts == nil {
		counts = []int{1, 5000, 300_000}
	}
	errs := make([]error, len(parties))
	var all sync.WaitGroup
	for i, p := range parties {
		all.Go(func() {
			for _, count := range counts {
				errs[i] = errors.Join(errs[i], p.sum(t.Context(), count))
			}
		})
	}
	all.Wait()
	noError(t, errs)
}

func ranks(n int) (list []int) {
	for i := range n {
		list = append(list, i)
	}
	return list
}

// needs are the calls for which parties choose algorithms.
func needs(size int) (list []cost.Need) {
	for _, c := range plan.Collectives() {
		for _, n := range []int{0, 8, 1 << 10, 64 << 10, 1 << 20, 64 << 20} {
			list = append(list, cost.Need{Collective: c, Size: size, Bytes: n})
		}
	}
	return list
}

// choicesOf is how a party carries these out, as far as it has to be the same on
// all ranks.
func choicesOf(p *party) (list []string) {
	for _, need := range needs(p.Comm.Size()) {
		c := p.Selector.Tuner().Choose(need)
		list = append(list, fmt.Sprintf("%v of %d bytes: %s on %d channels, in %v seconds",
			need.Collective, need.Bytes, c.Algorithm.Name, c.Channels, c.Seconds))
	}
	return list
}

// alike checks that all parties carry everything out alike, and have the same
// part of the memory, or all none.
func alike(t *testing.T, parties []*party, onBoard bool) {
	t.Helper()
	want := choicesOf(parties[0])
	for rank, p := range parties {
		for i, got := range choicesOf(p) {
			if got != want[i] {
				t.Errorf("rank %d: %s\nrank 0: %s", rank, got, want[i])
			}
		}
		if p.part != parties[0].part || (p.part != NoPart) != onBoard || p.inMemory() != onBoard {
			t.Errorf("rank %d has part %d, rank 0 part %d; in memory: %v, want %v", rank, p.part, parties[0].part, p.inMemory(), onBoard)
		}
	}
}

// TestReach: all ranks come to the same result, whatever they share, and a
// communicator works by it.
func TestReach(t *testing.T) {
	full := AreaSize()
	for name, test := range map[string]struct {
		sizes   []int
		class   transport.Class
		onBoard bool
	}{
		"memory, 2 ranks":            {[]int{full, full}, transport.ClassMemory, true},
		"memory, 5 ranks":            {[]int{full, full, full, full, full}, transport.ClassMemory, true},
		"links, 2 ranks":             {[]int{0, 0}, transport.ClassMemory, false},
		"links, 5 ranks":             {[]int{0, 0, 0, 0, 0}, transport.ClassMemory, false},
		"one without memory":         {[]int{full, full, 0}, transport.ClassMemory, false},
		"one with less memory":       {[]int{full / 2, full, full}, transport.ClassMemory, false},
		"too little memory":          {[]int{100, 100}, transport.ClassMemory, false},
		"over TCP":                   {[]int{0, 0, 0}, transport.ClassTCP, false},
		"over QUIC":                  {[]int{0, 0, 0}, transport.ClassQUIC, false},
		"a path of unknown class":    {[]int{0, 0, 0}, transport.ClassUnknown, false},
		"memory and unknown classes": {[]int{full, full, full}, transport.ClassUnknown, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.sizes...)
			parties := w.reach(t, 7, ranks(len(test.sizes)), test.class)
			alike(t, parties, test.onBoard)
			sumAll(t, parties)
			closeAll(parties)
		})
	}
}

// TestReachAlone: a single rank has nobody to ask, and nothing to share.
func TestReachAlone(t *testing.T) {
	w := shared(t, 2)
	parties := w.reach(t, 7, []int{1}, transport.ClassMemory)
	alike(t, parties, false)
	sumAll(t, parties)
}

// TestSlowestWayCounts: the ranks are told apart by how they reach others, and
// all choose for the slowest class.
func TestSlowestWayCounts(t *testing.T) {
	w := unshared(t, 3)
	all := func(class transport.Class) []*party {
		parties := w.reach(t, uint64(10+class), ranks(3), class)
		alike(t, parties, false)
		return parties
	}
	tcp, quic := choicesOf(all(transport.ClassTCP)[0]), choicesOf(all(transport.ClassQUIC)[0])
	if slices.Equal(tcp, quic) {
		t.Fatal("TCP and QUIC have the same choices: the test shows nothing")
	}
	parties := make([]*party, 3)
	for rank, class := range []transport.Class{transport.ClassTCP, transport.ClassQUIC, transport.ClassMemory} {
		parties[rank] = w.party(30, ranks(3), rank, class, slog.New(slog.DiscardHandler))
	}
	reachAll(t, parties)
	alike(t, parties, false)
	sumAll(t, parties)
}

// heard is what ranks write down of the links they have measured.
type heard struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

func (h *heard) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lines.Write(b)
}

// measured is what each party has written down of the links it has measured.
func measured(t *testing.T, parties []*party) (lines []string) {
	t.Helper()
	logs := make([]heard, len(parties))
	for i, p := range parties {
		p.Log = slog.New(slog.NewTextHandler(&logs[i], &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	reachAll(t, parties)
	alike(t, parties, false)
	for i := range logs {
		lines = append(lines, regexp.MustCompile(`msg="links measured".*`).FindString(logs[i].lines.String()))
	}
	return lines
}

// parties are those of a communicator of all nodes.
func (w *world) parties(id uint64, class transport.Class) (list []*party) {
	for rank := range w.meshes {
		list = append(list, w.party(id, ranks(len(w.meshes)), rank, class, slog.New(slog.DiscardHandler)))
	}
	return list
}

// TestMeasuredLinksAreVotedOn: no two ranks measure the same, to the nanosecond,
// and only some measure at all, but all go by the same figures.
func TestMeasuredLinksAreVotedOn(t *testing.T) {
	for name, test := range map[string]struct{ ranks, hosts int }{
		"a host each":                  {4, 4},
		"two hosts":                    {5, 2},
		"more hosts than are measured": {trialRanks + 3, trialRanks + 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := unshared(t, test.ranks)
			w.spread(test.hosts)
			for round := range uint64(5) {
				parties := w.parties(100+round, transport.ClassQUIC)
				lines := measured(t, parties)
				for rank, got := range lines {
					if got == "" || got != lines[0] {
						t.Errorf("rank %d has measured %q, rank 0 %q", rank, got, lines[0])
					}
				}
				sumAll(t, parties)
				closeAll(parties)
			}
		})
	}
}

// TestMeasuredOnce: what is known of the links need not be measured again, unless
// it is of another class.
func TestMeasuredOnce(t *testing.T) {
	w := unshared(t, 4)
	w.spread(2)
	known := Finding{Class: transport.ClassQUIC, Links: cost.Links{Delay: 0.01}}
	for id, test := range []struct {
		class transport.Class
		again bool
	}{
		{transport.ClassQUIC, false},
		{transport.ClassTLS, true},
	} {
		parties := w.parties(uint64(100+id), test.class)
		for _, p := range parties {
			p.Known = known
		}
		for rank, line := range measured(t, parties) {
			if (line != "") != test.again {
				t.Errorf("over %v rank %d has measured %q", test.class, rank, line)
			}
			if p := parties[rank]; p.found.Class != test.class || !test.again && p.found != known {
				t.Errorf("over %v rank %d has found %+v", test.class, rank, p.found)
			}
		}
		closeAll(parties)
	}
}

// TestOneHostIsNotMeasured: what the ways of one host cost is known, and timing
// them where there are more ranks than processors tells something else.
func TestOneHostIsNotMeasured(t *testing.T) {
	w := unshared(t, 3)
	for rank, line := range measured(t, w.parties(100, transport.ClassTLS)) {
		if line != "" {
			t.Errorf("rank %d has measured %q", rank, line)
		}
	}
}
