package engine

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/sim"
)

// TestWatchSleepsWhenIdle: without operations nothing wakes up, and one that
// begins afterwards is watched as ever.
func TestWatchSleepsWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, overSim(sim.Config{}), Config{})
		e := w.engines[0]
		parked := func() bool { synctest.Wait(); return e.parked.Load() }
		if parked() {
			t.Error("the watch sleeps at once")
		}
		time.Sleep((watchIdle + 1) * watchTick)
		for range 3 {
			if !parked() {
				t.Fatal("the watch does not sleep")
			}
			time.Sleep(time.Hour)
			if !parked() {
				t.Error("the watch has woken up for nothing")
			}
			work := w.work(0, pairwise, vector(0, 10))
			work.Timeout = time.Second
			c := e.NewComm(uint64(time.Now().UnixNano()), 0, w.links[0])
			op, err := c.start(work)
			if err != nil {
				t.Fatal(err)
			}
			if parked() {
				t.Error("the watch sleeps through an operation")
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

// TestWatchDozes: an operation that stands still for long is looked at less often, and
// times out when it has to; what begins meanwhile is watched as ever.
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
		if synctest.Wait(); !e.parked.Load() {
			t.Error("the watch does not doze")
		}
		other, later := start(2, 10*watchTick)
		timesOut(other, later, 10*watchTick)
		timesOut(op, began, long)
	})
}

