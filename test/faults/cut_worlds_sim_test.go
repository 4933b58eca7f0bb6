package faults

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
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
	// cutWorldsVariable is the number of worlds of TestCutWorlds.
	cutWorldsVariable = "CUTWORLDS"
	// cutBeat is the interval of heartbeats, a tenth of the heartbeat timeout.
	cutBeat = 200 * time.Millisecond
	// cutSettle bounds the recovery of a world after its faults, and its end.
	cutSettle = 2 * time.Minute
	// cutPauseMax is the longest time for which the seed cannot be reached. Nodes give a seed without a state directory up after 30 s of silence,
	// which may begin some seconds before, and QUIC tries again after up to twice the time.
	cutPauseMax = 12 * time.Second
	// seedPauseBetween is the additional time for which the seed can be reached after that.
	seedPauseBetween = 5 * time.Second
	// changesMax is the number of changes of a world.
	changesMax = 4
)

// A cutFault is a kind of fault of a world.
type cutFault int

const (
	breakOne        cutFault = iota // one connection of a pair, at a byte
	breakPair                       // all connections of a pair, at a byte
	silence                         // one of a pair sends nothing to the other
	breakAndSilence                 // breakPair, and then one sends nothing to the other, and the other nothing to it
	pauseSeed                       // nobody reaches the seed
	// Changes of the world.
	joins
	leaves     // at a reconfiguration
	closes     // at once
	bothLeave  // both sides of a link, which breaks
	crashes    // the process
	powersOff  // the host
	restarts   // the process, at the same address
	readmitted // a node is removed, and joins again
	cutFaults
)

func (f cutFault) String() string {
	return [...]string{
		"one connection broken", "all connections of a pair broken", "silent in one direction", "broken and silent in both directions in turn", "seed unreachable",
		"joined", "left at a reconfiguration", "left at once", "both sides of a link left", "process ended", "host lost", "process restarted", "removed and admitted again",
	}[f]
}

// A cutTally is what has happened in worlds.
type cutTally struct {
	worlds, failed int
	faults         [cutFaults]int
	broken         sim.Broken
	redials        int // of links that broke
	steps          int // of ranks
	operations     int // verified on a rank
	epochs         int // of worlds
	ended          int // communicators, although all processes in them lived
}

func (a *cutTally) add(b *cutTally) {
	a.worlds += b.worlds
	a.failed += b.failed
	for i, n := range b.faults {
		a.faults[i] += n
	}
	a.broken.Conns += b.broken.Conns
	a.broken.Bytes += b.broken.Bytes
	a.redials += b.redials
	a.steps += b.steps
	a.operations += b.operations
	a.epochs += b.epochs
	a.ended += b.ended
}

// TestCutWorlds: in worlds that a random seed determines, connections break at any byte, and directions are silent, while the ranks verify the
// results of their operations; in two of three worlds nodes join, leave and end meanwhile. No element is wrong, nothing hangs, no rank
// fails that was not ended, and no communicator ends while all its processes live. CUTWORLDS=1000 runs that many worlds; FIRST=7 is the
// random seed of the first.
func TestCutWorlds(t *testing.T) {
	require.NoRace(t, "it repeats other tests in many topologies and orders")
	tallies := make(map[string]*cutTally)
	for chance := range require.Worlds(cutWorldsVariable, 4) {
		var w *cutSim
		passed := t.Run(fmt.Sprint(chance), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w = newCutSim(t, chance)
				w.run()
			})
		})
		if w == nil { // -failfast
			break
		}
		w.tally.worlds = 1
		if !passed {
			w.tally.failed = 1
		}
		if tallies[w.kind()] == nil {
			tallies[w.kind()] = &cutTally{}
		}
		tallies[w.kind()].add(&w.tally)
	}
	require.Report(t, cutWorldsReport(tallies))
}

