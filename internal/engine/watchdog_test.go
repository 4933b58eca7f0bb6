package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/sim"
)

// TestWatchSleepsWhenIdle: without operations the watchdog sleeps, and it watches an operation
// that begins afterwards.
func TestWatchSleepsWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, overSim(sim.Config{}), Config{})
		e := w.engines[0]
		parked := func() bool { synctest.Wait(); return e.resting() > watchTick }
		if parked() {
			t.Error("the watchdog sleeps at once")
		}
		time.Sleep((watchIdle + 1) * watchTick)
		for range 3 {
			if !parked() {
				t.Fatal("the watchdog does not sleep")
			}
			time.Sleep(time.Hour)
			if !parked() {
				t.Error("the watchdog has woken up without an operation")
			}
			work := w.work(0, pairwise, vector(0, 10))
			work.Timeout = time.Second
			c := e.NewComm(uint64(time.Now().UnixNano()), 0, w.links[0])
			op, err := c.start(work)
			if err != nil {
				t.Fatal(err)
			}
			if parked() {
				t.Error("the watchdog sleeps during an operation")
			}
			began := time.Now()
			err = op.Wait(t.Context())
			if d := time.Since(began); !isType[*TimeoutError](err) || d > time.Second+3*watchTick {
				t.Errorf("after %v: %v, want a TimeoutError after a second", d, err)
			}
			time.Sleep(time.Minute)
		}
	})
}

// TestWatchDozes: an operation without progress for long is checked less often, and times out on
// time. An operation that begins meanwhile is watched.
func TestWatchDozes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, overSim(sim.Config{}), Config{})
		e := w.engines[0]
		start := func(id uint64, limit time.Duration) (*Op, time.Time) {
			work := w.work(0, pairwise, vector(0, 10))
			work.Timeout = limit
			op, err := e.NewComm(id, 0, w.links[0]).start(work)
			if err != nil {
				t.Fatal(err)
			}
			return op, time.Now()
		}
		timesOut := func(op *Op, began time.Time, limit time.Duration) {
			err := op.Wait(t.Context())
			if d := time.Since(began); !isType[*TimeoutError](err) || d < limit || d > limit+3*watchTick {
				t.Errorf("after %v: %v, want a TimeoutError after %v", d, err, limit)
			}
		}
		const long = dozeAfter + 7*dozeMax + dozeMax/3
		op, began := start(1, long)
		time.Sleep(dozeAfter + dozeMax/2)
		if synctest.Wait(); e.resting() <= watchTick {
			t.Error("the watchdog does not doze")
		}
		other, later := start(2, 10*watchTick)
		timesOut(other, later, 10*watchTick)
		timesOut(op, began, long)
	})
}

// TestStoppedProcess: the time during a stop of the process is not charged to other ranks.
// Checks that are always late do not defer a timeout forever.
func TestStoppedProcess(t *testing.T) {
	for name, pause := range map[string]time.Duration{"once": tickCreditMax, "again and again": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const checks = 10
				w := newWorld(t, 2, overSim(sim.Config{}), Config{})
				work := w.work(0, pairwise, vector(0, 10))
				work.Timeout = checks * tickCreditMax
				c := w.engines[0].NewComm(1, 0, w.links[0])
				op, err := c.start(work)
				if err != nil {
					t.Fatal(err)
				}
				now := time.Now()
				c.watch(now, watchTick, nil)
				look := func(ago time.Duration) {
					now = now.Add(ago)
					c.watch(now, ago, nil)
				}
				look(time.Hour)
				for range checks - 2 {
					look(pause)
				}
				if c.Err() != nil {
					t.Errorf("the process was stopped for most of the time: %v", op.Wait(t.Context()))
				}
				look(pause)
				if err := op.Wait(t.Context()); !isType[*TimeoutError](err) {
					t.Errorf("after %v in which the process ran: %v, want a TimeoutError", work.Timeout, err)
				}
			})
		})
	}
}

// TestWatchDoesNotAllocate: a check of an operation that is not late allocates nothing. The
// watchdog runs beside operations that allocate nothing.
func TestWatchDoesNotAllocate(t *testing.T) {
	w := newWorld(t, 2, overMem, Config{}, 1)
	op, err := w.comms[0].start(w.work(0, pairwise, vector(0, 10)))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	var list []*Comm
	occupied := make(map[*link.Link]bool)
	check := func() {
		list = w.engines[0].appendComms(list[:0])
		w.engines[0].occupy(list, occupied)
		for _, c := range list {
			c.watch(now, 0, occupied)
		}
	}
	if n := testing.AllocsPerRun(1000, check); n > 0 {
		t.Errorf("%v allocations for each check, want none", n)
	}
	w.comms[0].Close()
	if err := op.Wait(t.Context()); err != ErrClosed {
		t.Errorf("error %v, want %v", err, ErrClosed)
	}
}

