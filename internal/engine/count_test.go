package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/recorder"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/trace"
)

// countsOf returns a counter of an engine, or an empty one.
func countsOf(e *Engine, kind, op uint8) trace.Counter {
	for k, c := range e.Counters() {
		if k.Kind == kind && k.Op == op {
			c.Sum.Ranks = k.Ranks
			return c.Sum
		}
	}
	return trace.Counter{}
}

// TestCounters: collectives and messages are counted, also after their communicator is closed, and those of nexar itself are not.
func TestCounters(t *testing.T) {
	w := tracedWorld(t, 2)
	noError(t, w.on(func(rank int, c *Comm) error {
		for range 3 {
			if err := w.run(t.Context(), rank, ring, vector(rank, 100_000)); err != nil {
				return err
			}
		}
		if rank == 0 {
			return sendOn(t.Context(), c, make([]byte, 8), 1, 1, 5)
		}
		_, err := recvOn(t.Context(), c, make([]byte, 8), 1, 0, 5)
		return err
	}))
	kind := w.comms[0].calls.get(1).Kind
	check := func(when string) {
		t.Helper()
		for rank, e := range w.engines {
			sum := countsOf(e, kind, w.comms[rank].calls.get(1).Op)
			if took := sum.Durations; sum.Calls != 3 || sum.Failed != 0 || sum.Bytes != 3*400_000 || sum.Ranks != 2 || took.Count() != 3 || took.Sum <= 0 {
				t.Errorf("%s, rank %d has counted %+v", when, rank, sum)
			}
		}
		for k, c := range w.engines[0].Counters() {
			if k.Kind == kind && c.Channels == 0 {
				t.Errorf("%s, the plan of the calls is not known: %+v", when, c)
			}
		}
		if sent := countsOf(w.engines[0], 0, p2p.Sent); sent.Calls != 1 || sent.Bytes != 8 {
			t.Errorf("%s, sends are %+v", when, sent)
		}
		if got := countsOf(w.engines[1], 0, p2p.Got); got.Calls != 1 || got.Bytes != 8 || got.Failed > 0 {
			t.Errorf("%s, receives are %+v", when, got)
		}
	}
	check("while the communicator is open")
	for _, c := range w.comms {
		c.Close()
	}
	check("when it is closed")

	w = tracedWorld(t, 2)
	for _, c := range w.comms {
		c.SetTracing(&recorder.Comm{Ranks: []int{0, 1}, Purpose: "setup"})
	}
	noError(t, w.on(func(rank int, _ *Comm) error { return w.run(t.Context(), rank, ring, vector(rank, 4)) }))
	if n := w.engines[0].Counters(); len(n) > 0 {
		t.Errorf("calls of nexar itself are counted: %+v", n)
	}
}

// TestCountFailed: failed calls are counted, without bytes and time.
func TestCountFailed(t *testing.T) {
	w := tracedWorld(t, 2)
	op, err := w.comms[0].start(w.work(0, ring, vector(0, 100)))
	if err != nil {
		t.Fatal(err)
	}
	kind := op.call.Kind
	w.comms[0].CancelIf(nil, ErrClosed)
	if op.Wait(t.Context()) == nil {
		t.Fatal("no error")
	}
	got := countsOf(w.engines[0], kind, op.call.Op)
	if took := got.Durations; got.Calls != 1 || got.Failed != 1 || got.Bytes != 0 || took.Count() != 0 {
		t.Errorf("counted %+v", got)
	}
}

// TestCountBrief: every 64th of the brief calls is measured, and counts 64 times.
func TestCountBrief(t *testing.T) {
	w := tracedWorld(t, 2)
	noError(t, w.on(func(rank int, _ *Comm) error {
		for range 2*timedEvery + 3 {
			work := w.work(rank, ring, vector(rank, 2))
			brief := *work.Schedule
			brief.Brief, work.Schedule = true, &brief
			op, err := w.comms[rank].start(work)
			if err != nil {
				return err
			}
			if err := op.Wait(t.Context()); err != nil {
				return err
			}
		}
		return nil
	}))
	for k, c := range w.engines[0].Counters() {
		if took := c.Sum.Durations; k.Kind != 0 && (c.Sum.Calls != 2*timedEvery+3 || took.Count() != 2*timedEvery || took.Sum <= 0) {
			t.Errorf("counted %d calls and %d durations of %v in all", c.Sum.Calls, took.Count(), took.Sum)
		}
	}
}

