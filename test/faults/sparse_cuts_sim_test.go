package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/test/worldtest"
	"github.com/nexar-go/nexar/transport/sim"
)

const (
	cutRanks    = 12
	cutTopology = "k-regular:4"
	// cutWatches is the number of ranks that each rank of a full world watches.
	cutWatches = 2
	// cutsVariable is the number of worlds of TestRandomLinkCuts, and firstVariable the random seed of the first.
	cutsVariable, firstVariable = "CUTS", "FIRST"
)

// seeds returns the random seeds of a test with a number of worlds, few of them if the tests are brief. Two variables change the
// number and the first.
func seeds(worlds, few uint64) (list []uint64) {
	first := uint64(0)
	if !worldtest.AllTrials() {
		worlds = few
	}
	if n, err := strconv.ParseUint(os.Getenv(cutsVariable), 10, 64); err == nil {
		worlds = n
	}
	if n, err := strconv.ParseUint(os.Getenv(firstVariable), 10, 64); err == nil {
		first = n
	}
	for seed := first; seed < first+worlds; seed++ {
		list = append(list, seed)
	}
	return list
}

// TestRandomLinkCuts: random links between living ranks are cut and repaired while all ranks send
// numbered messages to each other and make collectives. In a sparse world the links are those of neighbors; in a full one, they
// are in turn those of watches and those of messages and collectives. If links are down for a while, all messages arrive, once and in
// order, and all results are right. If connections break, the same holds, or all ranks get an error that says that frames were
// lost; earlier messages and results are right. CUTS=1000 runs that many worlds; FIRST=7 is the random seed of the first.
func TestRandomLinkCuts(t *testing.T) {
	require.NoRace(t, "it repeats other tests in many topologies and orders")
	for name, form := range map[string]func(t *testing.T, f func(*testing.T, *worldtest.World, *sim.Network, sim.Link)){
		cutTopology: func(t *testing.T, f func(*testing.T, *worldtest.World, *sim.Network, sim.Link)) {
			worldtest.InFakeTimeSparse(t, cutRanks, cutTopology, f)
		},
		"full": func(t *testing.T, f func(*testing.T, *worldtest.World, *sim.Network, sim.Link)) {
			worldtest.InFakeTimeFull(t, cutRanks, cutWatches, f)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var whole, lost int
			for _, seed := range seeds(8, 4) {
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					form(t, func(t *testing.T, w *worldtest.World, network *sim.Network, restore sim.Link) {
						x := cutWorld{T: t, w: w, network: network, restore: restore, rng: rand.New(rand.NewPCG(seed, 25)), breaks: seed%2 == 1}
						if x.run(w.Links()) {
							whole++
						} else {
							lost++
						}
					})
				})
			}
			t.Logf("%d worlds went on, %d lost frames", whole, lost)
		})
	}
}

// A cutWorld is a world with random cuts.
type cutWorld struct {
	*testing.T
	w       *worldtest.World
	network *sim.Network
	restore sim.Link // the settings of a link that is not cut
	rng     *rand.Rand
	breaks  bool // connections break, too

	history []string
}

// run cuts links of watches, and in turn others, if there are some. It reports whether no frame was lost.
func (x *cutWorld) run(watches, others [][2]int) bool {
	ctx, cancel := context.WithTimeout(x.Context(), 10*time.Minute)
	defer cancel()
	var done atomic.Bool
	var work sync.WaitGroup
	errs := make(chan error, 3*cutRanks*cutRanks)
	do := func(f func() error) {
		work.Go(func() {
			if err := f(); err != nil {
				errs <- err
			}
		})
	}
	for rank, c := range x.w.Comms {
		do(func() error { return collectives(ctx, c, &done) })
		to := (rank + 1 + x.rng.IntN(cutRanks-1)) % cutRanks
		length, pause := 1+x.rng.IntN(20_000), time.Duration(1+x.rng.IntN(40))*time.Millisecond
		do(func() error { return sendNumbers(ctx, c, to, length, pause) })
		do(func() error { return receiveNumbers(ctx, x.w.Comms[to], rank, length) })
	}
	// At most two links are down at a time, so that the world is never separated.
	for round := range 4 + x.rng.IntN(8) {
		pairs := watches
		if len(others) > 0 && round%2 == 1 {
			pairs = others
		}
		x.rng.Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
		some := pairs[:1+x.rng.IntN(2)]
		for _, p := range some {
			x.cut(p)
		}
		time.Sleep(time.Duration(x.rng.IntN(400)) * time.Millisecond)
		for _, p := range some {
			x.network.SetLink(x.w.Host(p[0]), x.w.Host(p[1]), x.restore)
		}
		time.Sleep(time.Duration(x.rng.IntN(200)) * time.Millisecond)
	}
	done.Store(true)
	work.Wait()
	close(errs)
	whole := true
	for err := range errs {
		whole = false
		if !x.breaks || !strings.Contains(err.Error(), "frames were lost") {
			x.Errorf("%v", err)
		}
	}
	if whole {
		worldtest.OnAll(x.T, x.w.Comms, func(_ int, c *nexar.Comm) error { return toAll(ctx, c) })
	}
	if x.Failed() {
		x.Log(strings.Join(x.history, "\n"))
	}
	return whole
}

