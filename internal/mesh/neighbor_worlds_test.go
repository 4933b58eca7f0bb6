package mesh

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/relay/forward"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/transport/sim"
)

const (
	// neighborWorldsVariable is the number of worlds of TestNeighborWorlds.
	neighborWorldsVariable = "NEIGHBORWORLDS"
	// neighborPeriod is the time between two views.
	neighborPeriod = 500 * time.Millisecond
	// neighborViews is the number of views of a world, and neighborViewsAfter that after the view without a dead node.
	neighborViews, neighborViewsAfter = 12, 4
	// reportMax bounds the time until a dead node is reported lost: a dial, and twice the silence, since its neighbors change.
	reportMax = demandHeartbeats*timeout + 2*silence
	// neighborLimit is the longest time of a world. Operations fail then.
	neighborLimit = 3 * time.Minute
)

// A viewChange is what makes two nodes neighbors in one view and not in the next.
type viewChange int

const (
	twoSwap viewChange = iota
	allMove
	joinAndLeave
	viewChanges
)

func (c viewChange) String() string {
	return [...]string{"two nodes change places", "all nodes change places", "a node joins and leaves"}[c]
}

// A neighborWorld is a world of TestNeighborWorlds.
type neighborWorld struct {
	*randomWorld
	ctx    context.Context
	cancel func()
	name   string // of the topology
	change viewChange
	pair   [2]int // the nodes that become neighbors and cease to be
	breaks bool   // their connections break, too
	dies   string // how a node ends; "" if none does
	doomed int    // the node that dies then

	died    atomic.Bool   // the doomed node has died
	removed chan struct{} // closed when it is reported lost
	remove  sync.Once
	stop    atomic.Bool // ends the work of all ranks
	working sync.WaitGroup
	tally   neighborTally
}

// TestNeighborWorlds: two nodes of a sparse topology become neighbors and cease to be every 0.5 s, on a network that loses 5 % of the pieces
// of pipes and relays that lose 5 % of the packets. Meanwhile ranks exchange messages and make collectives, in some worlds connections of the
// two break, and in some a node dies. No frame is lost or repeated, nothing hangs, no communicator without a dead node ends, no living node is
// reported lost, and no connection is left. NEIGHBORWORLDS=1000 runs that many worlds; FIRST=7 is the random seed of the first.
func TestNeighborWorlds(t *testing.T) {
	require.NoRace(t, "it repeats other tests in many topologies and orders")
	tallies := make(map[string]*neighborTally)
	for seed := range require.Worlds(neighborWorldsVariable, 6) {
		var w *neighborWorld
		passed := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w = newNeighborWorld(t, seed)
				w.run()
			})
		})
		if w == nil { // -failfast
			break
		}
		w.tally.worlds.Store(1)
		if !passed {
			w.tally.failed.Store(1)
		}
		if tallies[w.name] == nil {
			tallies[w.name] = new(neighborTally)
		}
		tallies[w.name].add(&w.tally)
	}
	require.Report(t, neighborReport(tallies))
}

func newNeighborWorld(t *testing.T, seed uint64) *neighborWorld {
	rng := rand.New(rand.NewPCG(seed, 17))
	w := &neighborWorld{doomed: -1, removed: make(chan struct{})}
	w.name = []string{"k-regular:2", "k-regular:4", "hypercube"}[rng.IntN(3)]
	w.change, w.breaks = viewChange(rng.IntN(int(viewChanges))), rng.IntN(2) == 0
	nodes := 5 + rng.IntN(4)
	switch {
	case w.name == "k-regular:4":
		nodes = 7 + nodes%2 // Fewer are all neighbors when one has died.
	case w.name == "hypercube" && w.change == joinAndLeave:
		nodes = 6 + nodes%2 // A corner above the highest bit makes others neighbors of each other no more.
	}
	if w.dies = []string{"", "", "crash", "power off"}[rng.IntN(4)]; w.dies != "" {
		w.doomed = rng.IntN(nodes)
	}
	w.randomWorld = newRandomWorld(t, w.name, seed, nodes, w.lossy(seed))
	w.lostBy = func(by int, id membership.NodeID) {
		switch {
		case w.died.Load() && by == w.doomed:
		case w.died.Load() && id == idOf(w.doomed):
			w.remove.Do(func() { close(w.removed) })
		default:
			w.failf("node %d reports the living node %v as lost", by, id)
		}
	}
	return w
}

