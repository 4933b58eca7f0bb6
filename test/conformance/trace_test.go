package conformance

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
	"github.com/nexar-go/nexar/trace"
)

// find waits until the trace of a rank has an operation that satisfies is.
func find(t *testing.T, c *nexar.Comm, is func(o trace.Operation) bool) trace.Operation {
	t.Helper()
	var r trace.Snapshot
	for deadline := time.Now().Add(worldtest.Patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		r = c.Trace()
		if i := slices.IndexFunc(r.Operations, is); i >= 0 {
			return r.Operations[i]
		}
	}
	t.Fatalf("rank %d has no such operation:\n%v", c.Rank(), r)
	return trace.Operation{}
}

// An all-reduce that one rank does not call is in the trace of all ranks: the rounds of the
// others, the ranks that they wait for, and that this one has no operation.
func TestTraceStuck(t *testing.T) {
	for _, over := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks(), worldtest.QUIC()) {
		t.Run(over.Name, func(t *testing.T) {
			const ranks, missing = 4, 2
			comms := over.Cluster(t, ranks, nexar.Config{})
			ctx := t.Context()
			worldtest.OnAll(t, comms, func(_ int, c *nexar.Comm) error { return nexar.AllReduce(ctx, c, []float32{1, 2}, nexar.Sum) })

			var running sync.WaitGroup
			for rank, c := range comms {
				if rank != missing {
					running.Go(func() {
						if err := nexar.AllReduce(ctx, c, []float32{1, 2}, nexar.Sum); err != nil {
							t.Errorf("rank %d: %v", rank, err)
						}
					})
				}
			}
			for rank, c := range comms {
				if rank != missing {
					o := find(t, c, func(o trace.Operation) bool { return o.Running() && len(o.Waiting) > 0 })
					if o.Op != "all_reduce" || o.Comm != "1" || o.Epoch != c.Epoch() || o.Type != "float32" || o.Length != 2 || o.Reduce != "sum" || o.Plan == "" || o.Rounds == 0 {
						t.Errorf("rank %d is in %+v", rank, o)
					}
				}
			}
			// Until their messages have arrived, the ranks wait for each other as well.
			var snapshots []trace.Snapshot
			var table string
			const late = "All 4 ranks work; rank 2 is "
			for end := time.Now().Add(worldtest.Patience); !strings.Contains(table, late) && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
				snapshots = nil
				for _, c := range comms {
					snapshots = append(snapshots, c.Trace())
				}
				var b strings.Builder
				if err := trace.WriteTable(&b, snapshots); err != nil {
					t.Fatal(err)
				}
				table = b.String()
			}
			if !strings.Contains(table, late) {
				t.Errorf("the table does not name the rank that is late:\n%s", table)
			}
			for _, o := range snapshots[missing].Operations {
				if o.Running() || o.Outcome != trace.OK {
					t.Errorf("rank %d, which is in nothing, has %v", missing, o)
				}
			}
			if err := nexar.AllReduce(ctx, comms[missing], []float32{1, 2}, nexar.Sum); err != nil {
				t.Error(err)
			}
			running.Wait()
			for _, c := range comms {
				o := find(t, c, func(o trace.Operation) bool {
					return o.Seq == snapshots[0].Operations[len(snapshots[0].Operations)-1].Seq && o.Purpose == ""
				})
				if o.Running() || o.Outcome != trace.OK || o.Bytes == 0 || o.Round != o.Rounds {
					t.Errorf("rank %d: in the end it is %+v", c.Rank(), o)
				}
			}
		})
	}
}