// cut takes a link down, and breaks its connections in some worlds.
func (x *cutWorld) cut(p [2]int) {
	a, b := x.w.Host(p[0]), x.w.Host(p[1])
	kind := 0
	if x.breaks {
		kind = x.rng.IntN(3)
	}
	if kind > 0 {
		x.network.Cut(a, b)
	}
	if kind < 2 {
		x.network.SetLink(a, b, sim.Link{Down: true})
	}
	x.history = append(x.history, fmt.Sprintf("%v: the link of ranks %d and %d: %s", time.Now().Format("05.000"), p[0], p[1], [...]string{"down", "broken and down", "broken"}[kind]))
}

// collectives makes collectives until all ranks agree to stop.
func collectives(ctx context.Context, c *nexar.Comm, done *atomic.Bool) error {
	n := c.Size()
	for step := int64(0); ; step++ {
		data := make([]int64, 3000)
		for i := range data {
			data[i] = step + int64(c.Rank()*i)
		}
		stopping := done.Load()
		if stopping {
			data[0] = -1 << 40
		}
		if err := nexar.AllReduce(ctx, c, data, nexar.Sum); err != nil {
			return fmt.Errorf("rank %d, step %d: %w", c.Rank(), step, err)
		}
		for i := 1; i < len(data); i++ {
			if want := int64(n)*step + int64(n*(n-1)/2*i); data[i] != want {
				return fmt.Errorf("rank %d, step %d: element %d of the sum is %d, want %d", c.Rank(), step, i, data[i], want)
			}
		}
		if err := toAll(ctx, c); err != nil {
			return fmt.Errorf("rank %d, step %d: %w", c.Rank(), step, err)
		}
		if data[0] < 0 {
			return nil
		}
	}
}

// numbersSent is the number of messages from each rank.
const numbersSent = 60

// sendNumbers sends numbered messages of a length to a rank.
func sendNumbers(ctx context.Context, c *nexar.Comm, to, length int, pause time.Duration) error {
	for i := range numbersSent {
		if err := nexar.Send(ctx, c, slices.Repeat([]int32{int32(i)}, length), to, 25); err != nil {
			return fmt.Errorf("message %d from rank %d to rank %d: %w", i, c.Rank(), to, err)
		}
		time.Sleep(pause)
	}
	return nil
}

// receiveNumbers receives the messages of sendNumbers, each once and in their order.
func receiveNumbers(ctx context.Context, c *nexar.Comm, from, length int) error {
	for i := range numbersSent {
		data := make([]int32, length)
		if _, err := nexar.Recv(ctx, c, data, from, 25); err != nil {
			return fmt.Errorf("message %d from rank %d at rank %d: %w", i, from, c.Rank(), err)
		}
		for k, x := range data {
			if x != int32(i) {
				return fmt.Errorf("rank %d has received %d in element %d of message %d of rank %d", c.Rank(), x, k, i, from)
			}
		}
	}
	return nil
}