// TestNextCheck: the next check of an operation is when it may time out or has to query.
func TestNextCheck(t *testing.T) {
	now := time.Now()
	for _, test := range []struct {
		ranks          int
		still, timeout time.Duration
		search         search
		want           time.Duration
	}{
		{2, dozeAfter / 2, 0, search{}, watchTick},
		{2, 2 * dozeAfter, 0, search{}, dozeMax},
		{2, 2 * dozeAfter, 2*dozeAfter + watchTick/2, search{}, watchTick / 2},
		{2, 2 * dozeAfter, 0, search{ask: []int{1}, next: queriesPause, stalled: queriesPause / 2}, queriesPause / 2},
		{2, 2 * dozeAfter, 0, search{next: queriesPause, stalled: queriesPause / 2}, dozeMax},
		{queryFew, dozeAfter / 2, 0, search{}, watchTick},
		{2 * queryFew, dozeAfter / 2, 0, search{}, dozeMax},
		{8 * queryFew, dozeAfter/8 - 1, 0, search{}, 8 * watchTick},
		{8 * queryFew, dozeAfter / 16, 2*watchTick + dozeAfter/16, search{}, 2 * watchTick},
		{8 * queryFew, dozeAfter / 8, watchTick + dozeAfter/8, search{}, watchTick},
		{1 << 20, dozeAfter / 8, 0, search{}, dozeMax},
	} {
		op := &Op{comm: &Comm{linkTo: make([]*link.Link, test.ranks)}, progressAt: now.Add(-test.still), search: test.search}
		op.work.Timeout = test.timeout
		if got := op.nextCheckLocked(now); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

// idleExecution waits for no rank that it could name.
type idleExecution struct{ exec.Execution }

func (idleExecution) WaitsForLocked() []int { return nil }

// TestRoundsOfManyRanks: operations of many ranks omit some rounds of queries, and the later rounds begin no later than
// those of few ranks.
func TestRoundsOfManyRanks(t *testing.T) {
	const ms = time.Millisecond
	for ranks, want := range map[int]map[int]time.Duration{
		2:             {1: 40 * ms, 2: 120 * ms, 3: 280 * ms, 4: 600 * ms, 5: 1240 * ms},
		queryFew:      {1: 40 * ms, 2: 120 * ms, 3: 280 * ms, 4: 600 * ms, 5: 1240 * ms},
		2 * queryFew:  {1: 80 * ms, 3: 240 * ms, 4: 560 * ms, 5: 1200 * ms},
		8 * queryFew:  {1: 320 * ms, 5: 960 * ms},
		64 * queryFew: {1: 320 * ms, 5: 960 * ms},
	} {
		pending := link.NewCommon(nil, link.Config{}, nil).NewPending(0) // It is not queried in these rounds.
		c := &Comm{linkTo: slices.Repeat([]*link.Link{pending}, ranks), answers: make(map[int]answer)}
		op := &Op{comm: c, exec: idleExecution{}}
		op.search.next = queryAfter << skippedRounds(ranks)
		op.search.pause = op.search.next
		got, now := make(map[int]time.Duration), time.Duration(0)
		for op.search.rounds < 5 {
			now += op.search.next
			op.queryLocked(new(effects), time.Time{}.Add(now))
			got[op.search.rounds] = now
		}
		if !maps.Equal(got, want) {
			t.Errorf("%d ranks: rounds begin at %v, want %v", ranks, got, want)
		}
	}
}

// TestTimeoutNamesMissingRanks: the error of the rank that times out first names the ranks that
// have not made the call, with their last call.
func TestTimeoutNamesMissingRanks(t *testing.T) {
	for name, missing := range map[string][]int{"one": {2}, "two": {1, 3}, "all others": {0, 1, 3}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 4
				w := newWorld(t, n, overSim(sim.Config{Delay: time.Millisecond}), Config{})
				for range 2 {
					noError(t, w.on(func(rank int, c *Comm) error { return w.run(t.Context(), rank, ring, vector(rank, 100)) }))
				}
				errs := w.on(func(rank int, c *Comm) error {
					if slices.Contains(missing, rank) {
						return nil
					}
					work := w.work(rank, choice{plan.AllReduce, "recursive-doubling", 1, 0}, vector(rank, 100))
					work.Timeout = 2 * time.Second
					op, err := c.start(work)
					if err != nil {
						return err
					}
					return op.Wait(t.Context())
				})
				checkTimeouts(t, errs, missing)
			})
		})
	}
}

