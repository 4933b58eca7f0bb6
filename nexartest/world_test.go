package nexartest_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/nexartest"
)

// A job is the program of the nodes of a World: an all-reduce and a reconfiguration after each pause until it is
// stopped.
type job struct {
	pause    time.Duration
	mu       sync.Mutex
	stopping bool
	sums     map[uint64]int64          // the last sum of each epoch
	views    map[uint64][]nexar.NodeID // by epoch
	errs     map[nexar.NodeID][]error  // of operations
	wrong    []error
}

func newJob() *job {
	return &job{pause: 100 * time.Millisecond, sums: make(map[uint64]int64), views: make(map[uint64][]nexar.NodeID), errs: make(map[nexar.NodeID][]error)}
}

// run is the program of a node. Its error is that of Epochs.
func (j *job) run(ctx context.Context, n *nexar.Node) error {
	for c, err := range n.Epochs(ctx) {
		if err != nil {
			return err
		}
		done, err := j.work(ctx, n, c)
		if done || err != nil && c.Err() == nil {
			return err
		}
		if err != nil {
			j.mu.Lock()
			j.errs[n.ID()] = append(j.errs[n.ID()], err)
			j.mu.Unlock()
		}
	}
	return nil
}

// work is the loop of a node in an epoch. It reports whether the job has stopped.
func (j *job) work(ctx context.Context, n *nexar.Node, c *nexar.Comm) (done bool, err error) {
	id := n.ID()
	view := make([]uint8, len(id)*c.Size())
	if err := nexar.AllGather(ctx, c, view, id[:]); err != nil {
		return false, err
	}
	j.enter(c.Epoch(), view)
	for {
		x := []int64{1, j.stop(false)}
		if err := nexar.AllReduce(ctx, c, x, nexar.Sum); err != nil {
			return false, err
		}
		j.mu.Lock()
		j.sums[c.Epoch()] = x[0]
		j.mu.Unlock()
		if x[1] > 0 {
			return true, nil
		}
		if changed, err := n.Reconfigure(ctx); changed || err != nil {
			return false, err
		}
		time.Sleep(j.pause)
	}
}

// enter checks that all nodes of an epoch have the same view.
func (j *job) enter(epoch uint64, ids []uint8) {
	var view []nexar.NodeID
	for id := range slices.Chunk(ids, len(nexar.NodeID{})) {
		view = append(view, nexar.NodeID(id))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if other := j.views[epoch]; other != nil && !slices.Equal(other, view) {
		j.wrong = append(j.wrong, fmt.Errorf("epoch %d: views %v and %v", epoch, other, view))
	}
	j.views[epoch] = view
}

// stop stops the job if now is set. It returns 1 if the job is stopped, else 0.
func (j *job) stop(now bool) int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stopping = j.stopping || now
	if j.stopping {
		return 1
	}
	return 0
}

// A result is the outcome of a job.
type result struct {
	views [][]int // the nodes of each epoch by rank
	errs  []error // of the nodes
	first []error // of the first operation that failed on each node; nil: none
}

// finish stops the job and returns its result. It checks that all nodes had the same views and that the
// last sum is the number of nodes.
func (j *job) finish(t *testing.T, w *nexartest.World) (r result) {
	t.Helper()
	j.stop(true)
	r.errs = w.Wait()
	numbers := make(map[nexar.NodeID]int)
	for i := range r.errs {
		if n := w.Node(i); n != nil {
			numbers[n.ID()] = i
			r.first = append(r.first, append(j.errs[n.ID()], nil)[0])
		}
	}
	var last uint64
	for _, epoch := range sorted(j.views) {
		var view []int
		for _, id := range j.views[epoch] {
			view = append(view, numbers[id])
		}
		r.views, last = append(r.views, view), epoch
	}
	if err := errors.Join(j.wrong...); err != nil {
		t.Error(err)
	}
	if got, want := j.sums[last], int64(len(j.views[last])); got != want {
		t.Errorf("the sum of the last epoch is %d, want %d", got, want)
	}
	return r
}

