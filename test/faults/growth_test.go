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
	"github.com/nexar-go/nexar/test/worldtest"
)

// A crew is a set of nodes of an elastic world that count steps together.
type crew struct {
	*testing.T
	seed *nexar.Seed
	cfg  nexar.Config
	wg   sync.WaitGroup

	mu    sync.Mutex
	sizes []int // of the communicators of rank 0
	sums  int   // all-reduces with the right result

	enough atomic.Int64 // 1 ends the work of all nodes after the same step
}

// A tally is the state of a node: the number of steps that all nodes have made.
type tally struct{ Step, Sum int64 }

func newCrew(t *testing.T, cfg nexar.SeedConfig, node nexar.Config) *crew {
	t.Helper()
	cfg.Listen = "127.0.0.1:0"
	seed, err := nexar.StartSeed(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	node.Seeds, node.Listen = []string{seed.Addr()}, "127.0.0.1:0"
	c := &crew{T: t, seed: seed, cfg: node}
	t.Cleanup(func() {
		c.wg.Wait()
		seed.Close()
	})
	return c
}

// A worker is a node of a crew.
type worker struct {
	node   *nexar.Node
	joined chan struct{} // closed after node or err is set
	done   chan struct{} // closed at the end of its loop
	err    error
	tally  tally
	over   bool // the crew ends
}

// join starts a node that works until the crew ends, or until it leaves.
func (c *crew) join(cfg nexar.Config) *worker {
	h := &worker{joined: make(chan struct{}), done: make(chan struct{})}
	cfg.Seeds, cfg.Listen = c.cfg.Seeds, c.cfg.Listen
	cfg.Transports, cfg.RecoveryTimeout, cfg.Log = c.cfg.Transports, c.cfg.RecoveryTimeout, c.cfg.Log

	c.wg.Go(func() {
		defer close(h.done)
		h.node, h.err = nexar.Join(c.Context(), cfg)
		close(h.joined)

		if h.err == nil {
			h.err = errors.Join(c.work(h), h.node.Close())
		}
	})

	return h
}

// work is the loop of a node. A step is an all-reduce.
func (c *crew) work(h *worker) error {
	ctx := c.Context()
	for comm, err := range h.node.Epochs(ctx) {
		if err != nil {
			return err
		}
		if comm.Rank() == 0 {
			c.mu.Lock()
			c.sizes = append(c.sizes, comm.Size())
			c.mu.Unlock()
		}
		if err := c.epoch(ctx, comm, h); err != nil {
			c.Logf("rank %d of epoch %d: %v", comm.Rank(), comm.Epoch(), err)
			continue
		}
		if h.over {
			return comm.Barrier(ctx)
		}
	}
	return nil
}

func (c *crew) epoch(ctx context.Context, comm *nexar.Comm, h *worker) error {
	if err := nexar.Sync(ctx, comm, &h.tally); err != nil {
		return err
	}
	for {
		x := []int64{1, c.enough.Load()}
		if err := nexar.AllReduce(ctx, comm, x, nexar.Sum); err != nil {
			return err
		}
		if h.over = x[1] > 0; h.over {
			return nil
		}
		if x[0] != int64(comm.Size()) {
			return fmt.Errorf("the sum is %d with %d ranks", x[0], comm.Size())
		}
		h.tally.Step++
		h.tally.Sum += x[0]
		if comm.Rank() == 0 {
			c.mu.Lock()
			c.sums++
			c.mu.Unlock()
		}
		changed, err := h.node.Reconfigure(ctx)
		if changed || err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// reaches waits until rank 0 has had a communicator of each of these sizes, in this
// order.
func (c *crew) reaches(sizes ...int) {
	c.Helper()
	for end := time.Now().Add(worldtest.Patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		c.mu.Lock()
		got := slices.Clone(c.sizes)
		c.mu.Unlock()
		if slices.Equal(got, sizes) {
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Fatalf("the world had these sizes: %v, want %v", c.sizes, sizes)
}

// ends lets the crew make some more steps and then end. It checks that all workers have
// ended without an error, after the same step.
func (c *crew) ends(hands ...*worker) {
	c.Helper()
	last := c.made() + 100
	for end := time.Now().Add(worldtest.Patience); c.made() < last; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			c.Fatalf("no progress after %d steps", c.made())
		}
	}
	c.enough.Store(1)
	for i, h := range hands {
		select {
		case <-h.done:
		case <-time.After(worldtest.Patience):
			c.Fatalf("worker %d does not end", i)
		}
		if h.err != nil || h.tally != hands[0].tally {
			c.Errorf("worker %d: %+v (%v), want %+v", i, h.tally, h.err, hands[0].tally)
		}
	}
}

// made returns the number of steps.
func (c *crew) made() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sums
}

// TestGrowth: nodes join a running world and get its state, and one leaves at a
// checkpoint. The others continue and agree on the sum.
func TestGrowth(t *testing.T) {
	for _, ways := range [][]string{nil, {"tcp"}, {"quic"}} {
		t.Run(strings.Join(ways, ""), func(t *testing.T) {
			c := newCrew(t, nexar.SeedConfig{World: 2, Elastic: true}, nexar.Config{Transports: ways})
			a, b := c.join(nexar.Config{}), c.join(nexar.Config{})
			c.reaches(2)
			d := c.join(nexar.Config{})
			c.reaches(2, 3)
			e := c.join(nexar.Config{})
			c.reaches(2, 3, 4)
			<-b.joined
			if err := b.node.Leave(t.Context()); err != nil {
				t.Error(err)
			}
			c.reaches(2, 3, 4, 3)
			<-b.done
			if b.err != nil {
				t.Error(b.err)
			}
			c.ends(a, d, e)
		})
	}
}

// TestManyHaveLeft: the current nodes share memory, however many nodes have left the
// world.
func TestManyHaveLeft(t *testing.T) {
	var mu sync.Mutex
	var lacking []string
	log := slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
		if line := string(p); strings.Contains(line, "without shared memory") {
			mu.Lock()
			defer mu.Unlock()
			lacking = append(lacking, line)
		}
		return len(p), nil
	}), nil))
	c := newCrew(t, nexar.SeedConfig{World: 2, Elastic: true}, nexar.Config{Log: log})
	hands, sizes := []*worker{c.join(nexar.Config{}), c.join(nexar.Config{})}, []int{2}
	c.reaches(sizes...)
	for range 40 {
		guest := c.join(nexar.Config{})
		sizes = append(sizes, 3)
		c.reaches(sizes...)
		<-guest.joined
		if err := guest.node.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, 2)
		c.reaches(sizes...)
	}
	c.ends(hands...)
	mu.Lock()
	defer mu.Unlock()
	if len(lacking) > 0 {
		t.Errorf("%d times ranks have found no memory, first: %s", len(lacking), lacking[0])
	}
}

