package timeline_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/metrics/timeline"
	"github.com/nexar-go/nexar/nexartest"
	"github.com/nexar-go/nexar/trace"
)

// A file is a trace file.
type file struct {
	TraceEvents []event
	OtherData   map[string]any
}

type event struct {
	Ph, Name string
	Pid, Tid int
	Ts, Dur  float64
	ID       uint64
	Args     map[string]any
}

// written returns the trace file that f makes.
func written(t *testing.T, f func(w *timeline.Writer)) (file, []byte) {
	t.Helper()
	var b bytes.Buffer
	w := timeline.NewWriter(&b)
	f(w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var got file
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatalf("%v in %s", err, b.Bytes())
	}
	return got, b.Bytes()
}

// where returns the events that is selects.
func (f file) where(is func(e event) bool) (list []event) {
	for _, e := range f.TraceEvents {
		if is(e) {
			list = append(list, e)
		}
	}
	return list
}

// TestRanks: real ranks run collectives, wait once for rank 2, and exchange messages of all lengths. They receive them in another order than
// that of the sends. In the file every message has an arrow from its send to its receive, and the others wait for rank 2.
func TestRanks(t *testing.T) {
	const n = 4
	var mu sync.Mutex
	var snapshots []trace.Snapshot
	var comms [n]*nexar.Comm
	var joined sync.WaitGroup
	joined.Add(n)
	nexartest.Run(t, n, func(t *testing.T, c *nexar.Comm) {
		ctx := t.Context()
		comms[c.Rank()] = c
		joined.Done()
		if c.Rank() == 2 {
			joined.Wait()
			for rank, other := range comms {
				waits := func(o trace.Operation) bool { return o.Running() && o.Duration > 100*time.Millisecond }
				for rank != 2 && !slices.ContainsFunc(other.Trace().Operations, waits) {
					time.Sleep(time.Millisecond)
				}
			}
		}
		if err := nexar.AllReduce(ctx, c, make([]float32, 1<<18), nexar.Sum); err != nil {
			t.Error(err)
		}
		to, from := (c.Rank()+1)%n, (c.Rank()+n-1)%n
		var sends []*nexar.Handle
		for tag := range 4 {
			sends = append(sends, nexar.StartSend(ctx, c, make([]byte, 10<<(6*tag)), to, nexar.Tag(tag)))
		}
		for tag := range 4 {
			tag = 3 - tag
			if _, err := nexar.Recv(ctx, c, make([]byte, 10<<(6*tag)), from, nexar.Tag(tag)); err != nil {
				t.Error(err)
			}
		}
		if err := nexar.WaitAll(sends...); err != nil {
			t.Error(err)
		}
		if err := c.Barrier(ctx); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		snapshots = append(snapshots, c.Trace())
	})
	slices.SortFunc(snapshots, func(a, b trace.Snapshot) int { return cmp.Compare(a.Rank, b.Rank) })
	got, b := written(t, func(w *timeline.Writer) {
		if err := w.AddSnapshots(snapshots...); err != nil {
			t.Fatal(err)
		}
	})
	if name := os.Getenv("TIMELINE_FILE"); name != "" {
		if err := os.WriteFile(name, b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	waits := got.where(func(e event) bool { return e.Name == "waits for rank 2" && e.Dur > 50_000 })
	if len(waits) != n-1 {
		t.Errorf("%d ranks wait for rank 2, want %d: %v", len(waits), n-1, waits)
	}
	tags := func(rank int, name string) (list []any) {
		for _, e := range got.where(func(e event) bool { return e.Ph == "X" && e.Pid == rank+1 && e.Name == name }) {
			list = append(list, cmp.Or[any](e.Args["tag"], 0.0))
		}
		return list
	}
	for rank := range n {
		to := (rank + 1) % n
		if got := tags(rank, fmt.Sprintf("send to rank %d", to)); !slices.Equal(got, []any{0.0, 1.0, 2.0, 3.0}) {
			t.Errorf("rank %d has sent the tags %v", rank, got)
		}
		ends := make(map[uint64]event)
		for _, e := range got.where(func(e event) bool { return e.Ph == "s" && e.Pid == rank+1 }) {
			ends[e.ID] = e
		}
		arrows := got.where(func(e event) bool { return e.Ph == "f" && e.Pid == to+1 && ends[e.ID].Ph != "" })
		if len(ends) != 4 || len(arrows) != 4 {
			t.Errorf("%d arrows begin at rank %d and %d of them end at rank %d, want 4", len(ends), rank, len(arrows), to)
		}
	}
}

// snapshot is a snapshot of a rank with operations.
func snapshot(rank, size int, at time.Time, operations ...trace.Operation) *trace.Snapshot {
	return &trace.Snapshot{Node: fmt.Sprintf("%032x", rank+1), Name: fmt.Sprintf("host%d:%d", rank/8, rank), Rank: rank, Size: size, Epoch: 1, Time: at, Operations: operations}
}

// cluster is a cluster of snapshots. Their clocks are ahead by offsets.
func cluster(offsets []time.Duration, snapshots ...*trace.Snapshot) (c trace.Cluster) {
	for i, s := range snapshots {
		n := trace.Node{Rank: s.Rank, Node: s.Node, Snapshot: s}
		if offsets != nil {
			n.Offset, n.OffsetError = offsets[i], 50*time.Microsecond
		}
		c.Nodes = append(c.Nodes, n)
	}
	return c
}

// collective is an all-reduce that has succeeded.
func collective(seq uint64, start time.Time, took time.Duration) trace.Operation {
	return trace.Operation{
		Comm: "1", Epoch: 1, Op: "all_reduce", Seq: seq, Type: "float32", Length: 1000, Reduce: "sum", Plan: "ring over links", Root: -1, Peer: -1,
		Start: start, Duration: took, Outcome: trace.OK, Round: 4, Rounds: 4, Bytes: 8000,
	}
}

// TestClocks: clocks are a day apart, and their operations stand at the same time, and a wait of less than the error of the clocks is not shown.
func TestClocks(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	ahead := []time.Duration{0, 24 * time.Hour, -time.Hour}
	var list []*trace.Snapshot
	for rank, d := range ahead {
		late := time.Duration(rank) * 70 * time.Microsecond
		list = append(list, snapshot(rank, 3, now.Add(d+time.Second), collective(1, now.Add(d+late), time.Millisecond-late)))
	}
	for i, s := range list {
		s.Name = fmt.Sprintf("host:%d", i) // Hosts may have the same name.
	}
	got, _ := written(t, func(w *timeline.Writer) { w.Add(cluster(ahead, list...)) })
	slicesOf := got.where(func(e event) bool { return e.Name == "all_reduce #1" })
	if len(slicesOf) != 3 || slicesOf[0].Ts != 0 || slicesOf[1].Ts != 70 || slicesOf[2].Ts != 140 || slicesOf[2].Dur != 860 {
		t.Errorf("got %+v", slicesOf)
	}
	waits := got.where(func(e event) bool { return e.Name == "waits for rank 2" })
	if len(waits) != 1 || waits[0].Pid != 1 || waits[0].Dur != 140 {
		t.Errorf("rank 0 waits 140 µs for rank 2, and the clocks do not show whether rank 1 does: got %+v", waits)
	}
	if got.OtherData["clock"] != "that of the seed, within 50µs" {
		t.Errorf("the clock is %q", got.OtherData["clock"])
	}
}

// TestClockOfHost: nodes of one host have one clock, and its best measurement counts for all of them, so that the order of their operations is exact.
func TestClockOfHost(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	a, b := snapshot(0, 2, now.Add(time.Second), collective(1, now, time.Millisecond)), snapshot(1, 2, now.Add(time.Second), collective(1, now.Add(100*time.Microsecond), 900*time.Microsecond))
	c := cluster([]time.Duration{3 * time.Millisecond, -time.Millisecond}, a, b)
	c.Nodes[0].OffsetError, c.Nodes[1].OffsetError = 5*time.Millisecond, 2*time.Millisecond
	got, _ := written(t, func(w *timeline.Writer) { w.Add(c) })
	if waits := got.where(func(e event) bool { return e.Name == "waits for rank 1" }); len(waits) != 1 || waits[0].Dur != 100 {
		t.Errorf("rank 0 waits 100 µs for rank 1: got %+v", waits)
	}
	if got.OtherData["clock"] != "that of the seed, within 2ms" {
		t.Errorf("the clock is %q", got.OtherData["clock"])
	}
}

// TestPolls: snapshots overlap. Each operation is written once, also one that was running at first, and the file says how many were missed.
func TestPolls(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	at := func(seq uint64) trace.Operation {
		return collective(seq, now.Add(time.Duration(seq)*time.Second), time.Second/2)
	}
	running := at(3)
	running.Outcome, running.Waiting, running.Round = "", []int{1}, 2
	last := at(9)
	last.Outcome, last.Waiting = "", []int{1}
	got, _ := written(t, func(w *timeline.Writer) {
		w.Add(cluster(nil, snapshot(0, 2, now.Add(3*time.Second), at(1), at(2), running)))
		w.Add(cluster(nil, snapshot(0, 2, now.Add(5*time.Second), at(2), at(3), at(4))))
		w.Add(cluster(nil, snapshot(0, 2, now.Add(9100*time.Millisecond), at(7), at(8), last)))
	})
	var names []string
	for _, e := range got.where(func(e event) bool { return e.Ph == "X" }) {
		names = append(names, e.Name)
	}
	want := []string{"all_reduce #1", "all_reduce #2", "all_reduce #3", "all_reduce #4", "all_reduce #7", "all_reduce #8", "all_reduce #9"}
	if !slices.Equal(names, want) {
		t.Errorf("the file has %q, want %q", names, want)
	}
	if e := got.where(func(e event) bool { return e.Name == "all_reduce #9" })[0]; e.Args["outcome"] != "running" || e.Dur != 100_000 {
		t.Errorf("the running operation is %+v", e)
	}
	if lost := got.OtherData["collectives_not_recorded"]; lost != 2.0 {
		t.Errorf("%v collectives are not recorded, want 2: 5 and 6", lost)
	}
}

// TestOverlap: operations that overlap are on threads of their own, and the next one is on the first thread again.
func TestOverlap(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	got, _ := written(t, func(w *timeline.Writer) {
		w.Add(cluster(nil, snapshot(0, 1, now.Add(time.Minute), collective(1, now, time.Second), collective(2, now.Add(time.Millisecond), time.Second), collective(3, now.Add(2*time.Second), time.Second))))
	})
	list := got.where(func(e event) bool { return e.Ph == "X" })
	if len(list) != 3 || list[0].Tid == list[1].Tid || list[2].Tid != list[0].Tid {
		t.Errorf("got %+v", list)
	}
}

// TestWaits: a wait is shown within its operation, also if the other rank reports the operation two polls later, and not if it is shorter than the
// error of approximate times.
func TestWaits(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	early, late := collective(1, at, 20*time.Millisecond), collective(1, at.Add(30*time.Millisecond), 20*time.Millisecond)
	early2, late2 := collective(2, at.Add(time.Second), 50*time.Millisecond), collective(2, at.Add(time.Second+10*time.Millisecond), 40*time.Millisecond)
	early2.Approximate = true
	got, _ := written(t, func(w *timeline.Writer) {
		w.Add(cluster(nil, snapshot(0, 2, at, early, early2), snapshot(1, 2, at, late2)))
		w.Add(cluster(nil, snapshot(0, 2, at, early, early2), snapshot(1, 2, at, late2)))
		w.Add(cluster(nil, snapshot(0, 2, at, early, early2), snapshot(1, 2, at, late2, late)))
	})
	list := got.where(func(e event) bool { return e.Name == "waits for rank 1" })
	if len(list) != 1 || list[0].Ts != 0 || list[0].Dur != 20_000 {
		t.Errorf("the waits are %+v, want one of 20 ms", list)
	}
}

// TestManyAtOnce: operations without a thread of their own are short rather than negative.
func TestManyAtOnce(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var ops [2][]trace.Operation
	for seq := range uint64(70) {
		ops[0] = append(ops[0], collective(seq+1, at.Add(time.Duration(seq)*time.Millisecond), time.Second))
		ops[1] = append(ops[1], collective(seq+1, at.Add(time.Duration(seq)*time.Millisecond+time.Millisecond), time.Second))
	}
	got, _ := written(t, func(w *timeline.Writer) {
		w.Add(cluster(nil, snapshot(0, 2, at, ops[0]...), snapshot(1, 2, at, ops[1]...)))
	})
	list := got.where(func(e event) bool { return e.Ph == "X" })
	for _, e := range list {
		if e.Dur <= 0 {
			t.Errorf("the slice %+v", e)
		}
	}
	if len(list) < 140 {
		t.Errorf("%d slices, want those of 140 operations", len(list))
	}
}

// TestTexts: texts of other nodes cannot end a string of the file.
func TestTexts(t *testing.T) {
	s := snapshot(0, 1, time.Now(), trace.Operation{Comm: "1", Op: "call", Function: "a\"}],\"b\\\u2028<script>", Root: -1, Peer: 0, Outcome: `"`, Start: time.Now()})
	s.Name = "\"\\\x00\xff"
	got, _ := written(t, func(w *timeline.Writer) { w.AddSnapshots(*s) })
	if list := got.where(func(e event) bool { return e.Ph == "X" }); len(list) != 1 || list[0].Name != s.Operations[0].Function {
		t.Errorf("got %+v", list)
	}
}

// TestBeforeBegin: the file begins with the operations of the first rank. Another rank has older ones, and one of them waited.
func TestBeforeBegin(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	old, older := collective(1, at.Add(-time.Hour), time.Second), collective(1, at.Add(-time.Hour-time.Second), 2*time.Second)
	across := collective(2, at.Add(-time.Hour), time.Hour+time.Second)
	got, _ := written(t, func(w *timeline.Writer) {
		if err := w.Add(cluster(make([]time.Duration, 3), snapshot(0, 3, at), snapshot(1, 3, at, old, across), snapshot(2, 3, at, older))); err != nil {
			t.Error(err)
		}
	})
	list := got.where(func(e event) bool { return e.Ph == "X" })
	for _, e := range list {
		if e.Ts < 0 || e.Dur <= 0 || e.Name == "all_reduce #2" && e.Dur != 1e6 {
			t.Errorf("the slice %+v", e)
		}
	}
	if len(list) != 3 {
		t.Errorf("%d slices, want 3: %+v", len(list), list)
	}
}

// TestEmpty: a file without operations is a valid file.
func TestEmpty(t *testing.T) {
	if got, b := written(t, func(*timeline.Writer) {}); len(got.TraceEvents) != 0 {
		t.Errorf("got %s", b)
	}
}

// A counter counts the bytes that are written.
type counter int64

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}

// TestLargeGroup: of a collective of many ranks the first rank has the details, and one with another outcome; the last one to begin has a slice for the waits of all
// others. Slices have whole microseconds within the real time.
func TestLargeGroup(t *testing.T) {
	const ranks, last, failed = 129, 77, 99
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var list []*trace.Snapshot
	for rank := range ranks {
		o := collective(1, at.Add(time.Duration(rank)*100*time.Nanosecond), 20*time.Millisecond)
		switch rank {
		case last:
			o.Start, o.Duration = at.Add(5*time.Millisecond+300*time.Nanosecond), 15*time.Millisecond
		case failed:
			o.Outcome = "timeout"
		}
		list = append(list, snapshot(rank, ranks, at.Add(time.Second), o))
	}
	got, _ := written(t, func(w *timeline.Writer) { w.Add(cluster(make([]time.Duration, ranks), list...)) })
	calls := got.where(func(e event) bool { return e.Name == "all_reduce #1" })
	if len(calls) != ranks {
		t.Fatalf("%d ranks have the collective, want %d", len(calls), ranks)
	}
	for _, e := range calls {
		if rank := e.Pid - 1; (e.Args != nil) != (rank == 0 || rank == failed) {
			t.Errorf("rank %d has the details %v", rank, e.Args)
		}
	}
	if e := calls[11]; e.Ts != 2 || e.Dur != 19_999 {
		t.Errorf("rank 11 is in the collective from %v to %v µs, want whole microseconds from 1.1 to 20001.1", e.Ts, e.Ts+e.Dur)
	}
	waits := got.where(func(e event) bool { return e.Name == "128 ranks wait for all_reduce #1" })
	if len(waits) != 1 || waits[0].Pid != last+1 || waits[0].Ts != 0 || waits[0].Dur != 5000.3 || waits[0].Tid == calls[last].Tid {
		t.Errorf("the waits are %+v, want one of 5000.3 µs at rank %d", waits, last)
	}
}

// TestLarge: 1,000 collectives of each of 512 ranks, which wait for each other, take at most 50 MB, as plain JSON. The Writer keeps few of
// them at any time.
func TestLarge(t *testing.T) {
	require.NoRace(t, "it starts no goroutine")
	const ranks, perPoll, polls = 512, 20, 50
	var plain, compressed counter
	z := gzip.NewWriter(&compressed)
	w := timeline.NewWriter(io.MultiWriter(&plain, z))
	begin := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	random := rand.New(rand.NewPCG(1, 2))
	var before, after runtime.MemStats
	for poll := range polls {
		var list []*trace.Snapshot
		for rank := range ranks {
			var operations []trace.Operation
			for i := range perPoll {
				seq := uint64(poll*perPoll + i + 1)
				start := begin.Add(time.Duration(seq)*10*time.Millisecond + time.Duration(random.IntN(500_000)))
				operations = append(operations, collective(seq, start, time.Millisecond+time.Duration(random.IntN(2_000_000))))
			}
			list = append(list, snapshot(rank, ranks, begin.Add(time.Duration(poll)*200*time.Millisecond), operations...))
		}
		if err := w.Add(cluster(make([]time.Duration, ranks), list...)); err != nil {
			t.Fatal(err)
		}
		if poll == polls/5 || poll == polls-1 {
			before = after
			runtime.GC()
			runtime.ReadMemStats(&after)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d operations: %.1f MB, compressed %.1f MB; heap %.1f MB after a fifth, %.1f MB at the end", ranks*perPoll*polls,
		float64(plain)/1e6, float64(compressed)/1e6, float64(before.HeapAlloc)/1e6, float64(after.HeapAlloc)/1e6)
	if plain > 50_000_000 {
		t.Errorf("the file has %d bytes, want at most 50 MB", plain)
	}
	if after.HeapAlloc > before.HeapAlloc+20e6 {
		t.Errorf("the heap has grown from %d to %d bytes", before.HeapAlloc, after.HeapAlloc)
	}
}