// cutWorldsReport returns the report of "make cut-worlds".
func cutWorldsReport(tallies map[string]*cutTally) string {
	var all cutTally
	var kinds strings.Builder
	for _, kind := range slices.Sorted(mapKeys(tallies)) {
		a := tallies[kind]
		all.add(a)
		fmt.Fprintf(&kinds, "%-38s %4d worlds, %d failed; %d connections broken, %d bytes lost; %d communicators ended\n", kind, a.worlds, a.failed, a.broken.Conns, a.broken.Bytes, a.ended)
	}
	text := fmt.Sprintf(`Worlds of 4 to 6 nodes in a simulated network and in fake time, each with 20 to 60 faults, while all ranks verify all-reduces, all-to-alls,
broadcasts, messages of 8 B to 1 MiB, streams of blocking sends, cancelled sends and receives, and calls; printed by "make cut-worlds". The heartbeat timeout is %v.
%s/%s, %s

A world has failed if an element is wrong, a call hangs, a rank fails that was not ended, or a communicator has ended while all its processes lived.

%s
Faults:
`, 10*cutBeat, runtime.GOOS, runtime.GOARCH, runtime.Version(), kinds.String())
	for f, n := range all.faults {
		text += fmt.Sprintf("%7d %v\n", n, cutFault(f))
	}
	return text + fmt.Sprintf(`
Effects:
%7d connections broken
%7d bytes that were written to them and not read, so that the links repeated them
%7d times a link dialed again
%7d epochs
%7d steps of ranks, with %d verified operations
%7d worlds failed, %d communicators ended
`, all.broken.Conns, all.broken.Bytes, all.redials, all.epochs, all.steps, all.operations, all.failed, all.ended)
}

func mapKeys[V any](m map[string]V) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// A cutSim is a world of TestCutWorlds.
type cutSim struct {
	*testing.T
	*worldtest.SimCluster
	chance          uint64
	rng             *rand.Rand
	size            int
	topology, links string
	beside          bool // payloads have another transport than control
	changes         bool
	restore         sim.Link
	working         sync.WaitGroup
	stop            atomic.Int64 // 1 stops all nodes after the same step
	redials         atomic.Int64
	rests           map[[2]string]time.Time // until when a pair of hosts has no outage

	mu      sync.Mutex
	members []*cutMember
	epochs  map[uint64]*cutEpoch
	faulty  map[nexar.NodeID]time.Time // since when a fault may end the node
	ends    []cutEnd
	history []string
	tally   cutTally
}

// A cutMember is a process of a world, on a host of its own.
type cutMember struct {
	host string

	// The mutex of the world guards:
	node   *nexar.Node
	comm   *nexar.Comm // of the current epoch
	done   bool        // it is to end, or has ended
	rejoin bool        // it joins again when it has ended, which the end of the world waits for
	ended  bool
	steps  int
	err    error
}

// A cutEpoch is an epoch of a world.
type cutEpoch struct {
	roster []nexar.NodeID // by rank
}

// A cutEnd is the error of an operation.
type cutEnd struct {
	epoch uint64
	at    time.Time
	host  string
	err   error
}

func newCutSim(t *testing.T, chance uint64) *cutSim {
	rng := rand.New(rand.NewPCG(chance, 87))
	w := &cutSim{
		T: t, chance: chance, rng: rng, size: 4 + rng.IntN(3), changes: chance%3 != 0,
		rests: make(map[[2]string]time.Time), epochs: make(map[uint64]*cutEpoch), faulty: make(map[nexar.NodeID]time.Time),
	}
	w.topology = []string{"full", "k-regular:2", "k-regular:4", "hypercube"}[rng.IntN(4)]
	w.links = []string{"demand", "eager"}[rng.IntN(2)]
	w.beside = rng.IntN(2) == 1
	w.SimCluster = worldtest.NewSimCluster(t, chance, w.size)
	w.Beat = cutBeat
	w.restore = worldtest.SimClusterLink()
	return w
}

// kind returns the name of the kind of world.
func (w *cutSim) kind() string {
	transports := "one transport"
	if w.beside {
		transports = "beside QUIC"
	}
	return w.topology + ", " + w.links + ", " + transports
}

func (w *cutSim) noteLocked(format string, args ...any) {
	w.history = append(w.history, time.Now().Format("04:05.000 ")+fmt.Sprintf(format, args...))
}

func (w *cutSim) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noteLocked(format, args...)
}