// lossy returns what relays do: they lose packets.
func (w *neighborWorld) lossy(seed uint64) func(rank int) Tamper {
	return func(rank int) Tamper {
		var mu sync.Mutex
		rng := rand.New(rand.NewPCG(seed, 100+uint64(rank)))
		return func(_ membership.NodeID, f forward.Frame) []forward.Frame {
			mu.Lock()
			defer mu.Unlock()
			w.tally.packets.Add(1)
			if rng.Float64() < randomLoss {
				w.tally.dropped.Add(1)
				return nil
			}
			return []forward.Frame{f}
		}
	}
}

// errorsMax is the number of errors of a world that are printed.
const errorsMax = 6

// failf is errorf, with the time, for the first errors. All operations end after the last of them.
func (w *neighborWorld) failf(format string, args ...any) {
	w.Helper()
	n := w.tally.errors.Add(1)
	if n <= errorsMax {
		w.errorf("%s: %s", time.Now().Format("04:05.000"), fmt.Sprintf(format, args...))
	}
	if n == errorsMax {
		w.cancel()
	}
}

// run forms the world, changes its views while the ranks work, and closes it.
func (w *neighborWorld) run() {
	hangs := time.AfterFunc(2*neighborLimit, func() { panic(fmt.Sprintf("seed %d: the world has not ended after %v", w.seed, 2*neighborLimit)) })
	defer hangs.Stop()
	w.ctx, w.cancel = context.WithTimeout(w.Context(), neighborLimit)
	defer w.cancel()
	w.form()
	all := w.ranks()
	w.work(1, w.comms, all)
	if w.doomed >= 0 {
		w.work(2, w.commsOf(2, membership.View{Nodes: w.without(w.doomed)}), w.ranks(w.doomed))
	}
	w.changeViews()
	w.stop.Store(true)
	w.working.Wait()
	if w.doomed >= 0 {
		w.dead = w.doomed
	}
	w.adoptNext(w.current.Nodes) // It is no change, and releases the last connections.
	time.Sleep(timeout)
	if w.dead >= 0 {
		time.Sleep(unusedTimeout) // The dead node may have begun a connection.
	}
	if !w.Failed() {
		w.wantConnections()
	}
	w.closeAll()
	for node, n := range w.notes {
		isLiving := func(line string) bool {
			return w.doomed < 0 || !strings.Contains(line, "id="+idOf(w.doomed).String())
		}
		if i := slices.IndexFunc(n.ends, isLiving); i >= 0 && node != w.doomed {
			w.failf("node %d has logged: %s", node, n.ends[i])
		}
	}
	w.list.mu.Lock()
	defer w.list.mu.Unlock()
	w.tally.connections.Store(int64(len(w.list.all)) / 2)
	w.tally.broken.Store(int64(w.network.Broken().Conns))
	w.tally.lost.Store(int64(w.network.Broken().Bytes))
	if w.Failed() {
		w.Logf("FIRST=%d NEIGHBORWORLDS=1: %d nodes, %s, %v, the pair %v, breaks: %v, dies: %q (node %d)", w.seed, len(all), w.name, w.change, w.pair, w.breaks, w.dies, w.doomed)
	}
}

// without returns the nodes of the current view except one.
func (w *neighborWorld) without(slot int) []membership.Node {
	return slices.DeleteFunc(slices.Clone(w.current.Nodes), func(n membership.Node) bool { return n.ID == idOf(slot) })
}