func sorted(views map[uint64][]nexar.NodeID) (epochs []uint64) {
	for epoch := range views {
		epochs = append(epochs, epoch)
	}
	slices.Sort(epochs)
	return epochs
}

// checkViews checks the views of all epochs.
func (r result) checkViews(t *testing.T, want ...[]int) {
	t.Helper()
	if !reflect.DeepEqual(r.views, want) {
		t.Errorf("views %v, want %v", r.views, want)
	}
}

// checkBlame checks that the first error of each of the nodes is the failure of a rank.
func (r result) checkBlame(t *testing.T, rank int, nodes ...int) {
	t.Helper()
	for _, i := range nodes {
		if p, ok := errors.AsType[*nexar.PeerError](r.first[i]); !ok || p.Rank != rank || p.Left || p.Suspects != nil {
			t.Errorf("node %d: %v, want the failure of rank %d alone", i, r.first[i], rank)
		}
		if r.errs[i] != nil {
			t.Errorf("node %d has ended with %v", i, r.errs[i])
		}
	}
}

// start starts a job on a world of four nodes, and lets it work for a second.
func start(t *testing.T) (*nexartest.World, *job) {
	t.Helper()
	w, j := nexartest.New(t, 4), newJob()
	w.Start(j.run)
	time.Sleep(time.Second)
	return w, j
}

func TestKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, j := start(t)
		w.Kill(2)
		time.Sleep(20 * time.Second)
		r := j.finish(t, w)
		r.checkViews(t, []int{0, 1, 2, 3}, []int{0, 1, 3})
		r.checkBlame(t, 2, 0, 1, 3)
		if !errors.Is(r.errs[2], nexartest.ErrKilled) {
			t.Errorf("node 2: %v, want ErrKilled", r.errs[2])
		}
	})
}

// TestStopBriefly: a stop shorter than the heartbeat timeout delays the others only.
func TestStopBriefly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, j := start(t)
		w.Stop(2)
		time.Sleep(3 * time.Second)
		w.Resume(2)
		time.Sleep(20 * time.Second)
		r := j.finish(t, w)
		r.checkViews(t, []int{0, 1, 2, 3})
		if err := errors.Join(append(r.first, r.errs...)...); err != nil {
			t.Error(err)
		}
	})
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, j := start(t)
		w.Stop(2)
		time.Sleep(20 * time.Second)
		w.Resume(2)
		time.Sleep(time.Minute)
		r := j.finish(t, w)
		r.checkViews(t, []int{0, 1, 2, 3}, []int{0, 1, 3})
		r.checkBlame(t, 2, 0, 1, 3)
		if !errors.Is(r.errs[2], nexar.ErrNoQuorum) {
			t.Errorf("node 2: %v, want ErrNoQuorum", r.errs[2])
		}
	})
}

func TestCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, j := start(t)
		w.CutOff(1)
		time.Sleep(20 * time.Second)
		w.Heal()
		time.Sleep(time.Minute)
		r := j.finish(t, w)
		r.checkViews(t, []int{0, 1, 2, 3}, []int{0, 2, 3})
		r.checkBlame(t, 1, 0, 2, 3)
		if !errors.Is(r.errs[1], nexar.ErrNoQuorum) {
			t.Errorf("node 1: %v, want ErrNoQuorum", r.errs[1])
		}
	})
}

func TestAdd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, j := start(t)
		if i := w.Add(); i != 4 {
			t.Errorf("Add = %d, want 4", i)
		}
		time.Sleep(20 * time.Second)
		r := j.finish(t, w)
		r.checkViews(t, []int{0, 1, 2, 3}, []int{0, 1, 2, 3, 4})
		if err := errors.Join(append(r.first, r.errs...)...); err != nil {
			t.Error(err)
		}
	})
}

