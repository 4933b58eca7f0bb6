package nexartest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/simseed"
	"github.com/nexar-go/nexar/transport/sim"
)

// ErrKilled is the error of a node after [World.Kill], and the cause of the end of its context.
var ErrKilled = errors.New("nexartest: killed by the test")

// defaultSimulatedTimeout is longer than the default times to detect failures and deadlocks, one after
// the other. Those of collectives and messages are longer.
const defaultSimulatedTimeout = 5 * defaultTimeout

// A Link has the settings of a link between two hosts: Delay, Jitter, Rate, Loss, and others. The
// zero value is a perfect and infinitely fast link.
type Link = sim.Link

// A World is a seed and an elastic world of nodes in this process, each on its own host of a
// simulated network. The test kills, stops, cuts off and adds nodes, and the others recover by
// [nexar.Node.Epochs], as processes do. Create it in a bubble of testing/synctest, where a minute of
// fake time takes milliseconds:
//
//	synctest.Test(t, func(t *testing.T) {
//		w := nexartest.New(t, 4)
//		w.Start(train)
//		time.Sleep(time.Second)
//		w.Kill(2)
//		for i, err := range w.Wait() {
//			…
//		}
//	})
//
// Nodes are numbered in the order in which they are added. Node i of the first ones has rank i until
// the world changes; its number stays the same.
//
// The simulated network carries datagrams only, so the failure of a node is detected after
// [nexar.Config].HeartbeatTimeout. Outside of tests, the end of a process is detected at once, and a
// stopped process or a partition after HeartbeatTimeout as well.
//
// Methods call t.Fatal for an unknown node, so call them on the goroutine of the test. The world is
// closed at the end of the test.
type World struct {
	// Rand has random numbers for the test, for example to select a node to kill. They depend on
	// [Cluster].Random only. It must not be used concurrently.
	Rand *rand.Rand

	t       *testing.T
	cluster Cluster
	network *sim.Network
	seed    *simseed.Seed
	running sync.WaitGroup // programs of nodes, and joins of added nodes

	mu      sync.Mutex
	members []*member
	program func(ctx context.Context, n *nexar.Node) error // nil before Start
}

// A member is a node of a World.
type member struct {
	host    string
	packets *packets
	ctx     context.Context // cancelled by Kill and at the end of the test
	cancel  context.CancelCauseFunc

	// Guarded by World.mu:
	node  *nexar.Node // nil until it has joined
	ended bool        // the program has returned
	err   error       // of Join or of the program
}

// New forms a world of n nodes over links with a delay of 1 ms, and returns when all have joined.
func New(t *testing.T, n int) *World {
	t.Helper()
	return Cluster{Link: Link{Delay: time.Millisecond}}.New(t, n)
}

// New is like the function [New], with the settings of the cluster: Config, Timeout, Link and
// Random. It sets Seeds, Token, Transports and Rank of Config itself.
func (cl Cluster) New(t *testing.T, n int) *World {
	t.Helper()
	if cl.Timeout <= 0 {
		cl.Timeout = defaultSimulatedTimeout
	}
	if cl.Random == 0 {
		cl.Random = 1
	}
	l := cl.Link
	w := &World{
		Rand: rand.New(rand.NewPCG(cl.Random, 0)), t: t, cluster: cl,
		network: sim.New(sim.Config{
			Seed: int64(cl.Random), Delay: l.Delay, Jitter: l.Jitter, Rate: l.Rate, Loss: l.Loss, Reorder: l.Reorder, Corrupt: l.Corrupt, Queue: l.Queue,
		}),
	}
	t.Cleanup(w.close)
	var err error
	if w.seed, err = simseed.Start(w.network, n); err != nil {
		t.Fatalf("nexartest: seed: %v", err)
	}
	var joining sync.WaitGroup
	for rank := range n {
		_, m := w.newMember()
		joining.Go(func() { w.join(m, &rank) })
	}
	joining.Wait()
	for i, m := range w.members {
		if m.err != nil {
			t.Fatalf("nexartest: node %d: %v", i, m.err)
		}
	}
	return w
}

