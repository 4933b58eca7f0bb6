// Package nexartest runs tests on a cluster in the test process, as net/http/httptest does with a
// server.
//
// Most tests call [Run], which calls a function concurrently for each rank, with the communicator of
// that rank:
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
// Each rank is a subtest, named "rank=0" and so on. All run concurrently, on any number of
// processors. A rank may call all methods of its t except Parallel, which the test that calls Run
// may call.
//
// A failed rank does not make the test hang. When the function of a rank returns, its communicator is
// closed, as if its process had ended, and ranks that wait for it get an error. If other ranks still
// run some time after a failure ([Cluster].Grace), their communicators are closed as well, which ends
// their operations. A panic fails its rank, with the stack. After [Cluster].Timeout the test fails
// with the stacks of the ranks that have not returned.
//
// Run returns when all ranks have returned and all communicators are closed.
//
// Tests of recovery and growth call [New], which forms a [World] with a seed over a simulated network.
// Methods of World kill, stop, cut off and add nodes.
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
	// defaultTimeout is longer than the default DeadlockTimeout, whose error has the calls of the
	// ranks.
	defaultTimeout = 2 * time.Minute

	// deadlineMargin is the time before the deadline of go test at which ranks are stopped, to
	// report their stacks.
	deadlineMargin = 2 * defaultGrace

	// defaultGrace is the time for ranks to return after another has failed, and again after
	// their communicators are closed.
	defaultGrace = 5 * time.Second
)

// A Cluster has the settings of a test on ranks in this process. The zero value has the defaults,
// which the function [Run] uses.
type Cluster struct {
	// Config is the configuration of all ranks. Run passes it to [nexar.Local], and New to [nexar.Join].
	Config nexar.Config

	// Timeout is the time for all ranks to return. The default is two minutes, or the time until
	// shortly before the deadline of go test, if that is less.
	Timeout time.Duration

	// Grace is the time for ranks to return after another has failed, before their
	// communicators are closed. The default is 5 seconds.
	Grace time.Duration

	// Link has the settings of all links of [Cluster.New] that [World.SetLink] does not change. It has
	// no effect on Run.
	Link Link

	// Random determines the losses and delays of links, and World.Rand. The default is 1. It has no
	// effect on Run.
	Random uint64
}

// Run calls f concurrently for each of n ranks, and returns when all have returned. f gets the
// subtest and the communicator of its rank, which is closed when f returns.
func Run(t *testing.T, n int, f func(t *testing.T, c *nexar.Comm)) {
	t.Helper()
	Cluster{}.Run(t, n, f)
}

// Run is like the function [Run], with the settings of the cluster.
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

// A run is a test in progress.
type run struct {
	cluster Cluster
	t       *testing.T
	comms   []*nexar.Comm
	running []int // ranks
	ended   chan ending
	closing sync.WaitGroup
}

// An ending is the result of a rank.
type ending struct {
	rank     int
	began    bool
	returned bool
	passed   bool
}

// rank runs f as a subtest. It runs on a goroutine of its own, since parallel subtests take turns if
// there are more than processors.
func (r *run) rank(rank int, f func(t *testing.T, c *nexar.Comm)) {
	var began, returned atomic.Bool
	e := ending{rank: rank}
	// If f calls FailNow of the outer test by mistake, t.Run does not return.
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

// wait waits for all ranks. It closes the communicators of ranks that still run after the timeout,
// or after the grace period that follows a failure. If they do not return then, it panics: package
// testing cannot end a test while its subtests run.
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
				r.t.Errorf("nexartest: rank %d called t.Parallel; call it in the test that calls Run", e.rank)
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
		r.t.Error("nexartest: not all ranks ran: -run or -skip of go test excludes some; select whole tests")
	}
}

// close closes the communicator of a rank. Further calls have no effect.
func (r *run) close(rank int) {
	r.closing.Go(func() {
		if err := r.comms[rank].Close(); err != nil {
			r.t.Errorf("nexartest: closing rank %d: %v", rank, err)
		}
	})
}

// have returns "rank 1 has" or "ranks 1, 2 have".
func have(ranks []int) string {
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d has", ranks[0])
	}
	return "ranks " + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(ranks)), ", "), "[]") + " have"
}
