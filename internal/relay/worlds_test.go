package relay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/relay/forward"
	"github.com/nexar-go/nexar/internal/relay/relaytest"
	"github.com/nexar-go/nexar/internal/require"
)

const (
	// relayWorldsVariable is the number of worlds of TestRelayWorlds.
	relayWorldsVariable = "RELAYWORLDS"
	// worldPeriod is the time between two changes of the routes of a world, and worldLoss the share of the frames that each hop loses.
	worldPeriod, worldLoss = 500 * time.Millisecond, 0.05
	// worldTime is the time in which the flows of a world begin, and relays die.
	worldTime = 4 * time.Second
	// worldLimit is the longest time of a flow, and hangLimit, in real time, that of a world.
	worldLimit, hangLimit = 2 * time.Minute, 5 * time.Minute
	// noticeMax is the longest time until a node learns a change of the routes, and goneMax until it learns a death.
	noticeMax, goneMax = 200 * time.Millisecond, 2 * time.Second
)

// A relayWorld is a world of TestRelayWorlds.
type relayWorld struct {
	*network
	t     *testing.T
	seed  uint64
	rng   *rand.Rand
	name  string // of the topology
	all   relaytest.Graph
	dies  string // how relays die; "" if none does
	dead  []int
	tally *worldTally

	changes sync.WaitGroup
	rates   map[[2]int]int           // of links
	delays  map[[2]int]time.Duration // of links

	mu    sync.Mutex
	loss  *rand.Rand
	off   map[int]bool      // nodes without power
	views []relaytest.Graph // the links that each node knows
	flips []uint64          // make a node prefer another next hop of several good ones
}

// A worldTally counts what worlds have done.
type worldTally struct {
	worlds, failed, flows, dials, bytes, routes, deaths, aborted, frames, lost atomic.Int64
	longest                                                                    time.Duration
}

// add adds another tally.
func (w *worldTally) add(o *worldTally) {
	for i, n := range o.counters() {
		w.counters()[i].Add(n.Load())
	}
	w.longest = max(w.longest, o.longest)
}

func (w *worldTally) counters() []*atomic.Int64 {
	return []*atomic.Int64{&w.worlds, &w.failed, &w.flows, &w.dials, &w.bytes, &w.routes, &w.deaths, &w.aborted, &w.frames, &w.lost}
}

// TestRelayWorlds: nodes of sparse topologies send each other bytes over relays, while the routes change every 0.5 s, each hop loses 5 % of the
// frames, and relays die, several at once. Each byte arrives once and in order over conns that are dialed again as a link does, and nothing
// hangs or is left. RELAYWORLDS=1000 runs that many worlds; FIRST=7 is the random seed of the first.
func TestRelayWorlds(t *testing.T) {
	require.NoRace(t, "it repeats other tests in many topologies and orders")
	tallies := make(map[string]*worldTally)
	for seed := range require.Worlds(relayWorldsVariable, 5) {
		w := &relayWorld{seed: seed, tally: new(worldTally)}
		w.choose()
		hang := time.AfterFunc(hangLimit, func() { panic(fmt.Sprintf("FIRST=%d %s=1: the world hangs", seed, relayWorldsVariable)) })
		passed := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w.t = t
				w.run()
			})
		})
		hang.Stop()
		w.tally.worlds.Store(1)
		if !passed {
			w.tally.failed.Store(1)
		}
		if tallies[w.name] == nil {
			tallies[w.name] = new(worldTally)
		}
		tallies[w.name].add(w.tally)
	}
	require.Report(t, worldReport(tallies))
}

// choose draws the topology, and what happens in the world.
func (w *relayWorld) choose() {
	w.rng = rand.New(rand.NewPCG(w.seed, 23))
	w.loss, w.off = rand.New(rand.NewPCG(w.seed, 24)), make(map[int]bool)
	nodes := 5 + w.rng.IntN(5)
	switch w.rng.IntN(4) {
	case 0:
		w.name, w.all = "ring", relaytest.Ring(nodes)
	case 1:
		w.name, w.all = "tree with more links", relaytest.Random(w.rng, nodes, 2+w.rng.IntN(nodes))
	case 2:
		w.name, w.all = "hypercube", make(relaytest.Graph, 8)
		for i := range w.all {
			w.all[i] = []int{i ^ 1, i ^ 2, i ^ 4}
		}
	default:
		w.name, w.all = "line", line(nodes)
	}
	if w.dies = []string{"", "crash", "power off"}[w.rng.IntN(3)]; w.dies != "" {
		living := w.all.Clone()
		for _, i := range w.rng.Perm(len(w.all))[:1+w.rng.IntN(3)] {
			before := living.Clone()
			if living.Remove(i); !w.isConnected(living, append(w.dead, i)) {
				living = before
				continue
			}
			w.dead = append(w.dead, i)
		}
	}
	w.rates, w.delays = make(map[[2]int]int), make(map[[2]int]time.Duration)
	for i, peers := range w.all {
		for _, j := range peers {
			w.rates[[2]int{i, j}] = 500_000 << w.rng.IntN(7)
			w.delays[[2]int{i, j}] = time.Duration(50+w.rng.IntN(3000)) * time.Microsecond
		}
		w.views, w.flips = append(w.views, w.all.Clone()), append(w.flips, 0)
	}
}

