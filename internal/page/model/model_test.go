//race:none it starts no goroutine

package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/trace"
)

// A world makes answers of a seed.
type world struct {
	now   time.Time
	ranks int
	hosts int
	seq   uint64
	skew  func(rank int) time.Duration
	// change changes the snapshot of a rank; nil: it does not answer.
	change func(rank int, s *trace.Snapshot) *trace.Snapshot
}

func newWorld(ranks, hosts int) *world {
	return &world{now: time.Unix(1_700_000_000, 0), ranks: ranks, hosts: hosts, seq: 100, skew: func(int) time.Duration { return 0 },
		change: func(_ int, s *trace.Snapshot) *trace.Snapshot { return s }}
}

// reduce is an all-reduce that began at a time before now.
func (w *world) reduce(seq uint64, before, took time.Duration, outcome string) trace.Operation {
	return trace.Operation{Comm: "1", Epoch: 1, Op: "all_reduce", Seq: seq, Type: "float32", Length: 4, Reduce: "sum", Plan: "ring", Root: -1, Peer: -1,
		Start: w.now.Add(-before), Duration: took, Outcome: outcome, Rounds: 2, Round: 1}
}

func (w *world) answer() trace.Cluster {
	c := trace.Cluster{Time: w.now, Formed: true, Epoch: 1, World: w.ranks, Joined: w.ranks}
	for r := range w.ranks {
		host := r * w.hosts / w.ranks
		n := trace.Node{Rank: r, Node: fmt.Sprintf("%032x", r+1), Name: fmt.Sprintf("host%d:%d", host, 1000+r), Addr: "10.0.0.1:7000", Missing: "has not answered within 500ms", Offset: w.skew(r), OffsetError: time.Millisecond / 10}
		s := &trace.Snapshot{Node: n.Node, Name: n.Name, Rank: r, Size: w.ranks, Epoch: 1, Time: w.now}
		for _, peer := range []int{(r + 1) % w.ranks, (r + w.ranks - 1) % w.ranks} {
			bytes := uint64(w.now.UnixMilli()-1_700_000_000_000) * 1000
			s.Links = append(s.Links, trace.Link{Rank: peer, Transport: "tcp", Sent: bytes, Received: bytes})
		}
		s.Counters = []trace.Counter{{Op: "all_reduce", Bytes: s.Links[0].Sent}, {Op: "send", Bytes: s.Links[1].Sent}}
		s.Process.HeapBytes = 1_234_567
		s.Operations = []trace.Operation{w.reduce(w.seq, 20*time.Millisecond, 5*time.Millisecond, trace.OK)}
		if s = w.change(r, s); s != nil {
			n.Missing, n.Snapshot = "", s
			s.Time = s.Time.Add(w.skew(r))
			for i := range s.Operations {
				s.Operations[i].Start = s.Operations[i].Start.Add(w.skew(r))
			}
		}
		c.Nodes = append(c.Nodes, n)
	}
	return c
}

// pass lets a time pass.
func (w *world) pass(d time.Duration) { w.now = w.now.Add(d) }

// rank returns a rank of a view.
func rank(t *testing.T, v View, number int) Rank {
	t.Helper()
	for _, h := range v.Hosts {
		for _, r := range h.Ranks {
			if r.Rank == number {
				return r
			}
		}
	}
	t.Fatalf("the view has no rank %d", number)
	return Rank{}
}

// TestNotes: links with problems come first, with a description of these.
func TestNotes(t *testing.T) {
	w, m := newWorld(4, 2), Model{}
	w.change = func(r int, s *trace.Snapshot) *trace.Snapshot {
		if r == 3 {
			l := &s.Links[1]
			l.Class, l.Stalled, l.Stalls, l.Connections, l.Lost, l.Sent = "tls", 1500*time.Millisecond, 2, 2, 1, 7
		}
		return s
	}
	v := m.Add(w.answer(), w.now)
	if want := (Link{From: 3, To: 2, Class: "tls", Rate: -1, Sent: 7, Notes: "stalls for 1.5 s, 2 stalls, 1 reconnection, 1 lost packet"}); len(v.Links) != 1 || v.Links[0] != want {
		t.Errorf("the links are %+v, want %+v", v.Links, want)
	}
	if want := (Class{Name: "tls", Links: 1, Stalled: 1}); !slices.Contains(v.Classes, want) {
		t.Errorf("the classes are %+v, want one of them %+v", v.Classes, want)
	}
}

