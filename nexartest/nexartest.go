// Package nexartest runs tests on a cluster in the process of the test, as
// net/http/httptest runs them on a server.
//
// Most people call Run, which calls a function once for each rank, with the
// communicator of that rank:
//
//	func TestMean(t *testing.T) {
//		nexartest.Run(t, 4, func(t *testing.T, c *nexar.Comm) {
//			x := []float64{float64(c.Rank())}
//			if err := nexar.AllReduce(t.Context(), c, x, nexar.Avg); err != nil {
//				t.Fatal(err)
//			}
//			if x[0] != 1.5 {
//				t.Errorf("mean = %v, want 1.5", x[0])
//			}
//		})
//	}
//
// Every rank is a subtest of its own, named "rank=0" and so on. All of them run at the
// same time, on any number of processors. A rank may call all methods of its t except
// Parallel, which the test that calls Run may call.
//
// A test does not hang because a rank has failed. When the function of a rank returns,
// the communicator of the rank is closed, as if its process had ended, and ranks that
// wait for it get an error. When a rank has failed, and others still run after a while,
// their communicators are closed too, so that their operations end. A panic fails its
// rank, with the stack, and the others continue as after any failure. After the timeout
// the test shows the stacks of the ranks that have not returned.
//
// Run returns when all ranks have returned and everything is closed.
package nexartest

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
)

const (
	// defaultTimeout is longer than the default timeouts of collectives, as
	// those tell more.
	defaultTimeout = time.Minute

	// deadlineMargin is how long before the deadline of all tests the ranks
	// are stopped, so that their stacks are still shown.
	deadlineMargin = 10 * time.Second

	// defaultGrace is how long ranks may run on after another has failed, and
	// again after they have been stopped.
	defaultGrace = 5 * time.Second
)

// A Cluster has the settings of a test on ranks in this process. Run uses the zero
// value.
type Cluster struct {
	// Config is that of all ranks; see nexar.Local.
	Config nexar.Config

	// Timeout is how long the ranks may take. The default is a minute, or
	// until shortly before the deadline of go test, if that is earlier.
	Timeout time.Duration

	// Grace is how long ranks may run on after another has failed, before
	// their communicators are closed. The default is 5 seconds.
	Grace time.Duration
}

// Run calls f for each of n ranks, all at the same time, and returns when all
// have returned. f gets a test of its own and the communicator of the rank,
// which is closed when it returns.
func Run(t *testing.T, n int, f func(t *testing.T, c *nexar.Comm)) {
	t.Helper()
	Cluster{}.Run(t, n, f)
}

// Run is the function Run with the settings of the cluster.
func (cl Cluster) Run(t *testing.T, n int, f func(t *testing.T, c *nexar.Comm)) {
	t.Helper()
	comms, err := nexar.Local(t.Context(), n, cl.Config)
	if err != nil {
		t.Fatalf("nexartest: %v", err)
	}
	if cl.Timeout <= 0 {
		cl.Timeout = defaultTimeout
		if end, ok := t.Deadline(); ok {
			cl.Timeout = min(cl.Timeout, max(time.Until(end)-deadlineMargin, time.Until(end)/2))
		}
	}
	if cl.Grace <= 0 {
		cl.Grace = defaultGrace
	}
	r := &run{cluster: cl, t: t, comms: comms, ended: make(chan ending, n)}
	for rank := range comms {
		r.running = append(r.running, rank)
		go r.rank(rank, f)
	}
	r.wait()
}

// A run is a test that runs.
type run struct {
	cluster Cluster
	t       *testing.T
	comms   []*nexar.Comm
	running []int // ranks
	ended   chan ending
	closing sync.WaitGroup
}

// An ending says how a rank has ended.
type ending struct {
	rank     int
	began    bool
	returned bool
	passed   bool
}

// rank runs f as a subtest. Subtests that call t.Parallel would take turns
// when there are more of them than processors; those that are started by
// goroutines all run at once, which package testing allows.
func (r *run) rank(rank int, f func(t *testing.T, c *nexar.Comm)) {
	var began, returned atomic.Bool
	e := ending{rank: rank}
	// If the function fails the outer test with FailNow, by mistake, then
	// this goroutine does not come back from t.Run.
	defer func() {
		e.began, e.returned = began.Load(), returned.Load()
		r.ended <- e
	}()
	e.passed = r.t.Run(fmt.Sprintf("rank=%d", rank), func(t *testing.T) {
		began.Store(true)
		defer returned.Store(true)
		defer func() {
			if p := recover(); p != nil {
				t.Errorf("rank %d panicked: %v\n\n%s", rank, p, debug.Stack())
			}
		}()
		labelled(rank, func() { f(t, r.comms[rank]) })
	})
}

// wait waits for all ranks. It closes the communicators of those that still run after
// the cluster's timeout, or a while after a rank has failed. If that does not end them
// either it panics: package testing cannot end a test while its subtests run.
func (r *run) wait() {
	r.t.Helper()
	limit := time.NewTimer(r.cluster.Timeout)
	defer limit.Stop()
	failed, stopped, left := false, false, false
	for len(r.running) > 0 {
		select {
		case e := <-r.ended:
			r.running = slices.DeleteFunc(r.running, func(rank int) bool { return rank == e.rank })
			r.close(e.rank)
			left = left || !e.began
			if e.began && !e.returned {
				r.t.Errorf("nexartest: rank %d has called t.Parallel", e.rank)
				e.passed = false
			}
			if !(e.passed && e.began) && !failed && !stopped {
				failed = true
				limit.Reset(min(r.cluster.Grace, r.cluster.Timeout))
			}
		case <-limit.C:
			text := fmt.Sprintf("nexartest: %s not returned\n\n%s", have(r.running), stacks(r.running))
			if stopped {
				panic(text)
			}
			r.t.Error(text)
			stopped = true
			for _, rank := range r.running {
				r.close(rank)
			}
			limit.Reset(r.cluster.Grace)
		}
	}
	r.closing.Wait()
	if left && !r.t.Failed() {
		r.t.Error("nexartest: not all ranks have run, because of the flags -run or -skip of go test")
	}
}

// close closes the communicator of a rank, once; see nexar.Comm.
func (r *run) close(rank int) {
	r.closing.Go(func() {
		if err := r.comms[rank].Close(); err != nil {
			r.t.Errorf("nexartest: closing rank %d: %v", rank, err)
		}
	})
}

// have is the beginning of a sentence about ranks.
func have(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d has", ranks[0])
	}
	return "ranks " + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(ranks)), ", "), "[]") + " have"
}