// TestSpare: a spare waits, whatever checkpoints the others reach, and replaces a node
// that dies.
func TestSpare(t *testing.T) {
	waits := make(chan struct{})
	var once sync.Once
	log := slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
		if line := string(p); strings.Contains(line, "has links to the world") && strings.Contains(line, "spare=true") {
			once.Do(func() { close(waits) })
		}
		return len(p), nil
	}), nil))
	c := newCrew(t, nexar.SeedConfig{World: 3, Log: log}, nexar.Config{})
	hands := []*worker{c.join(nexar.Config{}), c.join(nexar.Config{}), c.join(nexar.Config{})}
	c.reaches(3)
	spare := c.join(nexar.Config{Spare: true})
	select {
	case <-waits:
	case <-time.After(worldtest.Patience):
		t.Fatal("the spare is not ready")
	}
	time.Sleep(50 * time.Millisecond) // time in which it must not be admitted
	c.reaches(3)
	var last *worker
	for _, h := range hands {
		<-h.joined
		if h.node.World().Rank() == 2 {
			last = h
		}
	}
	if err := last.node.Close(); err != nil {
		t.Error(err)
	}
	c.reaches(3, 3)
	<-last.done
	hands = slices.DeleteFunc(hands, func(h *worker) bool { return h == last })
	c.ends(append(hands, spare)...)
}

// TestJoinFull: a node waits while an elastic world has no room for it, and its log says
// so.
func TestJoinFull(t *testing.T) {
	c := newCrew(t, nexar.SeedConfig{World: 2, Elastic: true, ElasticMax: 2}, nexar.Config{})
	a, b := c.join(nexar.Config{}), c.join(nexar.Config{})
	c.reaches(2)
	// The refusal may take some time.
	for wait := 150 * time.Millisecond; ; wait *= 3 {
		d := c.join(nexar.Config{FormTimeout: wait})
		<-d.done
		if d.err == nil || wait > worldtest.Patience {
			t.Fatalf("got error %v, want that the world is full", d.err)
		}
		if strings.Contains(d.err.Error(), "room") {
			break
		}
		t.Logf("after %v: %v", wait, d.err)
	}
	c.ends(a, b)
}

// TestRigid: a world that is not elastic admits no further node.
func TestRigid(t *testing.T) {
	c := newCrew(t, nexar.SeedConfig{World: 1}, nexar.Config{})
	a := c.join(nexar.Config{})
	c.reaches(1)
	d := c.join(nexar.Config{})
	<-d.done
	if d.err == nil || !strings.Contains(d.err.Error(), "not elastic") {
		t.Errorf("got error %v, want that the world is not elastic", d.err)
	}
	c.ends(a)
}