func TestWorking(t *testing.T) {
	w, m := newWorld(4, 2), Model{}
	v := m.Add(w.answer(), w.now)
	if v.Sentence != "All 4 ranks work" || v.Level != Calm || v.Rate != -1 || v.Memory != 4*1_230_000 || len(v.Waits) > 0 {
		t.Errorf("the first view is %+v", v)
	}
	w.pass(time.Second)
	v = m.Add(w.answer(), w.now)
	if v.Rate != 8_000_000 || v.Hosts[1].Rate != 4_000_000 || len(v.Links) != 8 || v.Links[0].Rate != 1_000_000 {
		t.Errorf("throughput %v, of host 1 %v, links %+v, want 8 MB/s, 4 MB/s and 8 links of 1 MB/s", v.Rate, v.Hosts[1].Rate, v.Links)
	}
	if want := []Class{{Name: "tcp", Links: 8, Rate: 8_000_000}}; !slices.Equal(v.Classes, want) {
		t.Errorf("the classes of links are %+v, want %+v", v.Classes, want)
	}
	for i, h := range v.Hosts {
		if h.Name != fmt.Sprint("host", i) || h.Words != "2 ranks work" || h.Level != Calm {
			t.Errorf("host %d is %+v", i, h)
		}
	}
	if r := rank(t, v, 3); r.State != Works || r.Words != "in no call" || r.Busy || r.PID != "1003" || r.Call != "all_reduce #100 (4 × float32, sum)" {
		t.Errorf("rank 3 is %+v", r)
	}
}

// TestLate: a rank that others wait for is late since they wait, and they wait for it.
func TestLate(t *testing.T) {
	w, m := newWorld(4, 2), Model{}
	began := w.now
	w.change = func(r int, s *trace.Snapshot) *trace.Snapshot {
		if r != 2 {
			o := w.reduce(w.seq+1, w.now.Sub(began), w.now.Sub(began), "")
			o.Waiting, o.Site = []int{2}, "train/main.go:42"
			s.Operations = append(s.Operations, o)
		} else {
			s.Site = "train/data.go:7"
		}
		return s
	}
	w.pass(500 * time.Millisecond)
	if v := m.Add(w.answer(), w.now); rank(t, v, 1).State != Works || rank(t, v, 2).State != Works || len(v.Waits) > 0 {
		t.Errorf("after half a second: rank 1 %q, rank 2 %q, %d waits; want no alarm", rank(t, v, 1).State, rank(t, v, 2).State, len(v.Waits))
	}
	w.pass(3500 * time.Millisecond)
	v := m.Add(w.answer(), w.now)
	if v.Level != Slow || !strings.Contains(v.Sentence, "for rank 2 on host host1, which has been in no call (train/data.go:7)") {
		t.Errorf("level %d, sentence %q", v.Level, v.Sentence)
	}
	if r := rank(t, v, 1); r.State != Waits || r.Words != "for rank 2" || !r.Since.Equal(began) || r.Round != "1 of 2" || !r.Busy || r.Site != "train/main.go:42" {
		t.Errorf("rank 1 is %+v", r)
	}
	if r := rank(t, v, 2); r.State != Late || r.Site != "train/data.go:7" || !r.Since.Equal(began) {
		t.Errorf("rank 2 is %+v, want it late since %v", r, began)
	}
	if want := []Wait{{Who: "ranks 0, 1 and 3", For: "rank 2", Call: "all_reduce #101 (4 × float32, sum)", Since: began}}; !slices.Equal(v.Waits, want) {
		t.Errorf("the waits are %+v, want %+v", v.Waits, want)
	}
	if c := v.Calls[0]; !c.Running || c.Words != "3 ranks began within 1 µs, and have waited for rank 2 for 4 s." || !slices.Equal(c.Missing, []int{2}) {
		t.Errorf("the current call is %+v", c)
	}
	if got := v.Hosts[1].Words; got != "rank 2 is late, rank 3 waits" {
		t.Errorf("host 1: %q", got)
	}
	w.pass(time.Minute)
	if r := rank(t, m.Add(w.answer(), w.now), 2); !r.Since.Equal(began) {
		t.Errorf("a minute later rank 2 is late since %v, want %v", r.Since, began)
	}
	w.change = func(_ int, s *trace.Snapshot) *trace.Snapshot { return s }
	if v := m.Add(w.answer(), w.now); v.Level != Calm || rank(t, v, 2).State != Works {
		t.Errorf("when it goes on: level %d, rank 2 %q", v.Level, rank(t, v, 2).State)
	}
}

