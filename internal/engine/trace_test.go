package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/recorder"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/trace"
)

// tracedWorld returns a world with traced communicators. Their ranks have other numbers in the world.
func tracedWorld(t *testing.T, n int) *world {
	w := newWorld(t, n, overMem, Config{})
	for _, c := range w.comms {
		c.SetTracing(&recorder.Comm{Epoch: 3, Ranks: ranksFrom(10, n)})
	}
	return w
}

func ranksFrom(first, n int) (ranks []int) {
	for i := range n {
		ranks = append(ranks, first+i)
	}
	return ranks
}

// onlyTrace returns the only trace of an engine that is accepts.
func onlyTrace(t *testing.T, e *Engine, is func(Trace) bool) Trace {
	t.Helper()
	list := slices.DeleteFunc(e.Traces(), func(t Trace) bool { return !is(t) })
	if len(list) != 1 {
		t.Fatalf("%d such operations: %+v", len(list), list)
	}
	return list[0]
}

func underWay(t Trace) bool { return t.Running() }

// TestTraceCollective: the trace of a collective has its round while it waits, and the bytes that
// went over links when it has ended.
func TestTraceCollective(t *testing.T) {
	// Rank 1 gets a chunk of rank 0 in the first round. In the second round it needs one that rank 0
	// gets from rank 2. A long chunk needs a grant of rank 2 first.
	for count, in := range map[int]struct{ round, waits int }{300: {2, 10}, 300_000: {1, 12}} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			w := tracedWorld(t, 3)
			ops := make([]*Op, 3)
			for rank := range 2 { // Rank 2 comes later.
				op, err := w.comms[rank].start(w.work(rank, ring, vector(rank, count)))
				if err != nil {
					t.Fatal(err)
				}
				ops[rank] = op
			}
			var got Trace
			until(t, "the trace of rank 1", func() bool {
				got = onlyTrace(t, w.engines[1], underWay)
				return got.Round == in.round && slices.Contains(got.Waiting, in.waits)
			})
			if got.Comm != recorder.CommName(commID) || got.Epoch != 3 || got.Seq != 1 || got.Rounds != 4 || got.Call.Count != uint64(count) {
				t.Errorf("rank 1 is in %+v", got)
			}
			if got := onlyTrace(t, w.engines[0], underWay); got.Round != 1 || !slices.Contains(got.Waiting, 12) {
				t.Errorf("rank 0 is in %+v", got)
			}
			op, err := w.comms[2].start(w.work(2, ring, vector(2, count)))
			if err != nil {
				t.Fatal(err)
			}
			ops[2] = op
			for rank, op := range ops {
				if err := op.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				got := onlyTrace(t, w.engines[rank], func(Trace) bool { return true })
				// In each of four rounds about a third is sent and another received.
				if want := int64(4*4*count) * 2 / 3; max(got.Bytes, want)-min(got.Bytes, want) > want/100 || got.Outcome != trace.OK || got.Round != 4 || got.Waiting != nil || got.Duration <= 0 {
					t.Errorf("rank %d: %+v, want %d bytes", rank, got, want)
				}
			}
		})
	}
}