func checkTimeouts(t *testing.T, errs []error, missing []int) {
	t.Helper()
	timeouts := 0
	var want []string
	for _, rank := range missing {
		want = append(want, fmt.Sprint("rank ", rank))
	}
	for rank, err := range errs {
		if slices.Contains(missing, rank) {
			continue
		}
		e, ok := errors.AsType[*TimeoutError](err)
		if !ok {
			if !isType[*RevokedError](err) {
				t.Errorf("rank %d: %v, want a TimeoutError or a RevokedError", rank, err)
			}
			continue
		}
		timeouts++
		var named []string
		for _, w := range e.Waiting {
			named = append(named, w.Rank.String())
			if !w.Known || w.Active || w.Last.Seq != 2 || w.Last.Kind != uint8(plan.AllReduce) {
				t.Errorf("rank %d: %v is %+v, want the second call as its last", rank, w.Rank, w)
			}
		}
		if !slices.Equal(named, want) {
			t.Errorf("rank %d waits for %v, want %v", rank, named, missing)
		}
	}
	if timeouts == 0 {
		t.Error("no rank has timed out")
	}
}

// TestQueriesAreLimited: an operation without progress queries all of many ranks, but not all at a
// time: if all ranks did, the queries would flood the network.
func TestQueriesAreLimited(t *testing.T) {
	const n = 3*queriesAtOnce + 2
	w, peers, _ := newFakePeers(t, n)
	w.comms[0] = w.engines[0].NewComm(commID, 0, w.links[0])
	began := time.Now()
	if _, err := w.comms[0].start(w.workOf(choice{plan.AllReduce, "direct", 1, 0}, vector(0, 10))); err != nil {
		t.Fatal(err)
	}
	asked, total := make([]int, n), 0
	until(t, "two queries of every rank", func() bool {
		for _, p := range peers[1:] {
			for len(p.in) > 0 {
				if h := <-p.in; h.kind == "query" {
					asked[p.rank]++
					total++
				}
			}
		}
		if most := queriesAtOnce * (1 + int(time.Since(began)/queriesPause)); total > most {
			t.Fatalf("%d queries within %v, want at most %d", total, time.Since(began), most)
		}
		return slices.Min(asked[1:]) >= 2
	})
}

// TestSilentPeerIsNamed: the error names a rank that does not answer.
func TestSilentPeerIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var network *sim.Network
		w := newWorld(t, 3, func(t testing.TB, n int) []transport.Transport {
			network = sim.New(sim.Config{})
			return hosts(t, network, n)
		}, Config{})
		network.Partition("rank1")
		errs := w.on(func(rank int, c *Comm) error {
			work := w.work(rank, pairwise, vector(rank, 100))
			work.Timeout = time.Second
			op, err := c.start(work)
			if err != nil {
				return err
			}
			return op.Wait(t.Context())
		})
		e, ok := errors.AsType[*TimeoutError](errs[0])
		if r, revoked := errors.AsType[*RevokedError](errs[0]); !ok && (!revoked || !isRank(r.Rank, 2)) {
			t.Fatalf("rank 0: %v, want a TimeoutError", errs[0])
		}
		if ok && (len(e.Waiting) != 1 || !isRank(e.Waiting[0].Rank, 1) || e.Waiting[0].Known) {
			t.Errorf("rank 0 waits for %v, want rank 1, unheard of", e.Waiting)
		}
		network.Heal()
	})
}

// TestUnresponsivePeerIsNamed: the error names a rank that has stopped answering, beside the rank that all
// wait for.
func TestUnresponsivePeerIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const frozen, missing, limit = 1, 3, 10 * time.Second
		var network *sim.Network
		w := newWorld(t, 4, func(t testing.TB, n int) []transport.Transport {
			network = sim.New(sim.Config{})
			return hosts(t, network, n)
		}, Config{})
		time.AfterFunc(limit/3, func() { network.Partition("rank1") })
		errs := w.on(func(rank int, c *Comm) error {
			if rank == missing {
				return nil
			}
			work := w.work(rank, choice{plan.AllReduce, "direct", 1, 0}, vector(rank, 100))
			if work.Timeout = limit; rank == frozen {
				work.Timeout = limit + time.Second
			}
			op, err := c.start(work)
			if err != nil {
				return err
			}
			return op.Wait(t.Context())
		})
		e, ok := errors.AsType[*TimeoutError](errs[0])
		if r, revoked := errors.AsType[*RevokedError](errs[0]); !ok && revoked && isRank(r.Rank, 2) {
			e, ok = errors.AsType[*TimeoutError](errs[2])
		}
		if !ok {
			t.Fatalf("rank 0: %v, rank 2: %v, want a TimeoutError", errs[0], errs[2])
		}
		if len(e.Waiting) != 2 || !isRank(e.Waiting[0].Rank, frozen) || !e.Waiting[0].Unresponsive || !e.Waiting[0].Active || !isRank(e.Waiting[1].Rank, missing) || e.Waiting[1].Unresponsive {
			t.Errorf("got %v, want that rank 1 is unresponsive and rank 3 has not made the call", e)
		}
		t.Log(e)
		network.Heal()
	})
}

