package mesh

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/sim"
)

// connections are the ends of all connections of a world.
type connections struct {
	mu  sync.Mutex
	all []recordedConn
}

// A recordedConn is an end of a connection of a rank.
type recordedConn struct {
	transport.Conn
	rank int
}

// open returns the ends that have not ended.
func (c *connections) open() (ends []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, end := range c.all {
		if end.Err() == nil {
			ends = append(ends, fmt.Sprintf("%d-%s", end.rank, end.Peer()[1:2]))
		}
	}
	return ends
}

// A recorded transport adds its connections to a list.
type recorded struct {
	transport.Transport
	rank int
	list *connections
}

func (r recorded) record(c transport.Conn, err error) (transport.Conn, error) {
	if err == nil {
		r.list.mu.Lock()
		defer r.list.mu.Unlock()
		r.list.all = append(r.list.all, recordedConn{c, r.rank})
	}
	return c, err
}

func (r recorded) Dial(ctx context.Context, addr, peer string) (transport.Conn, error) {
	return r.record(r.Transport.Dial(ctx, addr, peer))
}

func (r recorded) Accept(ctx context.Context) (transport.Conn, error) {
	return r.record(r.Transport.Accept(ctx))
}

// A randomWorld is a world with connections that come and go at random.
type randomWorld struct {
	*world
	seed    uint64
	rng     *rand.Rand
	list    connections
	current membership.View
	cuts    bool // connections break
	dies    bool // a node dies while the view stays the same
	dead    int  // rank of the node that dies; -1 if none does

	mu   sync.Mutex
	errs []error
}

const randomNodes = 6

const (
	// randomSeeds is the number of worlds of a test, and sparseSeeds that in a sparse topology.
	randomSeeds, sparseSeeds = 12, 4
	// worldsVariable replaces both, and firstVariable is the random seed of the first world.
	worldsVariable, firstVariable = "WORLDS", "FIRST"
	// randomLoss is the share of the pieces of pipes that are lost.
	randomLoss = 0.05
	// randomMax is the longest time of a world.
	randomMax = 5 * time.Minute
)

// inRandomWorlds calls f with several worlds of a topology, each in a bubble. WORLDS=1000 runs that many; FIRST=7 is the random seed of the
// first.
func inRandomWorlds(t *testing.T, name string, worlds uint64, few bool, f func(w *randomWorld)) {
	t.Helper()
	if few {
		worlds /= 4
	}
	if n, err := strconv.ParseUint(os.Getenv(worldsVariable), 10, 64); err == nil {
		worlds = n
	}
	first, _ := strconv.ParseUint(os.Getenv(firstVariable), 10, 64)
	for seed := first; seed < first+worlds; seed++ {
		inRandomWorld(t, name, seed, f)
	}
}

// inRandomWorld calls f with a world of a topology in a bubble, on a network with loss. The seed determines all random numbers. The nodes of
// a sparse topology have relays.
func inRandomWorld(t *testing.T, name string, seed uint64, f func(w *randomWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newRandomWorld(t, name, seed, randomNodes, nil)
		hangs := time.AfterFunc(randomMax, func() { panic(fmt.Sprintf("seed %d, %s: the world has not ended after %v", seed, name, randomMax)) })
		defer hangs.Stop()
		f(w)
	})
}

// newRandomWorld makes a world for inRandomWorld. The relays tamper with frames, unless tamper is nil.
func newRandomWorld(t *testing.T, name string, seed uint64, nodes int, tamper func(rank int) Tamper) *randomWorld {
	rng := rand.New(rand.NewPCG(seed, 2))
	w := &randomWorld{
		world: newWorld(t, nodes, sim.Config{Seed: int64(seed), Delay: delay, Jitter: delay, Loss: randomLoss}),
		seed:  seed, rng: rng, dead: -1,
	}
	for rank := range nodes {
		w.listenRecorded(rank)
	}
	w.watches, w.current, w.topology = 1, w.view, parse(t, name)
	if w.topology.IsFull() {
		w.idle = time.Duration(rng.IntN(3)) * 100 * time.Millisecond
	} else {
		w.addRelays(nodes, tamper)
	}
	return w
}