// TestCutThatSeparates: a cut separates a sparse world of living nodes into two parts for good. Calls of all ranks end with an
// error that names a rank of the other part, as the one that has failed or among the suspects.
func TestCutThatSeparates(t *testing.T) {
	require.NoRace(t, "it repeats other tests in many topologies and orders")
	for _, seed := range seeds(4, 2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			worldtest.InFakeTimeSparse(t, cutRanks, cutTopology, func(t *testing.T, w *worldtest.World, network *sim.Network, _ sim.Link) {
				rng := rand.New(rand.NewPCG(seed, 26))
				first := rng.Perm(cutRanks)[:1+rng.IntN(cutRanks-1)]
				time.AfterFunc(time.Duration(rng.IntN(1000))*time.Millisecond, func() {
					for a := range cutRanks {
						for b := range cutRanks {
							if slices.Contains(first, a) && !slices.Contains(first, b) {
								network.SetLink(w.Host(a), w.Host(b), sim.Link{Down: true})
							}
						}
					}
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				worldtest.OnAll(t, w.Comms, func(rank int, c *nexar.Comm) error {
					for {
						err := toAll(ctx, c)
						if err == nil {
							time.Sleep(10 * time.Millisecond)
							continue
						}
						if ctx.Err() != nil {
							return fmt.Errorf("rank %d hangs: %w", rank, err)
						}
						isOther := func(other int) bool { return slices.Contains(first, rank) != slices.Contains(first, other) }
						if !slices.ContainsFunc(lostRanks(err), isOther) {
							return fmt.Errorf("rank %d, parts of the world: %v and the others: got error %w, want one that names a rank of the other part", rank, first, err)
						}
						return nil
					}
				})
			})
		})
	}
}

// lostRanks returns the ranks that an error names: the one that has failed, and the suspects if the cause is unknown.
func lostRanks(err error) (ranks []int) {
	p, ok := errors.AsType[*nexar.PeerError](err)
	if !ok {
		return nil
	}
	ranks = append(ranks, p.Rank)
	for _, s := range p.Suspects {
		ranks = append(ranks, s.Rank)
	}
	return ranks
}

// TestNodesWithoutALink: links between living neighbors of a sparse world with a seed are down for less or for longer than the
// heartbeat timeout. In the first case no node is removed. In the second case one of the two may be removed, and all others
// continue with right results.
func TestNodesWithoutALink(t *testing.T) {
	require.NoRace(t, "it repeats other tests in many topologies and orders")
	for _, seed := range seeds(2, 1) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newSparseSimWorld(t, seed, cutRanks-4, cutTopology)
				defer w.close()
				time.Sleep(10 * time.Second)
				long := seed%2 == 1
				for range 3 {
					w.cutLink(long)
					time.Sleep(time.Duration(5000+w.rng.IntN(2000)) * time.Millisecond)
				}
				w.checkSettled()
				w.mu.Lock()
				defer w.mu.Unlock()
				if len(w.sizes) > 1 && !long {
					t.Errorf("short cuts have changed the world: sizes by epoch: %v", w.sizes)
				}
				if t.Failed() {
					t.Log(strings.Join(w.history, "\n"))
				}
			})
		})
	}
}

// cutLink takes the link between two random neighbors down, for less or for longer than the heartbeat timeout.
func (w *simWorld) cutLink(long bool) {
	w.mu.Lock()
	var pairs [][2]*simMember
	for _, a := range w.nodes {
		for _, b := range w.nodes {
			if a != b && w.isWorking(a) && w.isWorking(b) && a.epoch == b.epoch && slices.Contains(a.node.Neighbors(), w.ranked(b)) {
				pairs = append(pairs, [2]*simMember{a, b})
			}
		}
	}
	if len(pairs) == 0 {
		w.mu.Unlock()
		w.Fatal("no two nodes are neighbors")
	}
	pair := pairs[w.rng.IntN(len(pairs))]
	a, b := pair[0], pair[1]
	a.faulty, b.faulty = a.faulty || long, b.faulty || long
	w.mu.Unlock()
	took := time.Duration(w.rng.IntN(600)) * time.Millisecond
	if long {
		took = 3 * time.Second
	}
	w.note("%v: the link of %s and %s is down for %v", time.Now().Format("05.000"), a.host, b.host, took)
	w.Network.SetLink(a.host, b.host, sim.Link{Down: true})
	time.Sleep(took)
	w.Network.SetLink(a.host, b.host, worldtest.SimClusterLink())
}

// isWorking reports whether a node has joined and has not ended.
func (w *simWorld) isWorking(m *simMember) bool { return !m.ended && m.node != nil && m.epoch > 0 }

// toAll sends a number from each rank to each other one.
func toAll(ctx context.Context, c *nexar.Comm) error {
	in, out := make([]int, c.Size()), make([]int, c.Size())
	for i := range out {
		out[i] = 1000*c.Rank() + i
	}
	if err := nexar.AllToAll(ctx, c, in, out); err != nil {
		return err
	}
	for i := range in {
		if in[i] != 1000*i+c.Rank() {
			return fmt.Errorf("%w: rank %d has %d from rank %d", errWrong, c.Rank(), in[i], i)
		}
	}
	return nil
}