// isConnected reports whether all nodes except some can reach each other.
func (w *relayWorld) isConnected(g relaytest.Graph, without []int) bool {
	for i := range g {
		for j := range g {
			if i != j && !slices.Contains(without, i) && !slices.Contains(without, j) && len(g.NextHops(i, relaytest.ID(j), nil)) == 0 {
				return false
			}
		}
	}
	return true
}

// worldRoutes are the routes of a node over the links that it knows.
type worldRoutes struct {
	w    *relayWorld
	self int
}

// NextHops implements [forward.Routes]. Among next hops that are nearer to the destination than this node, the order changes from time to time.
func (r worldRoutes) NextHops(destination membership.NodeID, _ int, hops []membership.NodeID) []membership.NodeID {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	g, start := r.w.views[r.self], len(hops)
	hops = g.NextHops(r.self, destination, hops)
	good := hops[start:]
	distance := func(id membership.NodeID) int { return g.Distance(id, destination) }
	own := distance(relaytest.ID(r.self))
	good = good[:max(0, slices.IndexFunc(append(slices.Clone(good), relaytest.ID(r.self)), func(id membership.NodeID) bool { return distance(id) >= own }))]
	if len(good) > 1 {
		i := int(r.w.flips[r.self] % uint64(len(good)))
		good[0], good[i] = good[i], good[0]
	}
	return hops
}

// medium returns the properties of the links.
func (w *relayWorld) medium() medium {
	return medium{
		latency:   func(from, to int) time.Duration { return w.delays[[2]int{from, to}] },
		bandwidth: func(from, to int) int { return w.rates[[2]int{from, to}] },
		pass: func(from, to int, f forward.Frame) []forward.Frame {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.tally.frames.Add(1)
			if w.off[from] || w.off[to] || w.loss.Float64() < worldLoss {
				w.tally.lost.Add(1)
				return nil
			}
			return []forward.Frame{f}
		},
	}
}

// run lets flows go through the world while it changes.
func (w *relayWorld) run() {
	w.network = newNetworkOver(w.t, w.all, w.medium(), func(i int, cfg *Config) {
		cfg.Routes, cfg.HopLimit = worldRoutes{w, i}, 3*len(w.all)
	})
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	x, n := newFlows(w.network), len(w.all)
	var work sync.WaitGroup
	for range 4 * n {
		from := w.rng.IntN(n)
		f := x.add(from, (from+1+w.rng.IntN(n-1))%n, 1+w.rng.IntN(8<<w.rng.IntN(19)))
		begins := time.Duration(w.rng.Int64N(int64(worldTime)))
		work.Go(func() {
			time.Sleep(begins)
			limited, cancel := context.WithTimeout(ctx, worldLimit)
			defer cancel()
			switch err := f.run(limited); {
			case err == nil:
				w.tally.flows.Add(1)
			case errors.Is(err, errAborted):
				w.tally.aborted.Add(1)
			default:
				w.t.Error(err)
			}
			w.tally.dials.Add(int64(f.dials))
			w.tally.bytes.Add(f.progress.Load())
		})
	}
	isOver := make(chan struct{})
	w.changes.Go(func() { w.change(isOver) })
	if len(w.dead) > 0 {
		time.AfterFunc(time.Duration(w.rng.Int64N(int64(worldTime))), func() { w.die(x) })
	}
	time.Sleep(worldTime)
	work.Wait()
	close(isOver)
	w.changes.Wait()
	for _, f := range x.list {
		w.tally.longest = max(w.tally.longest, f.took)
	}
	time.Sleep(goneMax + forward.AgeMax)
	for i, e := range w.endpoints {
		if slices.Contains(w.dead, i) {
			continue
		}
		e.mu.Lock()
		if held := e.node.Held(); len(e.dials) > 0 || held > 0 {
			w.t.Errorf("node %d has %d dials in progress and holds %d bytes", i, len(e.dials), held)
		}
		e.mu.Unlock()
	}
	if w.t.Failed() {
		w.t.Logf("FIRST=%d %s=1: %s of %d nodes %v, %q: %v", w.seed, relayWorldsVariable, w.name, n, w.all, w.dies, w.dead)
	}
}