func TestNoAnswer(t *testing.T) {
	w, m := newWorld(4, 2), Model{}
	m.Add(w.answer(), w.now)
	w.pass(time.Second)
	w.change = func(r int, s *trace.Snapshot) *trace.Snapshot {
		if r == 1 {
			return nil
		}
		return s
	}
	since := w.now
	for range 3 {
		v := m.Add(w.answer(), w.now)
		if r := rank(t, v, 1); v.Level != Broken || r.State != NoAnswer || r.Words != "has not answered within 500ms" || !r.Since.Equal(since) {
			t.Fatalf("level %d, rank 1 is %+v, want no answer since %v", v.Level, r, since)
		}
		if got := v.Hosts[0].Words; got != "rank 1 does not answer, rank 0 works" {
			t.Errorf("host 0: %q", got)
		}
		w.pass(time.Second)
	}
}

// TestDeadlockOf512: the view of a deadlock of 512 ranks has one sentence.
func TestDeadlockOf512(t *testing.T) {
	w, m := newWorld(512, 64), Model{}
	began := w.now.Add(-5 * time.Second)
	w.change = func(r int, s *trace.Snapshot) *trace.Snapshot {
		next := (r + 1) % 512
		s.Operations = append(s.Operations, trace.Operation{Comm: "1", Epoch: 1, Op: "recv", Root: -1, Peer: next, Start: began, Duration: w.now.Sub(began), Waiting: []int{next}})
		return s
	}
	v := m.Add(w.answer(), w.now)
	if v.Level != Broken || !strings.Contains(v.Sentence, "deadlock") || len(v.Sentence) > 1024 || rank(t, v, 3).State != Deadlock {
		t.Errorf("level %d, rank 3 %q, sentence of %d bytes: %q", v.Level, rank(t, v, 3).State, len(v.Sentence), v.Sentence)
	}
	if len(v.Waits) != waitsMax {
		t.Errorf("%d waits, want %d", len(v.Waits), waitsMax)
	}
}

// TestForming: nodes without a rank are shown, too.
func TestForming(t *testing.T) {
	var m Model
	v := m.Add(trace.Cluster{World: 3, Joined: 2, Nodes: []trace.Node{
		{Rank: -1, Node: "b", Name: "b:2", Missing: "has not joined the world yet"}, {Rank: -1, Node: "a", Addr: "[::1]:7000", Missing: "has not joined the world yet"},
	}}, time.Unix(1, 0))
	if v.Level != Forming || v.Sentence != "The world forms: 2 of 3 have joined" || len(v.Hosts) != 2 || v.Hosts[0].Name != "[::1]" || v.Hosts[1].Words != "1 node joins" {
		t.Errorf("the view is %+v", v)
	}
}

func TestFail(t *testing.T) {
	w, m := newWorld(2, 1), Model{}
	if v := m.Fail("connection refused", w.now); v.Level != Broken || v.Sentence != "The seed does not answer." {
		t.Errorf("before the first answer the view is %+v", v)
	}
	answered := w.now
	m.Add(w.answer(), w.now)
	w.pass(time.Second)
	since := w.now
	for range 3 {
		v := m.Fail(errors.New("connection refused").Error(), w.now)
		if !v.Silent.Equal(since) || !v.Time.Equal(answered) || len(v.Hosts) != 1 || v.Problem != "connection refused" {
			t.Errorf("the view is %+v", v)
		}
		w.pass(time.Second)
	}
	if v := m.Add(w.answer(), w.now); !v.Silent.IsZero() || v.Level != Calm {
		t.Errorf("when the seed answers the view is %+v", v)
	}
}

