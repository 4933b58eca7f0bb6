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

// A world is a set of nodes in this process, linked to each other.
type world struct {
	meshes     []*mesh.Mesh
	links      [][]*link.Link // of each node
	hosts      []string       // of each node
	allocators []shmexec.Allocator
	pool       *bufpool.Pool
	view       membership.View
	onDemand   bool // the nodes attach areas, and are linked to few others
	network    *mem.Network
}

// newWorld links nodes that share areas of the given sizes.
func newWorld(t *testing.T, sizes ...int) *world {
	t.Helper()
	return formWorld(t, false, sizes...)
}

func formWorld(t *testing.T, onDemand bool, sizes ...int) *world {
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
			Self: view.Nodes[rank].ID, View: view, Paths: paths[rank], Loop: mem.Loop, OnDemand: onDemand,
		})
		return err
	})
	t.Cleanup(func() { w.each(func(rank int) error { return w.leave(rank) }) })
	requireNoError(t, errs)
	w.view, w.onDemand, w.network = view, onDemand, network
	for rank, m := range w.meshes {
		if err = m.Formed(); err == nil {
			var g *mesh.Group
			g, err = m.Group(view, ranks(n))
			w.links[rank] = g.Links
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// sharedWorld links n nodes that share memory, and unsharedWorld nodes that share none.
func sharedWorld(t *testing.T, n int) *world {
	t.Helper()
	return newWorld(t, slices.Repeat([]int{AreaSize()}, n)...)
}

func unsharedWorld(t *testing.T, n int) *world {
	t.Helper()
	return newWorld(t, make([]int, n)...)
}

// useHosts distributes the nodes over a number of hosts.
func (w *world) useHosts(hosts int) {
	for i := range w.hosts {
		w.hosts[i] = fmt.Sprint("host ", i%hosts)
	}
}

// each calls f for all nodes concurrently.
func (w *world) each(f func(rank int) error) []error {
	errs := make([]error, len(w.meshes))
	var all sync.WaitGroup
	for rank := range w.meshes {
		all.Go(func() { errs[rank] = f(rank) })
	}
	all.Wait()
	return errs
}

// leave closes a node with a goodbye, die without one.
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

func requireNoError(t *testing.T, errs []error) {
	t.Helper()
	for rank, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", rank, err)
		}
	}
}

// A member is one rank of a communicator.
type member struct {
	Config
	node  int
	part  int
	links LinkModel
}

// isSharing reports whether the member runs collectives in shared memory.
func (p *member) isSharing() bool {
	_, ok := p.Selector.Tuner().(*cost.SharedTuner)
	return ok
}

// member creates a communicator with this id on the node of a rank, and the Config of
// its negotiation.
func (w *world) member(id uint64, nodes []int, rank int, class transport.Class, log *slog.Logger) *member {
	links := make([]*link.Link, len(nodes))
	hosts := make([]string, len(nodes))
	p := &member{node: nodes[rank], part: NoPart}
	for r, node := range nodes {
		links[r] = w.links[p.node][node]
		hosts[r] = w.hosts[node]
		if r != rank {
			p.Classes.Add(class, hosts[r] == w.hosts[p.node])
		}
	}
	e := w.meshes[p.node].Engine()
	p.Comm, p.Control = e.NewComm(id, rank, links), e.NewComm(id+1<<32, rank, links)
	if tried := MeasuringRanks(plan.HostsOf(hosts)); slices.Contains(tried, rank) {
		var some []*link.Link
		for _, r := range tried {
			some = append(some, links[r])
		}
		p.Trial = e.NewComm(id+2<<32, slices.Index(tried, rank), some)
	}
	p.Rank, p.Hosts, p.Allocator, p.Pool, p.Log = rank, plan.HostsOf(hosts), &w.allocators[p.node], w.pool, log
	g, _ := w.meshes[p.node].Group(w.view, nodes) // The members use the links of the beginning.
	p.SameProcess, p.Distances, p.Watches, p.OnDemand = true, g.Distances, g.Watches, g.OnDemand
	if w.onDemand {
		attach(p, g)
	}
	p.Selector = selector.New(rank, len(nodes), w.pool, cost.New(cost.QUIC()))
	return p
}

// run lets nodes negotiate over paths of one class.
func (w *world) run(t *testing.T, id uint64, nodes []int, class transport.Class) []*member {
	t.Helper()
	members := make([]*member, len(nodes))
	for rank := range nodes {
		members[rank] = w.member(id, nodes, rank, class, slog.New(slog.DiscardHandler))
	}
	runAll(t, members)
	return members
}