// Messages and calls are in the trace, too.
func TestTraceMessages(t *testing.T) {
	comms := worldtest.MemLinks().Cluster(t, 2, nexar.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	release := make(chan struct{})
	comms[1].Register("wait", func(context.Context, int, []byte) ([]byte, error) {
		<-release
		return []byte("done"), nil
	})
	var running sync.WaitGroup
	running.Go(func() { nexar.Recv(ctx, comms[1], make([]float64, 3), nexar.AnyRank, 5) })
	running.Go(func() { nexar.Send(ctx, comms[0], make([]float64, 1<<20), 1, 6) })
	running.Go(func() { comms[0].Call(ctx, 1, "wait", []byte("now")) })

	for _, test := range []struct {
		rank int
		want string
	}{
		{1, "recv from any rank, tag 5, running for"},
		{0, "send to rank 1, tag 6, 1048576 × float64, running for"},
		{0, `call of "wait" at rank 1, running for`},
	} {
		find(t, comms[test.rank], func(o trace.Operation) bool { return strings.HasPrefix(o.String(), test.want) })
	}

	if err := nexar.Send(ctx, comms[0], make([]float64, 3), 1, 5); err != nil {
		t.Error(err)
	}
	if _, err := nexar.Recv(ctx, comms[1], make([]float64, 1<<20), 0, 6); err != nil {
		t.Error(err)
	}
	close(release)
	running.Wait()
	for _, test := range []struct {
		rank  int
		want  string
		bytes int64
	}{
		{1, "recv from rank 0, tag 5, 3 × float64, took", 24},
		{0, "send to rank 1, tag 5, 3 × float64, took", 24},
		{0, "send to rank 1, tag 6, 1048576 × float64, took", 8 << 20},
		{0, `call of "wait" at rank 1, took`, 7},
	} {
		o := find(t, comms[test.rank], func(o trace.Operation) bool { return strings.HasPrefix(o.String(), test.want) })
		if o.Bytes != test.bytes || o.Outcome != trace.OK {
			t.Errorf("%v: %d bytes, want %d", o, o.Bytes, test.bytes)
		}
	}
}

// Ranks in traces are those of the world.
func TestTraceSplit(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 4, nexar.Config{})
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		half, err := c.Split(t.Context(), rank/2, -rank)
		if err != nil {
			return err
		}
		if err := nexar.Broadcast(t.Context(), half, []int32{1}, 0); err != nil {
			return err
		}
		return half.Close()
	})
	for rank, c := range comms {
		o := find(t, c, func(o trace.Operation) bool { return o.Op == "broadcast" && o.Purpose == "" && o.Comm != "1" })
		if want := rank/2*2 + 1; o.Root != want || o.Outcome != trace.OK {
			t.Errorf("rank %d: root %d of %v, want %d", rank, o.Root, o, want)
		}
	}
}

// TestTraceTimeout: the trace of a call that has timed out names the rank that it waited for.
func TestTraceTimeout(t *testing.T) {
	for _, over := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks()) {
		t.Run(over.Name, func(t *testing.T) {
			comms := over.Cluster(t, 2, nexar.Config{CollectiveTimeout: 200 * time.Millisecond})
			h := nexar.StartAllReduce(t.Context(), comms[0], []float32{1}, nexar.Sum)
			other := nexar.StartAllReduce(t.Context(), comms[0], []float32{1}, nexar.Sum)
			if h.Wait() == nil || other.Wait() == nil {
				t.Fatal("an operation that no other rank has called has ended without an error")
			}
			o := find(t, comms[0], func(o trace.Operation) bool { return o.Outcome == trace.Timeout })
			if o.Waiting == nil || o.Waiting[0] != 1 {
				t.Errorf("it was waiting for %v: %v", o.Waiting, o)
			}
		})
	}
}

// Traces can be taken while operations run, and each of them is complete.
func TestTraceAtOnce(t *testing.T) {
	rounds := 100
	if !worldtest.AllTrials() {
		rounds = 30
	}
	comms := worldtest.Mem().Cluster(t, 3, nexar.Config{})
	over := make(chan struct{})
	var looking sync.WaitGroup
	for _, c := range comms {
		looking.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				r := c.Trace()
				if _, err := json.Marshal(r); err != nil {
					t.Error(err)
				}
				for _, o := range r.Operations {
					if o.Op == "" || o.Duration < 0 || o.Seq > 0 && o.Plan == "" {
						t.Errorf("in the trace is %+v", o)
					}
				}
			}
		})
	}
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		for i := range rounds {
			x := make([]float32, 1+i*i)
			h := nexar.StartAllReduce(t.Context(), c, x, nexar.Sum)
			if _, err := nexar.Exchange(t.Context(), c, make([]float32, len(x)), make([]float32, len(x)/2), (rank+1)%3, (rank+2)%3, 1); err != nil {
				return err
			}
			if err := h.Wait(); err != nil {
				return err
			}
		}
		return nil
	})
	close(over)
	looking.Wait()
}
