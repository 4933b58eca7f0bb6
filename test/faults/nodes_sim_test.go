package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/test/worldtest"
	"github.com/nexar-go/nexar/transport/sim"
)

// A simWorld is a SimCluster with working nodes and random faults.
type simWorld struct {
	*testing.T
	*worldtest.SimCluster
	rng      *rand.Rand
	wg       sync.WaitGroup
	topology string // of the nodes
	links    string // Config.Links of the nodes

	mu      sync.Mutex
	nodes   []*simMember
	ranks   map[[2]uint64]nexar.NodeID // the node of each epoch and rank
	sizes   map[uint64]int             // by epoch
	history []string
}

// A simMember is a node of a simWorld.
type simMember struct {
	host string

	// Guarded by the mutex of the world:
	faulty bool // a fault may have ended the node
	gone   bool // the host has crashed
	node   *nexar.Node
	epoch  uint64
	steps  int
	err    error // the error with which the node has ended
	ended  bool
}

// newSlowSimWorld starts a seed for a world of n nodes, and the nodes, with a heartbeat interval.
func newSlowSimWorld(t *testing.T, chance uint64, n int, beat time.Duration) *simWorld {
	w := emptySimWorld(t, chance, n)
	w.Beat = beat
	for range n {
		w.add()
	}
	return w
}

// newSparseSimWorld starts a seed for a world of n nodes, and the nodes, with a topology.
func newSparseSimWorld(t *testing.T, chance uint64, n int, topology string) *simWorld {
	w := emptySimWorld(t, chance, n)
	w.topology = topology
	for range n {
		w.add()
	}
	return w
}

// emptySimWorld starts a seed for a world of n nodes.
func emptySimWorld(t *testing.T, chance uint64, n int) *simWorld {
	return &simWorld{
		T: t, SimCluster: worldtest.NewSimCluster(t, chance, n), rng: rand.New(rand.NewPCG(chance, 3)),
		ranks: make(map[[2]uint64]nexar.NodeID), sizes: make(map[uint64]int),
	}
}

func (w *simWorld) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.history = append(w.history, fmt.Sprintf(format, args...))
}

// add starts a node on a new host.
func (w *simWorld) add() {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := &simMember{host: fmt.Sprintf("host%d", len(w.nodes))}
	w.nodes = append(w.nodes, m)
	w.wg.Go(func() {
		err := w.run(m)
		w.mu.Lock()
		defer w.mu.Unlock()
		m.err, m.ended = err, true
	})
}

// simConfig returns the configuration of nodes in a SimCluster.
func simConfig(recovery nexar.RecoveryPolicy, rank *int) nexar.Config {
	return nexar.Config{
		FormTimeout: 5 * time.Minute, Recovery: recovery, Rank: rank,
		RecoveryTimeout: 10 * time.Second, ReconfigureTimeout: 10 * time.Second, CollectiveTimeout: 10 * time.Second,
	}
}

// run runs a node from Join to its end.
func (w *simWorld) run(m *simMember) error {
	cfg := simConfig(nexar.Automatic, nil)
	cfg.Topology, cfg.Links = w.topology, w.links
	n, err := w.Join(m.host, cfg)
	if err != nil {
		return err
	}
	defer n.Close()
	w.mu.Lock()
	m.node = n
	w.mu.Unlock()
	var state stepState
	for c, err := range n.Epochs(w.Ctx) {
		if err != nil {
			return err
		}
		w.enter(m, c)
		if err := w.work(m, n, c, &state); errors.Is(err, errWrong) {
			return err
		}
	}
	return nil
}

var errWrong = errors.New("a wrong result")

// enter records the communicator of a node. It checks that no two nodes have the same rank in an
// epoch, that all have the same size, and that epochs increase.
func (w *simWorld) enter(m *simMember, c *nexar.Comm) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := [2]uint64{c.Epoch(), uint64(c.Rank())}
	if other, taken := w.ranks[key]; taken && other != m.node.ID() || w.sizes[c.Epoch()] != 0 && w.sizes[c.Epoch()] != c.Size() || c.Epoch() <= m.epoch {
		w.Errorf("%s is rank %d of %d in epoch %d after %d, as is %v of %d", m.host, c.Rank(), c.Size(), c.Epoch(), m.epoch, other, w.sizes[c.Epoch()])
	}
	w.ranks[key], w.sizes[c.Epoch()], m.epoch = m.node.ID(), c.Size(), c.Epoch()
}