// newMember adds a host for a node, and returns the number of the node.
func (w *World) newMember() (int, *member) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	i := len(w.members)
	m := &member{host: fmt.Sprint("node", i)}
	conn, err := w.network.Host(m.host).PacketConn(simseed.Port)
	if err != nil {
		w.t.Fatalf("nexartest: node %d: %v", i, err)
	}
	m.packets = &packets{PacketConn: conn}
	m.ctx, m.cancel = context.WithCancelCause(context.Background())
	w.members = append(w.members, m)
	return i, m
}

// join joins node m and reports success. rank is the wanted rank, or nil.
func (w *World) join(m *member, rank *int) bool {
	cfg := w.cluster.Config
	cfg.Rank = rank
	node, err := w.seed.Join(m.ctx, m.packets, cfg)
	if errors.Is(context.Cause(m.ctx), ErrKilled) {
		err = ErrKilled
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	m.node, m.err, m.ended = node, err, err != nil
	return err == nil
}

// Start calls program for each node on its own goroutine, and later for each that [World.Add] adds. It
// does not wait for them: see [World.Wait]. When program returns, its node is closed and leaves the
// world. ctx ends when the test kills the node, and at the end of the test.
func (w *World) Start(program func(ctx context.Context, n *nexar.Node) error) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.program != nil {
		w.t.Fatal("nexartest: Start: called twice")
	}
	w.program = program
	for i, m := range w.members {
		w.running.Go(func() { w.run(i, m) })
	}
}

// run runs the program of a node until it returns, and closes the node.
func (w *World) run(i int, m *member) {
	err := errProgramExited
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			w.t.Errorf("nexartest: node %d panicked: %v\n\n%s", i, p, debug.Stack())
		}
		closed := m.node.Close()
		if errors.Is(context.Cause(m.ctx), ErrKilled) {
			err, closed = ErrKilled, nil
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		m.ended, m.err = true, errors.Join(err, closed)
	}()
	labelled(i, func() { err = w.program(m.ctx, m.node) })
}

// errProgramExited is the error of a node whose program has ended its goroutine.
var errProgramExited = errors.New("nexartest: the program called runtime.Goexit, as t.Fatal does; return an error instead")

// Wait waits until the programs of all nodes have returned, and returns their errors by node. The error
// of a killed node is [ErrKilled]. After [Cluster].Timeout, 10 minutes by default for a World, the test
// fails with the stacks of the programs that still run, and their contexts end.
func (w *World) Wait() []error {
	w.t.Helper()
	w.await(w.cluster.Timeout)
	w.mu.Lock()
	defer w.mu.Unlock()
	errs := make([]error, len(w.members))
	for i, m := range w.members {
		errs[i] = m.err
	}
	return errs
}

// await waits for the programs for at most limit, and then ends their contexts.
func (w *World) await(limit time.Duration) {
	w.t.Helper()
	done := make(chan struct{})
	go func() {
		w.running.Wait()
		close(done)
	}()
	for range 2 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		select {
		case <-done:
			return
		case <-timer.C:
		}
		late := w.late()
		w.t.Errorf("nexartest: nodes %v have not returned within %v\n\n%s", late, limit, stacks(late))
		w.end()
	}
	panic("nexartest: programs have not returned after the end of their contexts")
}

// late returns the nodes whose programs still run.
func (w *World) late() (nodes []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, m := range w.members {
		if !m.ended {
			nodes = append(nodes, i)
		}
	}
	return nodes
}

// end ends the contexts of all nodes. Nodes with a program are closed when the program returns, the
// others at once.
func (w *World) end() {
	var closing sync.WaitGroup
	defer closing.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.members {
		m.packets.resume()
		m.cancel(errEnded)
		// run closes nodes with a program, after the program has returned.
		if w.program == nil && m.node != nil {
			closing.Go(func() { m.node.Close() })
		}
	}
}

// errEnded is the cause of the end of contexts at the end of the test.
var errEnded = errors.New("nexartest: the test has ended")

// close closes all nodes, the seed and the network.
func (w *World) close() {
	if w.t.Failed() {
		w.t.Logf("nexartest: the random numbers of this run are from Cluster{Random: %d}", w.cluster.Random)
	}
	w.end()
	w.await(w.cluster.Timeout)
	if w.seed != nil {
		w.seed.Close()
	}
	w.network.Close()
}

// Node returns node i, or nil if it has not joined yet.
func (w *World) Node(i int) *nexar.Node {
	w.t.Helper()
	m := w.member(i)
	w.mu.Lock()
	defer w.mu.Unlock()
	return m.node
}