// TestProgressIsNoTimeout: a slow operation that makes progress does not time out.
func TestProgressIsNoTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, overSim(sim.Config{Rate: 1 << 20}), Config{})
		noError(t, w.on(func(rank int, c *Comm) error {
			data := vector(rank, 4<<20)
			work := w.work(rank, ring, data)
			work.Timeout = 2500 * time.Millisecond
			op, err := c.start(work)
			if err == nil {
				err = op.Wait(t.Context())
			}
			if err != nil {
				return err
			}
			return checkSum(data, 2)
		}))
	})
}

// TestTimeoutOfSeveralOperations: the error names only the rank that has not made the calls, even if
// several operations wait for it and query the others. Of operations that time out together,
// the error has the first.
func TestTimeoutOfSeveralOperations(t *testing.T) {
	for name, test := range map[string]struct {
		gap      time.Duration
		timeouts []time.Duration
		late     uint64
	}{
		"at once":                           {0, []time.Duration{2 * time.Second, 2 * time.Second, 2 * time.Second}, 3},
		"one after the other":               {100 * time.Millisecond, []time.Duration{time.Second, time.Second}, 3},
		"the last has the shortest timeout": {30 * time.Millisecond, []time.Duration{time.Minute, time.Minute, time.Second}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const missing = 2
				w := newWorld(t, 4, overSim(sim.Config{Delay: time.Millisecond}), Config{})
				for range 2 {
					noError(t, w.on(func(rank int, c *Comm) error { return w.run(t.Context(), rank, ring, vector(rank, 100)) }))
				}
				errs := w.on(func(rank int, c *Comm) error {
					if rank == missing {
						return nil
					}
					return w.several(t, rank, test.gap, test.timeouts)
				})
				checkTimeouts(t, errs, []int{missing})
				for rank, err := range errs {
					if e, ok := errors.AsType[*TimeoutError](err); ok && e.Call.Seq != test.late {
						t.Errorf("rank %d: the error has collective %d, want %d", rank, e.Call.Seq, test.late)
					}
				}
			})
		})
	}
}

// several begins all-reduces on a rank, with a gap between two, and returns the error of the
// first.
func (w *world) several(t *testing.T, rank int, gap time.Duration, timeouts []time.Duration) error {
	var ops []*Op
	for i, timeout := range timeouts {
		if i > 0 {
			time.Sleep(gap)
		}
		work := w.work(rank, choice{plan.AllReduce, "direct", 1, 0}, vector(rank, 100))
		work.Timeout = timeout
		op, err := w.comms[rank].start(work)
		if err != nil {
			return err
		}
		ops = append(ops, op)
	}
	var first error
	for _, op := range ops {
		if err := op.Wait(t.Context()); first == nil {
			first = err
		}
	}
	return first
}

// TestLastAnswerCountsForAll: the answer of a rank to one operation counts for all operations that
// have queried it, in any order of the answers.
func TestLastAnswerCountsForAll(t *testing.T) {
	w, peers, _ := newFakePeers(t, 3)
	c := w.engines[0].NewComm(commID, 0, w.links[0])
	w.comms[0] = c
	var ops []*Op
	for _, timeout := range []time.Duration{time.Hour, 500 * time.Millisecond} {
		work := w.workOf(choice{plan.AllReduce, "direct", 1, 0}, vector(0, 10))
		work.Timeout = timeout
		op, err := c.start(work)
		if err != nil {
			t.Fatal(err)
		}
		ops = append(ops, op)
	}
	for _, seq := range []uint64{2, 1} {
		peers[1].link.Answer(wire.Where{Seq: seq, Active: true, Last: ops[2-seq].call.Call})
	}
	until(t, "the answers", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.answers[1].Last.Seq == 2
	})
	for i, op := range ops {
		e, ok := errors.AsType[*TimeoutError](op.Wait(t.Context()))
		if !ok || e.Call.Seq != 2 || len(e.Waiting) != 1 || !isRank(e.Waiting[0].Rank, 2) {
			t.Errorf("operation %d: %+v, want that the second waits for rank 2 alone", i+1, e)
		}
	}
}