// TestStoppedProcess: the time for which a process was stopped does not count against
// others; looks that are always late do not put a timeout off for ever.
func TestStoppedProcess(t *testing.T) {
	for name, pause := range map[string]time.Duration{"once": tickCreditMax, "again and again": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const looks = 10
				w := newWorld(t, 2, overSim(sim.Config{}), Config{})
				work := w.work(0, pairwise, vector(0, 10))
				work.Timeout = looks * tickCreditMax
				c := w.engines[0].NewComm(1, 0, w.links[0])
				op, err := c.start(work)
				if err != nil {
					t.Fatal(err)
				}
				now := time.Now()
				c.watch(now, watchTick)
				look := func(ago time.Duration) {
					now = now.Add(ago)
					c.watch(now, ago)
				}
				look(time.Hour)
				for range looks - 2 {
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
	check := func() {
		list = w.engines[0].appendComms(list[:0])
		for _, c := range list {
			c.watch(now, 0)
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

// TestRest: an operation rests until something is due.
func TestRest(t *testing.T) {
	now := time.Now()
	for _, test := range []struct {
		still, timeout time.Duration
		search         search
		want           time.Duration
	}{
		{dozeAfter / 2, 0, search{}, watchTick},
		{2 * dozeAfter, 0, search{}, dozeMax},
		{2 * dozeAfter, 2*dozeAfter + watchTick/2, search{}, watchTick / 2},
		{2 * dozeAfter, 0, search{ask: []int{1}, next: probesPause, stalled: probesPause / 2}, probesPause / 2},
		{2 * dozeAfter, 0, search{next: probesPause, stalled: probesPause / 2}, dozeMax},
	} {
		op := &Op{moved: now.Add(-test.still), search: test.search}
		op.work.Timeout = test.timeout
		if got := op.nextCheckLocked(now); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

// TestTimeoutNamesTheMissing: whoever has not come is named, with its last
// call, on the rank that times out first.
func TestTimeoutNamesTheMissing(t *testing.T) {
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
	for rank, err := range errs {
		if slices.Contains(missing, rank) {
			continue
		}
		e, ok := errors.AsType[*TimeoutError](err)
		if !ok {
			if !isType[*RevokedError](err) {
				t.Errorf("rank %d: %v, want a TimeoutError or the word of one", rank, err)
			}
			continue
		}
		timeouts++
		var named []int
		for _, w := range e.Waiting {
			named = append(named, w.Rank)
			if !w.Known || w.Active || w.Last.Seq != 2 || w.Last.Kind != uint8(plan.AllReduce) {
				t.Errorf("rank %d: rank %d is %+v, want that its last call was the second", rank, w.Rank, w)
			}
		}
		if !slices.Equal(named, missing) {
			t.Errorf("rank %d waits for %v, want %v", rank, named, missing)
		}
	}
	if timeouts == 0 {
		t.Error("no rank has timed out")
	}
}

// TestManyAreAskedInTurn: whoever stands still asks all of many ranks where they
// are, but not all at a time: that would be a flood where all stand still.
func TestManyAreAskedInTurn(t *testing.T) {
	const n = 3*probesAtOnce + 2
	w, puppets, _ := onStage(t, n)
	w.comms[0] = w.engines[0].NewComm(commID, 0, w.links[0])
	began := time.Now()
	if _, err := w.comms[0].start(w.workOf(choice{plan.AllReduce, "direct", 1, 0}, vector(0, 10))); err != nil {
		t.Fatal(err)
	}
	asked, total := make([]int, n), 0
	until(t, "everyone is asked twice", func() bool {
		for _, p := range puppets[1:] {
			for len(p.in) > 0 {
				if h := <-p.in; h.kind == "probe" {
					asked[p.rank]++
					total++
				}
			}
		}
		if most := probesAtOnce * (1 + int(time.Since(began)/probesPause)); total > most {
			t.Fatalf("%d ranks are asked within %v, want at most %d", total, time.Since(began), most)
		}
		return slices.Min(asked[1:]) >= 2
	})
}

// TestSilentPeerIsNamed: one that does not even answer is named, too.
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
		if r, revoked := errors.AsType[*RevokedError](errs[0]); !ok && (!revoked || r.Rank != 2) {
			t.Fatalf("rank 0: %v, want a TimeoutError", errs[0])
		}
		if ok && (len(e.Waiting) != 1 || e.Waiting[0].Rank != 1 || e.Waiting[0].Known) {
			t.Errorf("rank 0 waits for %v, want rank 1, unheard of", e.Waiting)
		}
		network.Heal()
	})
}

// TestMutePeerIsNamed: one that has answered, and then does not any more, is named
// beside the one that all wait for.
func TestMutePeerIsNamed(t *testing.T) {
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
		if r, revoked := errors.AsType[*RevokedError](errs[0]); !ok && revoked && r.Rank == 2 {
			e, ok = errors.AsType[*TimeoutError](errs[2])
		}
		if !ok {
			t.Fatalf("rank 0: %v, rank 2: %v, want a TimeoutError", errs[0], errs[2])
		}
		if len(e.Waiting) != 2 || e.Waiting[0].Rank != frozen || !e.Waiting[0].Mute || !e.Waiting[0].Active || e.Waiting[1].Rank != missing || e.Waiting[1].Mute {
			t.Errorf("it says %v, want that rank 1 is mute and rank 3 has not come", e)
		}
		t.Log(e)
		network.Heal()
	})
}

// TestProgressIsNoTimeout: an operation that goes on, however slowly, is not
// timed out.
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

// TestTimeoutOfSeveral: whoever has not come is named, and nobody else, however
// many operations stand still because of it and ask the others where they are.
// Of those that time out together the first is said to have.
func TestTimeoutOfSeveral(t *testing.T) {
	for name, test := range map[string]struct {
		gap      time.Duration
		timeouts []time.Duration
		late     uint64
	}{
		"at once":               {0, []time.Duration{2 * time.Second, 2 * time.Second, 2 * time.Second}, 3},
		"one after the other":   {100 * time.Millisecond, []time.Duration{time.Second, time.Second}, 3},
		"the last is impatient": {30 * time.Millisecond, []time.Duration{time.Minute, time.Minute, time.Second}, 5},
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
						t.Errorf("rank %d: collective %d is said to have timed out, want %d", rank, e.Call.Seq, test.late)
					}
				}
			})
		})
	}
}

// several has a rank begin some all-reduces, with a gap between two, and returns
// the error of the first.
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

// TestLastWordCountsForAll: a rank that has answered a later operation is not
// silent when it then answers an earlier one that has asked as well.
func TestLastWordCountsForAll(t *testing.T) {
	w, puppets, _ := onStage(t, 3)
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
		puppets[1].link.Answer(wire.Where{Seq: seq, Active: true, Last: wire.Call{Comm: commID, Seq: 3 - seq}})
	}
	until(t, "the answers", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.answers[1].Last.Seq == 2
	})
	for i, op := range ops {
		e, ok := errors.AsType[*TimeoutError](op.Wait(t.Context()))
		if !ok || e.Call.Seq != 2 || len(e.Waiting) != 1 || e.Waiting[0].Rank != 2 {
			t.Errorf("operation %d: %+v, want that the second waits for rank 2 alone", i+1, e)
		}
	}
}