// changeViews changes the view again and again, and lets a node die meanwhile. Its neighbors change until it is reported lost.
func (w *neighborWorld) changeViews() {
	w.choosePair()
	dies, end := w.rng.IntN(neighborViews/2), time.Time{}
	for k := 0; k < neighborViews || w.doomed >= 0; k++ {
		if k == dies && w.doomed >= 0 {
			end = time.Now().Add(reportMax)
			w.kill(time.Duration(w.rng.Int64N(int64(neighborPeriod))))
		}
		if w.doomed >= 0 && isClosed(w.removed) {
			break
		}
		if w.doomed >= 0 && k > dies && time.Now().After(end) {
			w.failf("the dead node %d is not reported lost", w.doomed)
			break
		}
		w.changeView(w.change == joinAndLeave && (w.doomed < 0 || k < dies))
	}
	if w.doomed >= 0 {
		w.dead = w.doomed
		w.adoptNext(w.without(w.doomed))
		w.choosePair()
		for range neighborViewsAfter {
			w.changeView(w.change == joinAndLeave)
		}
	}
	if w.newcomer() >= 0 {
		w.joinOrLeave()
	}
}

// changeView changes the view, and waits until it is time for the next one.
func (w *neighborWorld) changeView(joins bool) {
	if w.breaks && w.rng.IntN(2) == 0 {
		w.breakPair()
	}
	began := time.Now()
	if joins {
		w.joinOrLeave()
	} else {
		w.swap()
	}
	w.tally.views.Add(1)
	if took := time.Since(began); took > neighborPeriod {
		w.tally.late.Add(1)
	}
	time.Sleep(time.Until(began.Add(neighborPeriod)))
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// kill ends the doomed node after a time. If nodes join, it does so at once, when none is about to.
func (w *neighborWorld) kill(after time.Duration) {
	end := func() {
		w.died.Store(true)
		w.tally.deaths.Add(1)
		if w.dies == "crash" {
			w.network.Crash(w.host(w.doomed))
		} else {
			w.network.PowerOff(w.host(w.doomed))
		}
	}
	if w.change != joinAndLeave {
		time.AfterFunc(after, end)
		return
	}
	if w.newcomer() >= 0 {
		w.joinOrLeave()
	}
	end()
}

// breakPair breaks connections of the pair at a byte.
func (w *neighborWorld) breakPair() {
	c := sim.Cut{All: w.rng.IntN(2) == 0, After: w.rng.IntN(20_000)}
	late := time.Duration(w.rng.IntN(1500)) * time.Millisecond
	switch w.rng.IntN(4) {
	case 0:
		c.From = late
	case 1:
		c.To = late
	}
	w.network.CutAfter(w.host(w.pair[0]), w.host(w.pair[1]), c)
}

// areNear reports whether two nodes are neighbors in a view with some nodes.
func (w *neighborWorld) areNear(nodes []membership.Node, pair [2]int) bool {
	v := membership.View{Nodes: nodes}
	a, _ := v.Rank(idOf(pair[0]))
	b, _ := v.Rank(idOf(pair[1]))
	return slices.Contains(w.neighbors(len(nodes), a), b)
}

// choosePair draws two living nodes. If a node joins, they are neighbors before, and not after.
func (w *neighborWorld) choosePair() {
	with := append(slices.Clone(w.current.Nodes), membership.Node{ID: idOf(len(w.meshes))})
	for {
		i := w.rng.IntN(len(w.current.Nodes))
		j := (i + 1 + w.rng.IntN(len(w.current.Nodes)-1)) % len(w.current.Nodes)
		w.pair = [2]int{int(w.current.Nodes[i].ID[0]), int(w.current.Nodes[j].ID[0])}
		if w.change != joinAndLeave || w.areNear(w.current.Nodes, w.pair) && !w.areNear(with, w.pair) {
			return
		}
	}
}

// swap adopts a view in which two nodes or all have changed places, so that the pair are neighbors if they were not.
func (w *neighborWorld) swap() {
	isNear, nodes := w.areNear(w.current.Nodes, w.pair), slices.Clone(w.current.Nodes)
	for isNear == w.areNear(nodes, w.pair) {
		nodes = slices.Clone(w.current.Nodes)
		exchange := func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] }
		if w.change == allMove {
			w.rng.Shuffle(len(nodes), exchange)
		} else {
			exchange(w.rng.IntN(len(nodes)), w.rng.IntN(len(nodes)))
		}
	}
	w.adoptNext(nodes)
	w.tally.toggles.Add(1)
}