// TestCallTimeline: a call has the ranks in it on one clock, also if those of the hosts are a day apart.
func TestCallTimeline(t *testing.T) {
	w, m := newWorld(4, 2), Model{}
	w.skew = func(r int) time.Duration { return time.Duration(r/2) * 24 * time.Hour }
	w.change = func(r int, s *trace.Snapshot) *trace.Snapshot {
		late := time.Duration(r) * time.Millisecond
		if r == 3 {
			late = 40 * time.Millisecond
		}
		s.Operations = []trace.Operation{w.reduce(7, 100*time.Millisecond-late, 60*time.Millisecond-late, trace.OK)}
		return s
	}
	v := m.Add(w.answer(), w.now)
	if len(v.Calls) != 1 {
		t.Fatalf("%d calls, want 1", len(v.Calls))
	}
	c := v.Calls[0]
	if want := "3 ranks began within 2 ms; rank 3 began 38 ms later. The last ended after 60 ms."; c.Words != want || c.Running || c.Length != 60*time.Millisecond {
		t.Errorf("the call is %+v, want the words %q", c, want)
	}
	for i, want := range []time.Duration{0, time.Millisecond, 2 * time.Millisecond, 40 * time.Millisecond} {
		if s := c.Spans[i]; s.Rank != i || s.Start != want || s.Start+s.Length != 60*time.Millisecond {
			t.Errorf("span %d is %+v, want its start %v", i, s, want)
		}
	}
}

// TestBriefCalls: approximate times do not say who was first. Among the slowest calls their delay counts without their error.
func TestBriefCalls(t *testing.T) {
	w, m := newWorld(4, 2), Model{}
	w.change = func(r int, s *trace.Snapshot) *trace.Snapshot {
		late := time.Duration(r) * 5 * time.Millisecond
		brief, exact := w.reduce(7, 100*time.Millisecond-late, 0, trace.OK), w.reduce(6, 200*time.Millisecond-late/10, 10*time.Millisecond, trace.OK)
		brief.Approximate = true
		s.Operations = []trace.Operation{exact, brief}
		return s
	}
	calls := m.Add(w.answer(), w.now).Calls
	if want := "All 4 ranks made this call within 15 ms. Times of brief calls are accurate to 20 ms, so it is not known who was first."; calls[0].Words != want {
		t.Errorf("the call is %q, want %q", calls[0].Words, want)
	}
	if m.calls.slow[0].Key != "1 6" {
		t.Errorf("the slowest call is %q, want #6, of which the delay is known", m.calls.slow[0].Title)
	}
}

// TestClocks: the best comparison of two clocks counts, until it is too old.
func TestClocks(t *testing.T) {
	w, m := newWorld(1, 1), Model{}
	for i, test := range []struct{ after, offset, err, want time.Duration }{
		{0, 50 * time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond},
		{time.Second, 45 * time.Millisecond, 2 * time.Millisecond, 45 * time.Millisecond},
		{time.Second, 60 * time.Millisecond, 20 * time.Millisecond, 45 * time.Millisecond},
		{5 * time.Minute, 60 * time.Millisecond, 20 * time.Millisecond, 45 * time.Millisecond},
		{5 * time.Minute, 60 * time.Millisecond, 20 * time.Millisecond, 60 * time.Millisecond},
		{time.Second, 4 * time.Millisecond, 5 * time.Millisecond, 0},
	} {
		w.pass(test.after)
		c := w.answer()
		c.Nodes[0].Offset, c.Nodes[0].OffsetError = test.offset, test.err
		m.Add(c, w.now)
		if got := m.nodes[c.Nodes[0].Node].offset; got != test.want {
			t.Errorf("answer %d: offset %v, want %v", i, got, test.want)
		}
	}
}

// TestChanges: the newest change comes first, by the clock of this process.
func TestChanges(t *testing.T) {
	w, m := newWorld(3, 1), Model{}
	c := w.answer()
	c.SeedTime = w.now.Add(-24 * time.Hour)
	at := func(d time.Duration) time.Time { return c.SeedTime.Add(d) }
	c.Changes = []trace.Change{
		{Time: at(-time.Minute), Epoch: 1, Size: 4, What: trace.Formed},
		{Time: at(-50 * time.Second), Epoch: 2, Size: 6, What: trace.Joined, Rank: 4, Name: "a:7", More: 1},
		{Time: at(-40 * time.Second), Epoch: 3, Size: 5, What: trace.Left, Rank: 5, Name: "b:8"},
		{Time: at(-30 * time.Second), Epoch: 4, Size: 1, What: trace.Lost, Rank: 0, Name: "a:1", Why: "its process has ended"},
		{Time: at(-20 * time.Second), Epoch: 4, What: trace.Over, Why: "its last node has left"},
	}
	v := m.Add(c, w.now)
	want := []Change{
		{w.now.Add(-20 * time.Second), 4, "The world is over: its last node has left", Broken},
		{w.now.Add(-30 * time.Second), 4, "Rank 0 (a:1) was lost: its process has ended; 1 rank", Broken},
		{w.now.Add(-40 * time.Second), 3, "Rank 5 (b:8) left; 5 ranks", Calm},
		{w.now.Add(-50 * time.Second), 2, "Rank 4 (a:7) and 1 more joined; 6 ranks", Calm},
		{w.now.Add(-time.Minute), 1, "The world has formed; 4 ranks", Calm},
	}
	if !slices.Equal(v.Changes, want) {
		t.Errorf("the changes are %+v, want %+v", v.Changes, want)
	}
}