// TestTraceFailure: the trace of a failed operation has the outcome and the rank that it was
// waiting for.
func TestTraceFailure(t *testing.T) {
	w := tracedWorld(t, 2)
	op, err := w.comms[0].start(w.work(0, ring, vector(0, 100)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := op.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	got := onlyTrace(t, w.engines[0], func(Trace) bool { return true })
	if got.Outcome != trace.Cancelled || !slices.Equal(got.Waiting, []int{11}) || got.Round != 1 {
		t.Errorf("traced %+v", got)
	}
	w.comms[0].Close()
	if got := onlyTrace(t, w.engines[0], func(Trace) bool { return true }); got.Outcome != trace.Cancelled {
		t.Errorf("after Close there is %+v", got)
	}
}

// TestTraceMessages: messages are traced on both sides.
func TestTraceMessages(t *testing.T) {
	w := tracedWorld(t, 2)
	a, b := w.comms[0], w.comms[1]
	ctx, cancel := context.WithCancel(t.Context())
	r, err := b.messages.StartRecv(p2p.Bytes(make([]byte, 8)), 1, p2p.Any, 5)
	if err != nil {
		t.Fatal(err)
	}
	if got := onlyTrace(t, w.engines[1], underWay); got.Op != "recv" || got.Peer != -1 || got.Tag != 5 || got.Waiting != nil {
		t.Errorf("a receive is %+v", got)
	}
	large, err := a.messages.StartSend(p2p.Bytes(make([]byte, 1<<20)), 2, 1, 6)
	if err != nil || large == nil {
		t.Fatal(err)
	}
	if got := onlyTrace(t, w.engines[0], underWay); got.Op != "send" || got.Peer != 11 || got.Tag != 6 || got.Call.Count != 1<<20 || !slices.Equal(got.Waiting, []int{11}) {
		t.Errorf("a send is %+v", got)
	}
	noError(t, []error{sendOn(ctx, a, make([]byte, 8), 1, 1, 5)})
	if _, err := r.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { b.messages.Probe(ctx, 0, 7) })
	until(t, "the probe", func() bool {
		return slices.ContainsFunc(w.engines[1].Traces(), func(t Trace) bool { return t.Op == "probe" && t.Running() })
	})
	if _, err := recvOn(ctx, b, make([]byte, 4), 2, 0, 6); !isType[*p2p.MisfitError](err) {
		t.Errorf("a message that does not fit: %v", err)
	}
	if err := large.Wait(ctx); !isType[*p2p.MisfitError](err) {
		t.Errorf("a message that does not fit: %v", err)
	}
	running.Go(func() { recvOn(ctx, b, make([]byte, 4), 2, 0, 8) })
	until(t, "the receive", func() bool {
		return slices.ContainsFunc(w.engines[1].Traces(), func(t Trace) bool { return t.Tag == 8 })
	})
	cancel()
	running.Wait()

	for _, want := range []struct {
		rank  int
		op    string
		peer  int
		tag   int64
		bytes int64
		end   string
	}{
		{0, "send", 11, 5, 8, trace.OK},
		{0, "send", 11, 6, 1 << 20, trace.Refused},
		{1, "recv", 10, 5, 8, trace.OK},
		{1, "recv", 10, 6, 1 << 20, trace.Refused},
		{1, "recv", 10, 8, 0, trace.Cancelled},
	} {
		got := onlyTrace(t, w.engines[want.rank], func(t Trace) bool { return t.Op == want.op && t.Tag == want.tag })
		if got.Peer != want.peer || got.Bytes != want.bytes || got.Outcome != want.end {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// TestTimeExactly: while operations are timed exactly, a short message has a duration, and says that its times are exact. Before and
// after that they are approximate.
func TestTimeExactly(t *testing.T) {
	w := tracedWorld(t, 2)
	exchange := func(tag int64) (sent, received Trace) {
		noError(t, []error{sendOn(t.Context(), w.comms[0], make([]byte, 8), 1, 1, tag)})
		if _, err := recvOn(t.Context(), w.comms[1], make([]byte, 8), 1, 0, tag); err != nil {
			t.Fatal(err)
		}
		is := func(t Trace) bool { return t.Tag == tag }
		return onlyTrace(t, w.engines[0], is), onlyTrace(t, w.engines[1], is)
	}
	check := func(tag int64, approximate bool) {
		sent, received := exchange(tag)
		if sent.Approximate != approximate || received.Approximate != approximate {
			t.Errorf("message %d: approximate %v at its sender, %v at its receiver, want %v", tag, sent.Approximate, received.Approximate, approximate)
		}
		if received.Duration <= 0 && !approximate {
			t.Errorf("message %d took %v", tag, received.Duration)
		}
		if uint64(tag) != sent.Order || uint64(tag) != received.Order {
			t.Errorf("message %d has the orders %d and %d", tag, sent.Order, received.Order)
		}
	}
	check(1, true)
	for _, e := range w.engines {
		e.TimeExactly(time.Hour)
	}
	check(2, false)
	for _, e := range w.engines {
		e.TimeExactly(0)
	}
	check(3, true)
}

// TestTraceBounds: a communicator that is not traced keeps no traces, others a limited number.
func TestTraceBounds(t *testing.T) {
	w := newWorld(t, 2, overMem, Config{})
	run := func(times int) {
		t.Helper()
		noError(t, w.on(func(rank int, c *Comm) error {
			for range times {
				if err := w.run(t.Context(), rank, ring, vector(rank, 4)); err != nil {
					return err
				}
				if err := sendOn(t.Context(), c, nil, 1, 1-rank, 0); err != nil {
					return err
				}
				if _, err := recvOn(t.Context(), c, nil, 1, 1-rank, 0); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	run(100)
	if list := w.engines[0].Traces(); len(list) > 0 {
		t.Errorf("%d operations are traced in a communicator that is not traced", len(list))
	}
	for _, c := range w.comms {
		c.SetTracing(&recorder.Comm{Epoch: 1, Ranks: []int{0, 1}})
	}
	run(2 * callsTraced)
	if n := len(w.engines[0].Traces()); n != callsTraced+recorder.Length {
		t.Errorf("%d operations are recorded, want %d and %d", n, callsTraced, recorder.Length)
	}
	w.comms[0].Close()
	w.comms[0].Close()
	if n := len(w.engines[0].Traces()); n != archived {
		t.Errorf("%d operations are traced after Close, want %d", n, archived)
	}
}

// TestTraceAllocations: tracing an operation does not allocate.
func TestTraceAllocations(t *testing.T) {
	w := tracedWorld(t, 1)
	c, work := w.comms[0], w.work(0, ring, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	op := c.newOpLocked(&work)
	op.exec.StartLocked(&op.call.Call, &op.work)
	c.calls.end(op.call)
	note := func() {
		c.seq++
		op.call = c.calls.put(op, c.seq, callsTraced)
		op.call.Call = wire.Call{Seq: c.seq}
		op.stampLocked()
		op.traceLocked()
		c.calls.end(op.call)
	}
	for range callsTraced {
		note()
	}
	if n := testing.AllocsPerRun(1000, note); n > 0 {
		t.Errorf("%v allocations for each operation, want none", n)
	}
}

func TestOutcome(t *testing.T) {
	for want, errs := range map[string][]error{
		trace.OK:         {nil},
		trace.PeerFailed: {&PeerError{}, &EndedError{&PeerError{}}, fmt.Errorf("x: %w", &PeerError{}), &RevokedError{Cause: wire.CauseFailed}},
		trace.PeerLeft:   {&PeerError{Left: true}, &RevokedError{Cause: wire.CauseLeft}},
		trace.Mismatch:   {&MismatchError{}},
		trace.Timeout:    {&TimeoutError{}, &RevokedError{Cause: wire.CauseTimeout}, context.DeadlineExceeded},
		trace.Revoked:    {&RevokedError{Cause: wire.CauseCancelled}, &RevokedError{Cause: wire.CauseClosed}},
		trace.Cancelled:  {context.Canceled},
		trace.Closed:     {ErrClosed},
		trace.Failed:     {errors.New("x")},
	} {
		for _, err := range errs {
			if got := Outcome(err); got != want {
				t.Errorf("%v is %q, want %q", err, got, want)
			}
		}
	}
	if got := messageOutcome(&p2p.MisfitError{}); got != trace.Refused {
		t.Errorf("a message of another type is %q", got)
	}
}
