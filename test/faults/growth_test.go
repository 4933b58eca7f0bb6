package faults

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/negotiate"
	"github.com/nexar-go/nexar/test/worldtest"
)

// An elasticWorld has nodes that count steps together.
type elasticWorld struct {
	*testing.T
	seed *nexar.Seed
	cfg  nexar.Config
	wg   sync.WaitGroup

	mu    sync.Mutex
	sizes []int // of the communicators of rank 0
	sums  int   // all-reduces with the correct result

	stop atomic.Int64 // 1 stops all nodes after the same step
}

// A stepState is the state that the nodes replicate: the number of steps.
type stepState struct{ Step, Sum int64 }

func newElasticWorld(t *testing.T, cfg nexar.SeedConfig, node nexar.Config) *elasticWorld {
	t.Helper()
	cfg.Listen, cfg.AllowWeakToken = "127.0.0.1:0", true
	seed, err := nexar.StartSeed(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	node.Seeds, node.Listen = []string{seed.Addr()}, "127.0.0.1:0"
	w := &elasticWorld{T: t, seed: seed, cfg: node}
	t.Cleanup(func() {
		w.wg.Wait()
		seed.Close()
	})
	return w
}

// A worldNode is a node of an elasticWorld.
type worldNode struct {
	node    *nexar.Node
	joined  chan struct{} // closed after node or err is set
	done    chan struct{} // closed at the end of its loop
	err     error
	state   stepState
	stopped bool // the world has stopped
}

// join starts a node that makes steps until the world stops or it leaves.
func (w *elasticWorld) join(cfg nexar.Config) *worldNode {
	n := &worldNode{joined: make(chan struct{}), done: make(chan struct{})}
	cfg.Seeds, cfg.Listen, cfg.Topology, cfg.Links = w.cfg.Seeds, w.cfg.Listen, w.cfg.Topology, w.cfg.Links
	cfg.Transports, cfg.RecoveryTimeout, cfg.Log = w.cfg.Transports, w.cfg.RecoveryTimeout, w.cfg.Log

	w.wg.Go(func() {
		defer close(n.done)
		n.node, n.err = nexar.Join(w.Context(), cfg)
		close(n.joined)

		if n.err == nil {
			n.err = errors.Join(w.work(n), n.node.Close())
		}
	})

	return n
}

// work is the loop of a node. A step is an all-reduce.
func (w *elasticWorld) work(n *worldNode) error {
	ctx := w.Context()
	for comm, err := range n.node.Epochs(ctx) {
		if err != nil {
			return err
		}
		if comm.Rank() == 0 {
			w.mu.Lock()
			w.sizes = append(w.sizes, comm.Size())
			w.mu.Unlock()
		}
		if err := w.epoch(ctx, comm, n); err != nil {
			w.Logf("rank %d of epoch %d: %v", comm.Rank(), comm.Epoch(), err)
			continue
		}
		if n.stopped {
			return comm.Barrier(ctx)
		}
	}
	return nil
}

func (w *elasticWorld) epoch(ctx context.Context, comm *nexar.Comm, n *worldNode) error {
	if err := nexar.Sync(ctx, comm, &n.state); err != nil {
		return err
	}
	for {
		x := []int64{1, w.stop.Load()}
		if err := nexar.AllReduce(ctx, comm, x, nexar.Sum); err != nil {
			return err
		}
		if n.stopped = x[1] > 0; n.stopped {
			return nil
		}
		if x[0] != int64(comm.Size()) {
			return fmt.Errorf("got a sum of %d, want %d, the number of ranks", x[0], comm.Size())
		}
		n.state.Step++
		n.state.Sum += x[0]
		if comm.Rank() == 0 {
			w.mu.Lock()
			w.sums++
			w.mu.Unlock()
		}
		changed, err := n.node.Reconfigure(ctx)
		if changed || err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// waitForSizes waits until rank 0 has had communicators of exactly these sizes, in this order.
func (w *elasticWorld) waitForSizes(sizes ...int) {
	w.Helper()
	for end := time.Now().Add(worldtest.Patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		w.mu.Lock()
		got := slices.Clone(w.sizes)
		w.mu.Unlock()
		if slices.Equal(got, sizes) {
			return
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Fatalf("sizes of the world: %v, want %v", w.sizes, sizes)
}

// stopAll waits for another 100 steps and stops the nodes. It checks that all end without an error,
// after the same step.
func (w *elasticWorld) stopAll(nodes ...*worldNode) {
	w.Helper()
	last := w.steps() + 100
	for end := time.Now().Add(worldtest.Patience); w.steps() < last; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			w.Fatalf("no progress after %d steps", w.steps())
		}
	}
	w.stop.Store(1)
	for i, n := range nodes {
		select {
		case <-n.done:
		case <-time.After(worldtest.Patience):
			w.Fatalf("node %d does not end", i)
		}
		if n.err != nil || n.state != nodes[0].state {
			w.Errorf("node %d: got %+v, %v, want %+v", i, n.state, n.err, nodes[0].state)
		}
	}
}

// steps returns the number of steps of rank 0.
func (w *elasticWorld) steps() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sums
}

// TestGrowth: nodes join a running world and get its state, and one leaves at a reconfiguration. All
// have the same state at the end. A brief test has every second kind of world: with
// each transport, with eager links, and with sparse topologies.
func TestGrowth(t *testing.T) {
	for i, kind := range []struct {
		topology, links string
		transports      []string
	}{
		{"full", "demand", nil}, {"full", "demand", []string{"tcp"}}, {"full", "demand", []string{"quic"}},
		{"full", "eager", nil}, {"full", "eager", []string{"tcp"}}, {"k-regular:2", "demand", []string{"tcp"}},
		{"k-regular:4", "demand", nil}, {"hypercube", "demand", nil}, {"hypercube", "demand", []string{"quic"}},
	} {
		if worldtest.Brief() && i%2 == 1 {
			continue
		}
		t.Run(strings.Join(append([]string{kind.topology, kind.links}, kind.transports...), " "), func(t *testing.T) {
			w := newElasticWorld(t, nexar.SeedConfig{World: 2, Elastic: true}, nexar.Config{Transports: kind.transports, Topology: kind.topology, Links: kind.links})
			a, b := w.join(nexar.Config{}), w.join(nexar.Config{})
			w.waitForSizes(2)
			d := w.join(nexar.Config{})
			w.waitForSizes(2, 3)
			e := w.join(nexar.Config{})
			w.waitForSizes(2, 3, 4)
			<-e.joined
			if want := map[string]int{"k-regular:2": 2, "hypercube": 2}[kind.topology]; want > 0 && e.err == nil && len(e.node.Neighbors()) != want {
				t.Errorf("a node of 4 has the neighbors %v, want %d", e.node.Neighbors(), want)
			}
			<-b.joined
			if err := b.node.Leave(t.Context()); err != nil {
				t.Error(err)
			}
			w.waitForSizes(2, 3, 4, 3)
			<-b.done
			if b.err != nil {
				t.Error(b.err)
			}
			w.stopAll(a, d, e)
		})
	}
}

// TestManyHaveLeft: nodes still share memory after many others have joined and left.
func TestManyHaveLeft(t *testing.T) {
	var mu sync.Mutex
	var lacking []string
	log := slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
		if line := string(p); strings.Contains(line, negotiate.WithoutMemory) {
			mu.Lock()
			defer mu.Unlock()
			lacking = append(lacking, line)
		}
		return len(p), nil
	}), nil))
	w := newElasticWorld(t, nexar.SeedConfig{World: 2, Elastic: true}, nexar.Config{Log: log})
	nodes, sizes := []*worldNode{w.join(nexar.Config{}), w.join(nexar.Config{})}, []int{2}
	w.waitForSizes(sizes...)
	others := 40
	if worldtest.Brief() {
		others = 10
	}
	for range others {
		newcomer := w.join(nexar.Config{})
		sizes = append(sizes, 3)
		w.waitForSizes(sizes...)
		<-newcomer.joined
		if err := newcomer.node.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, 2)
		w.waitForSizes(sizes...)
	}
	w.stopAll(nodes...)
	mu.Lock()
	defer mu.Unlock()
	if len(lacking) > 0 {
		t.Errorf("%d communicators have no shared memory, first: %s", len(lacking), lacking[0])
	}
}