// change changes the routes again and again: a link goes, or comes back, and nodes prefer other next hops.
func (w *relayWorld) change(isOver chan struct{}) {
	rng, cut := rand.New(rand.NewPCG(w.seed, 25)), [2]int{-1, -1}
	for {
		select {
		case <-isOver:
			return
		case <-time.After(worldPeriod):
		}
		w.tally.routes.Add(1)
		w.mu.Lock()
		for i := range w.flips {
			w.flips[i] = rng.Uint64()
		}
		w.mu.Unlock()
		switch {
		case cut[0] >= 0 && rng.IntN(2) == 0:
			i, j := cut[0], cut[1]
			w.link(i, j)
			w.notice(rng, func(g relaytest.Graph) { g.Link(i, j) })
			cut = [2]int{-1, -1}
		case cut[0] < 0:
			i := rng.IntN(len(w.all))
			j := w.all[i][rng.IntN(len(w.all[i]))]
			without := w.all.Clone()
			for _, k := range w.dead {
				without.Remove(k)
			}
			without.Unlink(i, j)
			if !slices.Contains(w.dead, i) && !slices.Contains(w.dead, j) && w.isConnected(without, w.dead) {
				cut = [2]int{i, j}
				w.unlink(i, j)
				w.notice(rng, func(g relaytest.Graph) { g.Unlink(i, j) })
			}
		}
	}
}

// unlink ends the link between two nodes.
func (w *relayWorld) unlink(i, j int) {
	e := w.endpoints[i]
	e.mu.Lock()
	v := e.neighbors[relaytest.ID(j)]
	e.mu.Unlock()
	e.detach(v, errors.New("it is cut"))
}

// notice changes the links that each node knows, after a while.
func (w *relayWorld) notice(rng *rand.Rand, change func(g relaytest.Graph)) {
	for i := range w.views {
		time.AfterFunc(time.Duration(rng.Int64N(int64(noticeMax))), func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			change(w.views[i])
		})
	}
}

// die ends the doomed nodes, all at once. The others learn it at different times, in a crash from the links first.
func (w *relayWorld) die(x *flows) {
	rng := rand.New(rand.NewPCG(w.seed, 26))
	x.mu.Lock()
	for _, f := range x.list {
		if slices.Contains(w.dead, f.from) || slices.Contains(w.dead, f.to) {
			close(f.abort)
		}
	}
	x.mu.Unlock()
	for _, i := range w.dead {
		w.tally.deaths.Add(1)
		if w.dies == "crash" {
			w.mem.Kill(w.links[i].Addr())
		} else {
			w.mu.Lock()
			w.off[i] = true
			w.mu.Unlock()
			time.AfterFunc(goneMax, func() { w.mem.Kill(w.links[i].Addr()) })
		}
		for j, e := range w.endpoints {
			time.AfterFunc(time.Duration(rng.Int64N(int64(goneMax))), func() {
				w.mu.Lock()
				w.views[j].Remove(i)
				w.mu.Unlock()
				e.NodeGone(relaytest.ID(i))
			})
		}
	}
}

// worldReport describes what the worlds have done.
func worldReport(tallies map[string]*worldTally) string {
	var b strings.Builder
	fmt.Fprintf(&b, `Sparse worlds of 5 to 9 nodes with relays, in a simulated network and in fake time; printed by "make relay-worlds". Each hop loses 5 %% of the
frames, every %v a link goes or comes back and nodes prefer other next hops, which they learn at different times, and in two thirds of the worlds
up to 3 relays die at once, by a crash or without power. Nodes send each other 1 B to 2 MiB over conns that they dial again as a link does.
%s/%s, %s

A world has failed if a byte is wrong, missing or repeated, a transfer between living nodes takes longer than %v, or a goroutine is left.

`, worldPeriod, runtime.GOOS, runtime.GOARCH, runtime.Version(), worldLimit)
	sum := new(worldTally)
	for _, name := range slices.Sorted(maps.Keys(tallies)) {
		w := tallies[name]
		fmt.Fprintf(&b, "%-20s %6d worlds, %d failed; %d nodes have died\n", name, w.worlds.Load(), w.failed.Load(), w.deaths.Load())
		sum.add(w)
	}
	fmt.Fprintf(&b, `
%8d changes of the routes
%8d transfers of %d bytes verified, over %d conns; %d were given up, since a node of theirs has died
%8s is the longest time of a transfer
%8d frames on links, %d of them lost
%8d worlds failed
`, sum.routes.Load(), sum.flows.Load(), sum.bytes.Load(), sum.dials.Load(), sum.aborted.Load(), sum.longest.Round(time.Millisecond), sum.frames.Load(), sum.lost.Load(), sum.failed.Load())
	return b.String()
}