// listenRecorded starts the transport of a node, and records its connections.
func (w *randomWorld) listenRecorded(rank int) {
	w.listen(rank)
	w.transports[rank] = recorded{w.transports[rank], rank, &w.list}
}

// errorf reports an error with the seed.
func (w *randomWorld) errorf(format string, args ...any) {
	w.Helper()
	w.Errorf("seed %d, %v: %s", w.seed, w.topology, fmt.Sprintf(format, args...))
}

// fail keeps the error of an operation.
func (w *randomWorld) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errs = append(w.errs, fmt.Errorf(format, args...))
}

const randomMessages = 30

// exchangeAtRandom lets pairs of ranks exchange numbered messages with random pauses. Some are so long that they need a grant.
func (w *randomWorld) exchangeAtRandom(all *sync.WaitGroup) {
	ofRank := new([randomNodes]sync.WaitGroup)
	defer func() {
		for rank := range ofRank {
			all.Go(func() {
				if ofRank[rank].Wait(); w.comms[rank].Err() != nil {
					w.comms[rank].Close() // It tells the others of the reason.
				}
			})
		}
	}()
	for k := range 2 * randomNodes {
		from := k % randomNodes
		to := (from + 1 + w.rng.IntN(randomNodes-1)) % randomNodes
		rng := rand.New(rand.NewPCG(w.seed, 10+uint64(k)))
		ofRank[from].Add(1)
		ofRank[to].Add(1)
		all.Go(func() {
			defer ofRank[from].Done()
			for i := range randomMessages {
				b := make([]byte, 8)
				if rng.IntN(8) == 0 {
					b = make([]byte, wire.PayloadMax+1<<10)
				}
				binary.BigEndian.PutUint64(b, uint64(i))
				if err := sendOn(w.Context(), w.comms[from], b, 1, to, int64(k)); err != nil {
					w.fail("message %d from rank %d to rank %d: %w", i, from, to, err)
					return
				}
				time.Sleep(time.Duration(rng.IntN(120)) * time.Millisecond)
			}
		})
		all.Go(func() {
			defer ofRank[to].Done()
			b := make([]byte, wire.PayloadMax+1<<10)
			for i := range randomMessages {
				if _, err := recvOn(w.Context(), w.comms[to], b, 1, from, int64(k)); err != nil {
					w.fail("receive %d of rank %d from rank %d: %w", i, to, from, err)
					return
				}
				if got := binary.BigEndian.Uint64(b); got != uint64(i) {
					w.errorf("rank %d has received message %d of rank %d, want message %d", to, got, from, i)
					return
				}
			}
		})
	}
}

// disturb lets connections come and go for some time.
func (w *randomWorld) disturb() {
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(time.Duration(w.rng.IntN(60)) * time.Millisecond) {
		a := w.rng.IntN(randomNodes)
		b := (a + 1 + w.rng.IntN(randomNodes-1)) % randomNodes
		x, y := w.linkOf(a, b), w.linkOf(b, a)
		op := w.rng.IntN(9)
		if op <= 3 && w.isNear(a, b) {
			continue // Only connections to former neighbors are released.
		}
		switch op {
		case 0, 1:
			x.Disconnect()
		case 2:
			x.Disconnect()
			y.Disconnect()
		case 3:
			x.CloseIdle()
		case 4:
			x.Need(link.Waiting)
		case 5:
			x.Need(link.Waiting)
			y.Need(link.Waiting)
		case 6:
			if w.cuts && w.rng.IntN(2) == 0 {
				w.cut(a, b)
			} else if w.cuts {
				time.AfterFunc(time.Duration(w.rng.IntN(2000))*time.Millisecond, w.network.CutAt(w.host(a), w.host(b)))
			}
		case 7:
			if !w.dies {
				w.changeView()
			}
		case 8:
			if !w.topology.IsFull() {
				continue // A path has several connections.
			}
			l := sim.Link{Delay: time.Duration(1+w.rng.IntN(20)) * delay / 4, Jitter: delay, Loss: 0.3 * w.rng.Float64()}
			w.network.SetLink(w.host(a), w.host(b), l)
		}
	}
}