// TestSlowCallsStay: the slowest calls of the last minutes are shown beside the newest one.
func TestSlowCallsStay(t *testing.T) {
	w, m := newWorld(4, 1), Model{}
	delay := func(seq uint64) time.Duration { return time.Duration(seq*7919%1000) * 10 * time.Microsecond }
	w.change = func(r int, s *trace.Snapshot) *trace.Snapshot {
		if r == 2 {
			s.Operations[0].Start = s.Operations[0].Start.Add(delay(w.seq))
		}
		return s
	}
	var all []time.Duration
	var v View
	for range 100 {
		w.seq++
		w.pass(time.Second)
		v = m.Add(w.answer(), w.now)
		all = append(all, delay(w.seq))
	}
	if len(v.Calls) != callsMax || v.Calls[0].Key != fmt.Sprint("1 ", w.seq) {
		t.Fatalf("%d calls, the first one is %s; want %d, and 1 %d", len(v.Calls), v.Calls[0].Key, callsMax, w.seq)
	}
	slices.Sort(all)
	slices.Reverse(all)
	for i, c := range v.Calls[1:] {
		if c.delay() != all[i] {
			t.Errorf("slow call %d has a delay of %v, want %v", i, c.delay(), all[i])
		}
	}
	w.pass(slowKept + time.Minute)
	w.seq++
	if v = m.Add(w.answer(), w.now); len(v.Calls) != 1 {
		t.Errorf("%d calls after %v, want the newest alone", len(v.Calls), slowKept)
	}
}

// TestAnHour: a model is as large after an hour as after some minutes.
func TestAnHour(t *testing.T) {
	w, m := newWorld(64, 8), Model{}
	size := func() int {
		slow := 0
		for _, c := range m.calls.slow {
			slow += len(c.Spans)
		}
		return len(m.nodes) + len(m.rates) + slow
	}
	var early int
	for second := range 3600 {
		w.seq++
		w.pass(time.Second)
		v := m.Add(w.answer(), w.now)
		if len(v.Rates) > ratesMax || len(v.Calls) > callsMax {
			t.Fatalf("%d rates, %d calls", len(v.Rates), len(v.Calls))
		}
		if second == 1000 {
			early = size()
		}
	}
	if late := size(); late != early {
		t.Errorf("the model has %d entries after an hour, %d after 1000 s", late, early)
	}
	if span := m.view.Time.Sub(m.view.Rates[0].Time); span < 9*time.Minute || span > 11*time.Minute {
		t.Errorf("the throughput covers %v, want 10 minutes", span)
	}
}

// TestLarge: a view of 1,024 ranks has less than 300 KB.
func TestLarge(t *testing.T) {
	w, m := newWorld(1024, 128), Model{}
	began := time.Now()
	var v View
	for range 10 {
		w.seq++
		w.pass(time.Second)
		v = m.Add(w.answer(), w.now)
	}
	text, err := json.Marshal(v)
	if err != nil || len(text) > 300_000 {
		t.Errorf("the view has %d bytes, %v", len(text), err)
	}
	t.Logf("10 views of 1,024 ranks in %v, the last one has %d bytes", time.Since(began).Round(time.Millisecond), len(text))
}

// TestCountsBeginAgain: bytes that have become fewer give no rate.
func TestCountsBeginAgain(t *testing.T) {
	w, m := newWorld(2, 1), Model{}
	w.pass(time.Hour)
	m.Add(w.answer(), w.now)
	w.change = func(_ int, s *trace.Snapshot) *trace.Snapshot {
		s.Counters, s.Links[0].Sent, s.Links[1].Sent = nil, 1, 1
		return s
	}
	w.pass(time.Second)
	v := m.Add(w.answer(), w.now)
	if v.Rate != -1 || len(v.Classes) != 1 || v.Classes[0].Rate != 0 {
		t.Errorf("throughput %v, links %+v", v.Rate, v.Classes)
	}
}