// run runs the world from its beginning to its verdict.
func (w *cutSim) run() {
	defer w.SimCluster.Close()
	defer w.working.Wait()
	defer w.Cancel()
	for range w.size {
		w.mu.Lock()
		w.addLocked(fmt.Sprint("host", len(w.members)))
		w.mu.Unlock()
	}
	if w.await(cutSettle, "the world forms", func() bool { return w.progressLocked(1) }) {
		var outage sync.WaitGroup
		for range 20 + w.rng.IntN(41) {
			w.apply(w.choose(), &outage)
			time.Sleep(time.Duration(w.rng.IntN(400)) * time.Millisecond)
		}
		outage.Wait()
		w.mu.Lock()
		for _, m := range w.members {
			m.steps = 0
		}
		w.mu.Unlock()
		if w.await(cutSettle, "all nodes make steps in one world after the faults", func() bool { return w.progressLocked(5) }) {
			w.stop.Store(1)
			w.await(cutSettle, "all nodes end", w.endedLocked)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judgeLocked()
	if w.Failed() {
		w.Logf("FIRST=%d CUTWORLDS=1: %d nodes, %s, changes: %v\n%s", w.chance, w.size, w.kind(), w.changes, strings.Join(w.history, "\n"))
	}
}

// await waits until a condition holds, and fails the test if it does not within a time.
func (w *cutSim) await(limit time.Duration, what string, condition func() bool) bool {
	for end := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		w.mu.Lock()
		holds := condition()
		w.mu.Unlock()
		if holds {
			return true
		}
		if time.Now().After(end) {
			break
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Errorf("%s: not within %v", what, limit)
	for _, m := range w.members {
		if m.node != nil && !m.ended {
			w.noteLocked("%s, node %v, has made %d steps and is in %v", m.host, m.node.ID(), m.steps, running(m.node))
		}
	}
	return false
}

// progressLocked reports whether all nodes that are to stay have made a number of steps, and are in one world.
func (w *cutSim) progressLocked(steps int) bool {
	var epoch uint64
	n := 0
	for _, m := range w.members {
		if m.done && !m.rejoin {
			continue
		}
		if m.comm == nil || m.steps < steps || epoch != 0 && m.comm.Epoch() != epoch {
			return false
		}
		epoch = m.comm.Epoch()
		n++
	}
	return n > 0 && n == len(w.epochs[epoch].roster)
}

func (w *cutSim) endedLocked() bool {
	return !slices.ContainsFunc(w.members, func(m *cutMember) bool { return !m.ended && !m.done })
}

// judgeLocked decides whether errors are consequences of changes, and counts.
func (w *cutSim) judgeLocked() {
	for _, m := range w.members {
		if m.err != nil && !m.done {
			w.Errorf("%s has ended: %v", m.host, m.err)
		}
	}
	blamed := make(map[uint64]bool)
	for _, e := range w.ends {
		w.noteLocked("%s, epoch %d, at %v: %v", e.host, e.epoch, e.at.Format("04:05.000"), e.err)
		if errors.Is(e.err, errWrong) {
			w.Errorf("%s, epoch %d, at %v: %v", e.host, e.epoch, e.at.Format("04:05.000"), e.err)
			continue
		}
		isExpected := slices.ContainsFunc(w.epochs[e.epoch].roster, func(id nexar.NodeID) bool {
			since, ok := w.faulty[id]
			return ok && !since.After(e.at)
		})
		if !isExpected {
			w.Errorf("%s: the communicator of epoch %d has ended at %v although all its processes lived: %v", e.host, e.epoch, e.at.Format("04:05.000"), e.err)
			blamed[e.epoch] = true
		}
	}
	w.tally.ended = len(blamed)
	w.tally.epochs, w.tally.redials, w.tally.broken = len(w.epochs), int(w.redials.Load()), w.Network.Broken()
}

// addLocked starts a node on a host.
func (w *cutSim) addLocked(host string) {
	m := &cutMember{host: host}
	w.members = append(w.members, m)
	w.working.Go(func() {
		for again := true; again; {
			err := w.live(m)
			w.mu.Lock()
			again, m.rejoin = m.rejoin && w.Ctx.Err() == nil, false
			m.err, m.comm, m.ended = err, nil, !again
			if again {
				m.done = false
			}
			w.noteLocked("%s has ended: %v", host, err)
			w.mu.Unlock()
		}
	})
}

// live runs a node from Join to its end.
func (w *cutSim) live(m *cutMember) error {
	log := slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
		w.note("%s: %s", m.host, strings.TrimSpace(string(p)))
		if strings.Contains(string(p), "broke and is dialed again") {
			w.redials.Add(1)
		}
		return len(p), nil
	}), &slog.HandlerOptions{Level: slog.LevelInfo}))
	n, err := w.JoinWire(m.host, w.beside, nexar.Config{
		FormTimeout: 10 * time.Minute, Topology: w.topology, Links: w.links, Log: log,
		RecoveryTimeout: 2 * time.Minute, CollectiveTimeout: 2 * time.Minute, ReconfigureTimeout: 2 * time.Minute,
	})
	if err != nil {
		return err
	}
	defer n.Close()
	w.mu.Lock()
	m.node = n
	w.noteLocked("%s has joined as node %v", m.host, n.ID())
	w.mu.Unlock()
	var state stepState
	for c, err := range n.Epochs(w.Ctx) {
		if err != nil {
			return err
		}
		w.enter(m, c)
		stopped, err := w.work(m, n, c, &state)
		if err != nil {
			w.mu.Lock()
			if w.Ctx.Err() == nil {
				w.ends = append(w.ends, cutEnd{epoch: c.Epoch(), at: time.Now(), host: m.host, err: err})
			}
			w.mu.Unlock()
		}
		if stopped || errors.Is(err, errWrong) {
			return err
		}
	}
	return nil
}