// TestSpare: a spare is not admitted at reconfigurations, and replaces a node that leaves.
func TestSpare(t *testing.T) {
	waits := make(chan struct{})
	var once sync.Once
	log := slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
		if line := string(p); strings.Contains(line, "the links of a node are confirmed") && strings.Contains(line, "spare=true") {
			once.Do(func() { close(waits) })
		}
		return len(p), nil
	}), nil))
	w := newElasticWorld(t, nexar.SeedConfig{World: 3, Log: log}, nexar.Config{})
	nodes := []*worldNode{w.join(nexar.Config{}), w.join(nexar.Config{}), w.join(nexar.Config{})}
	w.waitForSizes(3)
	spare := w.join(nexar.Config{Spare: true})
	select {
	case <-waits:
	case <-time.After(worldtest.Patience):
		t.Fatal("the spare is not ready")
	}
	time.Sleep(50 * time.Millisecond) // The spare must not be admitted meanwhile.
	w.waitForSizes(3)
	var last *worldNode
	for _, n := range nodes {
		<-n.joined
		if n.node.World().Rank() == 2 {
			last = n
		}
	}
	if err := last.node.Close(); err != nil {
		t.Error(err)
	}
	w.waitForSizes(3, 3)
	<-last.done
	nodes = slices.DeleteFunc(nodes, func(n *worldNode) bool { return n == last })
	w.stopAll(append(nodes, spare)...)
}

// TestJoinFull: a node waits while an elastic world has ElasticMax nodes, and its error names the
// reason.
func TestJoinFull(t *testing.T) {
	w := newElasticWorld(t, nexar.SeedConfig{World: 2, Elastic: true, ElasticMax: 2}, nexar.Config{})
	a, b := w.join(nexar.Config{}), w.join(nexar.Config{})
	w.waitForSizes(2)
	// The refusal may take some time.
	for wait := 150 * time.Millisecond; ; wait *= 3 {
		d := w.join(nexar.Config{FormTimeout: wait})
		<-d.done
		if d.err == nil || wait > worldtest.Patience {
			t.Fatalf("got error %v, want that the world is full", d.err)
		}
		if strings.Contains(d.err.Error(), "room") {
			break
		}
		t.Logf("after %v: %v", wait, d.err)
	}
	w.stopAll(a, b)
}

// TestNotElastic: a world that is not elastic admits no further node.
func TestNotElastic(t *testing.T) {
	w := newElasticWorld(t, nexar.SeedConfig{World: 1}, nexar.Config{})
	a := w.join(nexar.Config{})
	w.waitForSizes(1)
	d := w.join(nexar.Config{})
	<-d.done
	if d.err == nil || !strings.Contains(d.err.Error(), "not elastic") {
		t.Errorf("got error %v, want that the world is not elastic", d.err)
	}
	w.stopAll(a)
}