// TestCountWaits: the watchdog adds up the time in which calls wait, for each rank of the world. Those are forgotten with the communicator.
func TestCountWaits(t *testing.T) {
	w := tracedWorld(t, 2)
	w.engines[0].WatchStalls(StallConfig{Describer: plainText{}, Log: w.engines[0].cfg.Log})
	op, err := w.comms[0].start(w.work(0, ring, vector(0, 100)))
	if err != nil {
		t.Fatal(err)
	}
	recv, err := w.comms[0].messages.StartRecv(p2p.Bytes(make([]byte, 8)), 1, 1, 5)
	if err != nil {
		t.Fatal(err)
	}
	waits := func(kind, op uint8, least time.Duration) func() bool {
		return func() bool {
			got := countsOf(w.engines[0], kind, op)
			return got.Waited >= least && slices.Equal(got.WaitedFor, []trace.RankTime{{Rank: 11, Time: got.Waited}})
		}
	}
	until(t, "the wait of the collective", waits(op.call.Kind, op.call.Op, 5*watchTick))
	until(t, "the wait of the receive", waits(0, p2p.Got, stallTick))
	other, err := w.comms[1].start(w.work(1, ring, vector(1, 100)))
	if err != nil {
		t.Fatal(err)
	}
	noError(t, []error{op.Wait(t.Context()), other.Wait(t.Context()), sendOn(t.Context(), w.comms[1], make([]byte, 8), 1, 0, 5)})
	if _, err := recv.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.comms[0].Close()
	if got := countsOf(w.engines[0], uint8(plan.AllReduce), 1); got.Waited < 5*watchTick || len(got.WaitedFor) > 0 {
		t.Errorf("after Close: %+v", got)
	}
}

// TestCountWaitForAny: a receive from any rank waits for all others.
func TestCountWaitForAny(t *testing.T) {
	w := tracedWorld(t, 3)
	c := w.comms[1]
	(&wait{comm: c, waitKey: waitKey{kind: wire.WaitRecv}, p2p: p2p.Wait{Kind: p2p.Got, Peer: p2p.Any}}).countWait(time.Second)
	got := countsOf(w.engines[1], 0, p2p.Got)
	slices.SortFunc(got.WaitedFor, func(a, b trace.RankTime) int { return a.Rank - b.Rank })
	if want := []trace.RankTime{{Rank: 10, Time: time.Second}, {Rank: 12, Time: time.Second}}; got.Waited != time.Second || !slices.Equal(got.WaitedFor, want) {
		t.Errorf("waited %v, for %v; want a second, for %v", got.Waited, got.WaitedFor, want)
	}
}

// TestMergeCounters: a counter without a successful call does not change the plan of another one.
func TestMergeCounters(t *testing.T) {
	kind := CallKind{Ranks: 2, Kind: 4}
	all := make(counters)
	for _, k := range []Counter{
		{CallKind: kind, Plan: 3, Channels: 1, Sum: trace.Counter{Calls: 2, Bytes: 8}},
		{CallKind: kind, Sum: trace.Counter{Calls: 1, Failed: 1, Waited: 5}},
		{CallKind: CallKind{Ranks: 3, Kind: 4}, Sum: trace.Counter{Calls: 9}},
	} {
		all.add(&k)
	}
	if got := all[kind]; len(all) != 2 || got.Plan != 3 || got.Channels != 1 || got.Sum.Calls != 3 || got.Sum.Failed != 1 || got.Sum.Bytes != 8 || got.Sum.Waited != 5 {
		t.Errorf("got %+v", got)
	}
}