// enter records the communicator of a node.
func (w *cutSim) enter(m *cutMember, c *nexar.Comm) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m.comm = c
	if w.epochs[c.Epoch()] == nil {
		w.epochs[c.Epoch()] = &cutEpoch{roster: make([]nexar.NodeID, c.Size())}
		for _, p := range m.node.Peers() {
			w.epochs[c.Epoch()].roster[p.Rank] = p.Node
		}
		w.epochs[c.Epoch()].roster[c.Rank()] = m.node.ID()
	}
	w.noteLocked("%s is rank %d of %d in epoch %d", m.host, c.Rank(), c.Size(), c.Epoch())
	if e := w.epochs[c.Epoch()]; len(e.roster) != c.Size() || e.roster[c.Rank()] != m.node.ID() {
		w.Errorf("%s is rank %d of %d in epoch %d, which has the nodes %v", m.host, c.Rank(), c.Size(), c.Epoch(), e.roster)
	}
}

// work is the loop of a node in an epoch. It reports whether the world has stopped.
func (w *cutSim) work(m *cutMember, n *nexar.Node, c *nexar.Comm, state *stepState) (stopped bool, err error) {
	c.Register("echo", func(_ context.Context, from int, args []byte) ([]byte, error) {
		return slices.Concat([]byte{byte(from)}, args), nil
	})
	if err := nexar.Sync(w.Ctx, c, state); err != nil {
		return false, fmt.Errorf("sync: %w", err)
	}
	for {
		x := []int64{w.stop.Load()}
		if err := nexar.AllReduce(w.Ctx, c, x, nexar.Sum); err != nil {
			return false, err
		}
		if x[0] > 0 {
			return true, c.Barrier(w.Ctx)
		}
		step := cutStep{comm: c, ctx: w.Ctx, number: state.Step, rng: rand.New(rand.NewPCG(w.chance, c.Epoch()<<32|uint64(state.Step)))}
		if err := step.run(); err != nil {
			return false, fmt.Errorf("step %d: %w", state.Step, err)
		}
		state.Step++
		w.mu.Lock()
		m.steps++
		w.tally.steps++
		w.tally.operations += int(step.done.Load())
		w.mu.Unlock()
		if changed, err := n.Reconfigure(w.Ctx); changed || err != nil {
			return false, err
		}
		time.Sleep(time.Duration(step.rng.IntN(100)) * time.Millisecond)
	}
}