// TestBrokenLink: when the link of two nodes is down, one of them is removed.
func TestBrokenLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, j := start(t)
		w.SetLink(0, 1, nexartest.Link{Down: true})
		time.Sleep(20 * time.Second)
		r := j.finish(t, w)
		if len(r.views) != 2 || len(r.views[1]) != 3 {
			t.Fatalf("views %v, want 4 nodes and then 3", r.views)
		}
		removed := 1
		if slices.Contains(r.views[1], 1) {
			removed = 0
		}
		for _, i := range []int{2, 3} {
			if p, ok := errors.AsType[*nexar.PeerError](r.first[i]); !ok || p.Rank > 1 || r.errs[i] != nil {
				t.Errorf("node %d: %v and %v, want the failure of rank 0 or 1", i, r.first[i], r.errs[i])
			}
		}
		if !errors.Is(r.errs[removed], nexar.ErrRemoved) {
			t.Errorf("node %d: %v, want ErrRemoved", removed, r.errs[removed])
		}
	})
}

// TestSlowLink: delay and loss make an all-reduce slower, and its result is still correct. The nodes
// have no program: the test uses them directly.
func TestSlowLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := nexartest.New(t, 2)
		w.SetLink(0, 1, nexartest.Link{Delay: 300 * time.Millisecond, Loss: 0.05})
		began := time.Now()
		var ranks sync.WaitGroup
		for i := range 2 {
			ranks.Go(func() {
				x := slices.Repeat([]int64{int64(i + 1)}, 10_000)
				if err := nexar.AllReduce(t.Context(), w.Node(i).World(), x, nexar.Sum); err != nil || x[9_999] != 3 {
					t.Errorf("node %d: sum %d, error %v, want 3", i, x[9_999], err)
				}
			})
		}
		ranks.Wait()
		if took := time.Since(began); took < 300*time.Millisecond {
			t.Errorf("the all-reduce took %v, less than the delay", took)
		}
	})
}

// TestReplay: with the same Cluster.Random, a test has the same faults and the same views.
func TestReplay(t *testing.T) {
	require.NoRace(t, "it repeats other tests to compare their results")
	run := func(random uint64) (views [][]int) {
		synctest.Test(t, func(t *testing.T) {
			w := nexartest.Cluster{Random: random, Link: nexartest.Link{Delay: time.Millisecond, Loss: 0.01}}.New(t, 4)
			j := newJob()
			w.Start(j.run)
			time.Sleep(time.Second)
			w.Kill(w.Rand.IntN(4))
			time.Sleep(20 * time.Second)
			w.Add()
			time.Sleep(20 * time.Second)
			views = j.finish(t, w).views
		})
		return views
	}
	first := run(7)
	if len(first) != 3 || len(first[2]) != 4 {
		t.Errorf("views %v, want 4 nodes, 3 and again 4", first)
	}
	if again := run(7); !reflect.DeepEqual(again, first) {
		t.Errorf("views %v, and then %v", first, again)
	}
}

// TestConcurrentClose: several goroutines close a node and its communicator, while the goodbye waits for a node that does
// not answer. Time goes on.
func TestConcurrentClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := nexartest.New(t, 2)
		w.Stop(1)
		began, node := time.Now(), w.Node(0)
		// The goodbye begins when the stopped node has data to read.
		if err := nexar.Send(t.Context(), node.World(), []int32{1}, 1, 1); err != nil {
			t.Fatal(err)
		}
		var closing sync.WaitGroup
		for range 3 {
			closing.Go(func() {
				if err := node.Close(); err != nil {
					t.Error(err)
				}
			})
			closing.Go(func() { node.World().Close() })
		}
		closing.Wait()
		if took := time.Since(began); took == 0 || took > time.Minute {
			t.Errorf("the closes took %v, want the time that a goodbye waits", took)
		}
	})
}