// work is the loop of a node in an epoch.
func (w *simWorld) work(m *simMember, n *nexar.Node, c *nexar.Comm, state *stepState) error {
	if err := nexar.Sync(w.Ctx, c, state); err != nil {
		return err
	}
	for {
		x := []int64{1, state.Step * int64(c.Rank())}
		if err := nexar.AllReduce(w.Ctx, c, x, nexar.Sum); err != nil {
			return err
		}
		if size := int64(c.Size()); x[0] != size || x[1] != state.Step*size*(size-1)/2 {
			return fmt.Errorf("%w: %v of %d ranks in step %d", errWrong, x, size, state.Step)
		}
		state.Step++
		w.mu.Lock()
		m.steps++
		w.mu.Unlock()
		if changed, err := n.Reconfigure(w.Ctx); changed || err != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// applyFault applies a random fault.
func (w *simWorld) applyFault() {
	w.mu.Lock()
	var here []*simMember
	for _, m := range w.nodes {
		if !m.gone && !m.ended && m.node != nil {
			here = append(here, m)
		}
	}
	if len(here) < 3 {
		w.mu.Unlock()
		w.add()
		return
	}
	w.rng.Shuffle(len(here), func(i, j int) { here[i], here[j] = here[j], here[i] })
	fault := w.rng.IntN(7)
	some := here[:1+w.rng.IntN(max(1, len(here)/2))]
	if fault < 2 || fault == 4 {
		some = here[:1]
	}
	var hosts []string
	for _, m := range some {
		hosts = append(hosts, m.host)
		m.faulty = m.faulty || fault != 3 && fault != 6
		m.gone = m.gone || fault < 2
	}
	w.mu.Unlock()
	w.note("%v: fault %d at %v", time.Now().Format("05.000"), fault, hosts)
	switch fault {
	case 0:
		w.Network.Crash(hosts[0])
	case 1:
		w.Network.PowerOff(hosts[0])
	case 2: // longer than the heartbeat timeout
		w.Network.Partition(hosts...)
		time.Sleep(4 * time.Second)
		w.Network.Heal()
	case 3: // shorter than the heartbeat timeout
		w.Network.Partition(hosts...)
		time.Sleep(300 * time.Millisecond)
		w.Network.Heal()
	case 4:
		w.Network.SetLink(here[0].host, here[1].host, sim.Link{Down: true})
		w.mu.Lock()
		here[1].faulty = true
		w.mu.Unlock()
		w.note("and at %v", here[1].host)
	case 5:
		w.wg.Go(func() { _ = some[0].node.Leave(w.Ctx) }) // The node ends with its own error.
	case 6:
		w.add()
	}
}

// checkSettled waits until the world works again, and then checks its members.
func (w *simWorld) checkSettled() {
	time.Sleep(60 * time.Second)
	before := make(map[*simMember]int)
	w.mu.Lock()
	for _, m := range w.nodes {
		before[m] = m.steps
	}
	w.mu.Unlock()
	time.Sleep(10 * time.Second)
	w.mu.Lock()
	defer w.mu.Unlock()
	epoch, size := uint64(0), 0
	for _, m := range w.nodes {
		switch {
		case errors.Is(m.err, errWrong):
			w.Errorf("%s: %v", m.host, m.err)
		case m.ended && !m.faulty:
			w.Errorf("%s has ended without a fault: %v", m.host, m.err)
		case m.ended || m.gone:
		case m.steps == before[m]:
			w.Errorf("%s makes no progress in epoch %d", m.host, m.epoch)
		case epoch != 0 && m.epoch != epoch:
			w.Errorf("%s is in epoch %d, another one in %d", m.host, m.epoch, epoch)
		default:
			epoch = m.epoch
			size++
		}
	}
	if size != w.sizes[epoch] && epoch > 0 {
		w.Errorf("%d live nodes are in epoch %d, which has %d ranks", size, epoch, w.sizes[epoch])
	}
}

// close closes the nodes and then their seed.
func (w *simWorld) close() {
	w.Cancel()
	w.wg.Wait()
	w.Close()
}

// TestWorldsOfNodes: nodes crash, are cut off for long or briefly, lose links, leave and join, at
// random. All remaining nodes end up in one world with correct results, and no node ends
// without a fault. NODES=1000 runs that many worlds; FIRST=7 is the random seed of the first. In every third world the nodes
// have eager links.
func TestWorldsOfNodes(t *testing.T) {
	require.NoRace(t, "it repeats TestSparseWorldsOfNodes in other topologies")
	first, worlds := uint64(0), uint64(4)
	if !worldtest.AllTrials() {
		first, worlds = 20, 1 // This seed covers most kinds of faults.
	}
	if n, err := strconv.ParseUint(os.Getenv("NODES"), 10, 64); err == nil {
		worlds = n
	}
	if n, err := strconv.ParseUint(os.Getenv("FIRST"), 10, 64); err == nil {
		first = n
	}
	for chance := first; chance < first+worlds; chance++ {
		links := ""
		if chance%3 == 1 {
			links = "eager"
		}
		t.Run(fmt.Sprint(chance), func(t *testing.T) { worldOfNodes(t, chance, "", links) })
	}
}

// TestSparseWorldsOfNodes is TestWorldsOfNodes for sparse topologies. CUTS=1000 runs that many worlds of each.
func TestSparseWorldsOfNodes(t *testing.T) {
	for _, topology := range []string{"k-regular:2", "k-regular:4", "hypercube"} {
		if worldtest.Brief() && topology != "k-regular:4" {
			continue
		}
		t.Run(topology, func(t *testing.T) {
			for _, chance := range seeds(1, 1) {
				t.Run(fmt.Sprint(chance), func(t *testing.T) { worldOfNodes(t, chance, topology, "") })
			}
		})
	}
}

// worldOfNodes applies random faults to a world of nodes with a topology, and checks it.
func worldOfNodes(t *testing.T, chance uint64, topology, links string) {
	synctest.Test(t, func(t *testing.T) {
		w := emptySimWorld(t, chance, 5+int(chance)%4)
		defer w.close()
		w.topology, w.links = topology, links
		for range 5 + int(chance)%4 {
			w.add()
		}
		time.Sleep(10 * time.Second)
		for range 1 + w.rng.IntN(6) {
			w.applyFault()
			time.Sleep(time.Duration(w.rng.IntN(3000)) * time.Millisecond)
		}
		w.checkSettled()
		if t.Failed() {
			for _, line := range slices.Clone(w.history) {
				t.Log(line)
			}
		}
	})
}

// TestOneWayRingOfNodes: each of six nodes stops receiving from its predecessor. They detect that
// within a heartbeat interval of each other, and as many as possible continue: three.
func TestOneWayRingOfNodes(t *testing.T) {
	require.NoRace(t, "it repeats other tests in many topologies and orders")
	for _, chance := range []uint64{1, 2, 3} {
		t.Run(fmt.Sprint(chance), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newSlowSimWorld(t, chance, 6, 500*time.Millisecond)
				defer w.close()
				time.Sleep(10 * time.Second)
				w.mu.Lock()
				hosts := make([]string, 6)
				for _, m := range w.nodes {
					m.faulty = true
					hosts[w.ranked(m)] = m.host
				}
				w.mu.Unlock()
				for i, host := range hosts {
					w.Network.SetOneWay(host, hosts[(i+1)%6], sim.Link{Down: true})
				}
				w.checkSettled()
				w.mu.Lock()
				defer w.mu.Unlock()
				left := 0
				for _, m := range w.nodes {
					if !m.ended {
						left++
					}
				}
				if left != 3 {
					t.Errorf("%d nodes continue, want 3", left)
				}
			})
		})
	}
}

// ranked returns the rank of a node. The caller holds the lock.
func (w *simWorld) ranked(m *simMember) int {
	for key, id := range w.ranks {
		if id == m.node.ID() && key[0] == m.epoch {
			return int(key[1])
		}
	}
	return -1
}