// newcomer returns the node that has joined, or -1.
func (w *neighborWorld) newcomer() int {
	last := int(w.current.Nodes[w.current.Size()-1].ID[0])
	if w.change == joinAndLeave && last == len(w.meshes)-1 && last >= len(w.comms) {
		return last
	}
	return -1
}

// joinOrLeave lets the last node of the view leave, if it has joined, or else a node join.
func (w *neighborWorld) joinOrLeave() {
	w.tally.toggles.Add(1)
	slot := w.newcomer()
	if slot < 0 {
		if node, ok := w.joinOne(); ok {
			w.adoptNext(append(slices.Clone(w.current.Nodes), node))
		}
		return
	}
	m, pause := w.meshes[slot], time.Duration(w.rng.IntN(200))*time.Millisecond
	m.LeaveWorld()
	w.working.Go(func() {
		time.Sleep(pause)
		m.Close(w.ctx)
	})
	w.adoptNext(w.without(slot))
}

// joinOne links a new node to the others.
func (w *neighborWorld) joinOne() (node membership.Node, ok bool) {
	slot := len(w.meshes)
	id := idOf(slot)
	node = membership.Node{ID: id, Addrs: []string{id.String()}, Host: id.String()}
	w.notes = append(w.notes, &notes{failed: make(map[int]int)})
	w.network.Host(id.String())
	w.transports, w.meshes = append(w.transports, nil), append(w.meshes, nil)
	w.listenRecorded(slot)
	w.addRelay(slot, w.lossy(w.seed)(slot))
	for _, n := range w.current.Nodes {
		w.meshes[n.ID[0]].Expect([]membership.Node{node})
	}
	w.view = membership.View{Epoch: w.current.Epoch, Nodes: append(slices.Clone(w.current.Nodes), node)}
	cfg := w.config(slot)
	cfg.World = w.current.Size()
	m, err := Form(w.ctx, cfg)
	if err == nil {
		err = m.Formed()
	}
	if err != nil {
		w.failf("node %d does not join: %v", slot, err)
		return node, false
	}
	w.meshes[slot] = m
	w.tally.joins.Add(1)
	return node, true
}

// adoptNext lets the living nodes adopt a view at different times. Each makes a communicator of the view, and a collective on it. When that has
// succeeded, all have adopted the view, and the node releases the connections to former neighbors. If a node has died, the next view comes
// before that.
func (w *neighborWorld) adoptNext(nodes []membership.Node) {
	next := membership.View{Epoch: w.current.Epoch + 1, Nodes: nodes}
	w.current = next
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	began, hasDoomed := time.Now(), w.doomed >= 0 && w.dead < 0
	var all sync.WaitGroup
	for rank, n := range nodes {
		slot, pause := int(n.ID[0]), time.Duration(w.rng.IntN(60))*time.Millisecond
		all.Go(func() {
			time.Sleep(pause)
			m := w.meshes[slot]
			w.adopt(m, next)
			c := m.Engine().NewComm(1000+next.Epoch, rank, linksOf(w, m, next))
			defer c.Close()
			err := w.sum(ctx, c, rank, int(next.Epoch), 10*len(nodes), 0).err
			switch {
			case err == nil:
				m.DisconnectFormer()
			case hasDoomed && w.died.Load():
			default:
				w.failf("view %d, node %d: %v", next.Epoch, slot, err)
			}
		})
	}
	built := make(chan struct{})
	go func() {
		all.Wait()
		close(built)
	}()
	for !isClosed(built) {
		select {
		case <-built:
		case <-time.After(neighborPeriod / 10):
			if hasDoomed && w.died.Load() && time.Since(began) > neighborPeriod*3/4 {
				cancel()
			}
		}
	}
}