// changeView exchanges two nodes of the view, and lets the nodes adopt it one after the other. Some watch others then.
func (w *randomWorld) changeView() {
	next := membership.View{Epoch: w.current.Epoch + 1, Nodes: slices.Clone(w.current.Nodes)}
	i := w.rng.IntN(randomNodes)
	j := (i + 1) % randomNodes
	next.Nodes[i], next.Nodes[j] = next.Nodes[j], next.Nodes[i]
	w.adoptAll(next)
}

// adoptAll lets the nodes that live adopt a view, one after the other. In a sparse topology they release former neighbors then.
func (w *randomWorld) adoptAll(next membership.View) {
	w.current = next
	for _, slot := range w.rng.Perm(randomNodes) {
		if slot == w.dead {
			continue
		}
		w.adopt(w.meshes[slot], next)
		time.Sleep(time.Duration(w.rng.IntN(20)) * time.Millisecond)
	}
	for slot, m := range w.meshes {
		if slot != w.dead {
			m.DisconnectFormer()
		}
	}
}

// isNear reports whether two nodes are neighbors, perhaps only in the view of one of them.
func (w *randomWorld) isNear(a, b int) bool {
	return !w.topology.IsFull() && (w.meshes[a].reach.isNear(idOf(b)) || w.meshes[b].reach.isNear(idOf(a)))
}

// wantConnections checks that each connection is that of a link, and in a sparse topology one of neighbors.
func (w *randomWorld) wantConnections() {
	w.Helper()
	var ends []string
	for rank, n := range w.current.Nodes {
		slot := int(n.ID[0])
		for r, n := range w.current.Nodes {
			other := int(n.ID[0])
			if slot == other || !w.isDirect(slot, other) {
				continue
			}
			if !w.topology.IsFull() && !slices.Contains(w.neighbors(w.current.Size(), rank), r) {
				w.errorf("node %d is connected to node %d, no neighbor", slot, other)
			}
			ends = append(ends, fmt.Sprintf("%d-%d", slot, other))
		}
	}
	got := w.list.open()
	slices.Sort(got)
	slices.Sort(ends)
	if !slices.Equal(got, ends) {
		w.errorf("the ends %v of connections are open, but the links have %v", got, ends)
	}
}

// closeAll closes all nodes, and checks that all data was read and no connection is left.
func (w *randomWorld) closeAll() {
	w.Helper()
	began := time.Now()
	var all sync.WaitGroup
	for rank, m := range w.meshes {
		if rank != w.dead {
			all.Go(func() { m.Close(w.Context()) })
		}
	}
	all.Wait()
	if took := time.Since(began); took > 2*timeout {
		w.errorf("the nodes have left after %v, want at most %v", took, 2*timeout)
	}
	if got := w.list.open(); len(got) > 0 {
		w.errorf("the ends %v of connections are open after all nodes have left", got)
	}
	for rank, n := range w.notes {
		n.mu.Lock()
		_, stays := w.current.Rank(idOf(rank)) // The others do not read the goodbye of a node that is no longer in their view.
		if i := slices.IndexFunc(n.warned, func(s string) bool { return strings.Contains(s, "not read") }); i >= 0 && stays && w.dead < 0 {
			w.errorf("rank %d warns: %s", rank, n.warned[i])
		}
		n.mu.Unlock()
	}
}

// wantNoLost makes reports of lost nodes errors.
func (w *randomWorld) wantNoLost() {
	w.lost = func(id membership.NodeID, err error) { w.errorf("node %v is reported lost: %v", id, err) }
}

// run forms the world, and lets its ranks exchange messages while connections come and go.
func (w *randomWorld) run() {
	w.form()
	var all sync.WaitGroup
	w.exchangeAtRandom(&all)
	w.disturb()
	all.Wait()
}