func runAll(t *testing.T, members []*member) {
	t.Helper()
	errs := make([]error, len(members))
	var all sync.WaitGroup
	for i, p := range members {
		all.Go(func() { errs[i] = p.run(t.Context()) })
	}
	all.Wait()
	requireNoError(t, errs)
}

func (p *member) run(ctx context.Context) error {
	defer p.Control.Close()
	if p.Trial != nil {
		defer p.Trial.Close()
	}
	r, err := Run(ctx, p.Config)
	p.part, p.links = r.Part, r.Links
	return err
}

// close closes the communicator on a rank.
func (p *member) close() {
	p.Comm.Close()
	if p.part != NoPart {
		p.Allocator.Return(p.part)
	}
}

func closeAll(members []*member) {
	for _, p := range members {
		p.close()
	}
}

// sum all-reduces vectors of count elements, and checks the result.
func (p *member) sum(ctx context.Context, count int) error {
	task := selector.Shape{Kind: plan.AllReduce, Type: uint8(kernel.Uint8), Op: uint8(kernel.Sum), Elem: 1, Count: count}
	work := exec.Work{
		Schedule: p.Selector.Schedule(&task),
		Data:     bytes.Repeat([]byte{byte(p.Rank + 1)}, count), Reduce: kernel.Reducer(kernel.Uint8, kernel.Sum),
	}
	op, err := p.Comm.Start(&work)
	if err == nil {
		err = op.Wait(ctx)
	}
	n := p.Comm.Size()
	if want := byte(n * (n + 1) / 2); err == nil && !bytes.Equal(work.Data, bytes.Repeat([]byte{want}, count)) {
		err = fmt.Errorf("sum of %d ranks: got %d, want %d", n, work.Data[0], want)
	}
	return err
}

// sumAll all-reduces vectors of all members, by default a short and a long one.
func sumAll(t *testing.T, members []*member, counts ...int) {
	t.Helper()
	if counts == nil {
		counts = []int{1, 5000, 300_000}
	}
	errs := make([]error, len(members))
	var all sync.WaitGroup
	for i, p := range members {
		all.Go(func() {
			for _, count := range counts {
				errs[i] = errors.Join(errs[i], p.sum(t.Context(), count))
			}
		})
	}
	all.Wait()
	requireNoError(t, errs)
}

func ranks(n int) (list []int) {
	for i := range n {
		list = append(list, i)
	}
	return list
}

// needs returns calls for the comparison of choices.
func needs(size int) (list []cost.Need) {
	for _, c := range plan.Collectives() {
		for _, n := range []int{0, 8, 1 << 10, 64 << 10, 1 << 20, 64 << 20} {
			list = append(list, cost.Need{Collective: c, Size: size, Bytes: n})
		}
	}
	return list
}

// choicesOf returns the choices of a member for these calls, as far as they must be the same on
// all ranks.
func choicesOf(p *member) (list []string) {
	for _, need := range needs(p.Comm.Size()) {
		c := p.Selector.Tuner().Choose(need)
		list = append(list, fmt.Sprintf("%v of %d bytes: %s on %d channels, in %v seconds",
			need.Collective, need.Bytes, c.Algorithm.Name, c.Channels, c.Seconds))
	}
	return list
}

// requireSame checks that all members have made the same choices and have the same part, or all
// none.
func requireSame(t *testing.T, members []*member, inSharedMemory bool) {
	t.Helper()
	want := choicesOf(members[0])
	for rank, p := range members {
		for i, got := range choicesOf(p) {
			if got != want[i] {
				t.Errorf("rank %d: %s\nrank 0: %s", rank, got, want[i])
			}
		}
		if p.part != members[0].part || (p.part != NoPart) != inSharedMemory || p.isSharing() != inSharedMemory {
			t.Errorf("rank %d has part %d, rank 0 part %d; in shared memory: %v, want %v", rank, p.part, members[0].part, p.isSharing(), inSharedMemory)
		}
	}
}

// All ranks get the same result, with and without shared memory, and the communicator works.
func TestRun(t *testing.T) {
	full := AreaSize()
	for name, test := range map[string]struct {
		sizes          []int
		class          transport.Class
		inSharedMemory bool
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
			members := w.run(t, 7, ranks(len(test.sizes)), test.class)
			requireSame(t, members, test.inSharedMemory)
			sumAll(t, members)
			closeAll(members)
		})
	}
}