// TestRandomReleases: connections are released, closed when they are idle, and made again at random, while views change and ranks exchange
// messages on a network with loss. No message is lost, repeated or out of order, no node counts as failed, and no connection is left.
func TestRandomReleases(t *testing.T) {
	inRandomWorlds(t, "full", randomSeeds, testing.Short(), (*randomWorld).releases)
}

// TestRandomBreaks: as TestRandomReleases, but connections break as well. Each operation succeeds, or its error names a rank and says that
// frames were lost. The next view works.
func TestRandomBreaks(t *testing.T) {
	inRandomWorlds(t, "full", randomSeeds, testing.Short(), (*randomWorld).breaks)
}

// TestRandomKills: as TestRandomReleases, but a node dies. The operations of all others end with errors that name it, and the next view
// works.
func TestRandomKills(t *testing.T) {
	inRandomWorlds(t, "full", randomSeeds, testing.Short(), (*randomWorld).kills)
}

// releases is a world of TestRandomReleases.
func (w *randomWorld) releases() {
	w.wantNoLost()
	w.run()
	for _, err := range w.errs {
		w.errorf("%v", err)
	}
	w.adoptAll(membership.View{Epoch: w.current.Epoch + 1, Nodes: w.current.Nodes})
	time.Sleep(timeout)
	w.wantNoFailures()
	w.wantConnections()
	w.closeAll()
}

// breaks is a world of TestRandomBreaks.
func (w *randomWorld) breaks() {
	w.cuts = true
	w.wantNoLost()
	w.run()
	for _, err := range w.errs {
		w.errorf("%v", err)
	}
	time.Sleep(timeout)
	w.nextWorks()
	w.wantConnections()
	w.closeAll()
}

// kills is a world of TestRandomKills.
func (w *randomWorld) kills() {
	dead := w.rng.IntN(randomNodes)
	w.dies = true
	w.form()
	var all sync.WaitGroup
	w.exchangeAtRandom(&all)
	var kill sync.WaitGroup
	kill.Go(func() {
		time.Sleep(time.Duration(rand.New(rand.NewPCG(w.seed, 3)).IntN(2000)) * time.Millisecond)
		if w.seed%2 == 0 {
			w.network.Crash(w.host(dead))
		} else {
			w.network.PowerOff(w.host(dead))
		}
	})
	w.disturb()
	kill.Wait()
	w.dead = dead
	all.Wait()
	for _, err := range w.errs {
		if strings.Contains(err.Error(), fmt.Sprintf("from rank %d to", dead)) || strings.Contains(err.Error(), fmt.Sprintf("of rank %d from", dead)) {
			continue // an operation of the dead node
		}
		p, isPeer := errors.AsType[*engine.PeerError](err)
		if !isPeer || !isRank(p.Rank, dead) || p.Left {
			w.errorf("%v", err)
		}
	}
	time.Sleep(unusedTimeout) // The dead node may have begun a connection.
	for _, slot := range w.ranks(dead) {
		if got := w.notes[slot].all(); !slices.Equal(got, []int{dead}) {
			w.errorf("rank %d: failed nodes %v, want %d", slot, got, dead)
		}
	}
	w.nextWorks()
	w.wantConnections()
	w.closeAll()
}

// nextWorks checks that a collective of the next view succeeds.
func (w *randomWorld) nextWorks() {
	w.Helper()
	v := membership.View{Epoch: w.current.Epoch + 1, Nodes: w.current.Nodes}
	if w.dead >= 0 {
		v.Nodes = slices.DeleteFunc(slices.Clone(v.Nodes), func(n membership.Node) bool { return n.ID == idOf(w.dead) })
	}
	w.adoptAll(v)
	var slots []int
	for _, n := range v.Nodes {
		slots = append(slots, int(n.ID[0]))
	}
	for rank, err := range w.reduceIn(v.Epoch, v, slots...) {
		if err != nil {
			w.errorf("in the next view, rank %d: %v", rank, err)
		}
	}
	time.Sleep(timeout)
}