// A single rank exchanges and shares nothing.
func TestRunAlone(t *testing.T) {
	w := sharedWorld(t, 2)
	members := w.run(t, 7, []int{1}, transport.ClassMemory)
	requireSame(t, members, false)
	sumAll(t, members)
}

// Ranks have paths of different classes, and all choose for the slowest class.
func TestSlowestClassCounts(t *testing.T) {
	w := unsharedWorld(t, 3)
	all := func(class transport.Class) []*member {
		members := w.run(t, uint64(10+class), ranks(3), class)
		requireSame(t, members, false)
		return members
	}
	tcp, quic := choicesOf(all(transport.ClassTCP)[0]), choicesOf(all(transport.ClassQUIC)[0])
	if slices.Equal(tcp, quic) {
		t.Fatal("TCP and QUIC lead to the same choices, so the test shows nothing")
	}
	members := make([]*member, 3)
	for rank, class := range []transport.Class{transport.ClassTCP, transport.ClassQUIC, transport.ClassMemory} {
		members[rank] = w.member(30, ranks(3), rank, class, slog.New(slog.DiscardHandler))
	}
	runAll(t, members)
	requireSame(t, members, false)
	sumAll(t, members)
}

// A logBuffer collects the measurements that ranks log.
type logBuffer struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

func (h *logBuffer) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lines.Write(b)
}

// measuredLinks returns the measurements that each member has logged.
func measuredLinks(t *testing.T, members []*member) (lines []string) {
	t.Helper()
	logs := make([]logBuffer, len(members))
	for i, p := range members {
		p.Log = slog.New(slog.NewTextHandler(&logs[i], &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	runAll(t, members)
	requireSame(t, members, false)
	for i := range logs {
		lines = append(lines, regexp.MustCompile(`msg="links measured".*`).FindString(logs[i].lines.String()))
	}
	return lines
}

// members creates a communicator of all nodes.
func (w *world) members(id uint64, class transport.Class) (list []*member) {
	for rank := range w.meshes {
		list = append(list, w.member(id, ranks(len(w.meshes)), rank, class, slog.New(slog.DiscardHandler)))
	}
	return list
}

// No two ranks measure the same time, and only some measure at all, but all use the
// same figures.
func TestMeasurementsAreShared(t *testing.T) {
	for name, test := range map[string]struct{ ranks, hosts int }{
		"a host each":                     {4, 4},
		"two hosts":                       {5, 2},
		"more hosts than measuring ranks": {measuringMax + 3, measuringMax + 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := unsharedWorld(t, test.ranks)
			w.useHosts(test.hosts)
			for round := range uint64(5) {
				members := w.members(100+round, transport.ClassQUIC)
				lines := measuredLinks(t, members)
				for rank, got := range lines {
					if got == "" || got != lines[0] {
						t.Errorf("rank %d has measured %q, rank 0 %q", rank, got, lines[0])
					}
				}
				sumAll(t, members)
				closeAll(members)
			}
		})
	}
}

// Known links are not measured again, unless they are of another class.
func TestMeasuredOnce(t *testing.T) {
	w := unsharedWorld(t, 4)
	w.useHosts(2)
	known := LinkModel{Class: transport.ClassQUIC, Costs: cost.Links{Delay: 0.01}}
	for id, test := range []struct {
		class transport.Class
		again bool
	}{
		{transport.ClassQUIC, false},
		{transport.ClassTLS, true},
	} {
		members := w.members(uint64(100+id), test.class)
		for _, p := range members {
			p.Known = known
		}
		for rank, line := range measuredLinks(t, members) {
			if (line != "") != test.again {
				t.Errorf("over %v rank %d has measured %q", test.class, rank, line)
			}
			if p := members[rank]; p.links.Class != test.class || !test.again && p.links != known {
				t.Errorf("over %v rank %d has found %+v", test.class, rank, p.links)
			}
		}
		closeAll(members)
	}
}

// The costs of paths within a host are known, and a measurement with more ranks than processors
// would be wrong.
func TestOneHostIsNotMeasured(t *testing.T) {
	w := unsharedWorld(t, 3)
	for rank, line := range measuredLinks(t, w.members(100, transport.ClassTLS)) {
		if line != "" {
			t.Errorf("rank %d has measured %q", rank, line)
		}
	}
}
