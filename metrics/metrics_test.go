package metrics

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/recorder"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/nexartest"
	"github.com/nexar-go/nexar/trace"
)

func id(rank int) string { return strings.Repeat(fmt.Sprintf("%x", 10+rank), 64) }

// full returns the snapshot of a rank in a world of two that has all metrics.
func full(rank int) *trace.Snapshot {
	return &trace.Snapshot{
		Node: id(rank), Name: "host:1", Rank: rank, Size: 2, Epoch: 1, Time: time.Unix(1000, 0),
		Operations: []trace.Operation{
			{Op: "all_reduce", Seq: 3, Root: -1, Peer: -1, Start: time.Unix(997, 0), Duration: 3 * time.Second},
			{Op: "recv", Outcome: trace.OK, Root: -1, Start: time.Unix(990, 0)},
		},
		Counters: []trace.Counter{{
			Op: "all_reduce", Ranks: 2, Plan: "ring", Calls: 20, Failed: 2, Bytes: 300, Waited: 5 * time.Second,
			Durations: trace.Durations{Sum: 6 * time.Second, First: -1, Counts: []uint64{16, 0, 2}},
			WaitedFor: []trace.RankTime{{Rank: 1 - rank, Time: 4 * time.Second}},
		}, {Op: "send", Ranks: 2, Calls: 7}},
		Links: []trace.Link{
			{Rank: 1 - rank, Transport: "tcp", Class: "tls", Sent: 100, Received: 200, Connections: 1, Stalls: 2, Stalled: 2 * time.Second, Unacknowledged: 21},
			{Rank: 7, Transport: "tcp", Class: "tls", Sent: 10, Received: 20, Connections: 2, Unacknowledged: 22},
		},
		Relayed: &trace.Relayed{Forwarded: 1, Lost: 2},
		Process: trace.Process{
			Goroutines: 11, HeapBytes: 12, LentBuffers: 13, IdleBytes: 14, SharedBytes: 15, Dials: 16, DialFailures: 17, Failures: 18, Recoveries: 19, Recovery: 20 * time.Second,
			CertificateEnd: time.Unix(5000, 0),
		},
	}
}

func clusterOf(snapshots ...*trace.Snapshot) trace.Cluster {
	c := trace.Cluster{Formed: true, Epoch: 1, World: 2, Joined: 2, Waiting: 3}
	for rank := range 2 {
		n := trace.Node{Rank: rank, Node: id(rank), Name: "host:1", Missing: "no answer within 2s"}
		for _, s := range snapshots {
			if s.Rank == rank {
				n.Snapshot, n.Missing = s, ""
			}
		}
		c.Nodes = append(c.Nodes, n)
	}
	return c
}

// answering returns a collector of a cluster that answers with *c.
func answering(c *trace.Cluster) *collector {
	return newCollector(func(context.Context) (trace.Cluster, error) { return *c, nil }, true)
}

func scrape(t *testing.T, h http.Handler) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func checkLines(t *testing.T, text string, want ...string) {
	t.Helper()
	for _, line := range want {
		if !strings.Contains("\n"+text, "\n"+line+"\n") {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
}

// TestAll: every metric of the table appears, with values in base units, and promlint has nothing to say.
func TestAll(t *testing.T) {
	c := clusterOf(full(0), full(1))
	problems, err := testutil.CollectAndLint(answering(&c))
	if err != nil || len(problems) > 0 {
		t.Errorf("promlint: %+v, %v", problems, err)
	}
	text := scrape(t, serve(answering(&c)))
	for _, r := range table {
		if !strings.Contains(text, "# HELP "+r.name+" ") {
			t.Errorf("no %s", r.name)
		}
	}
	const node = `node="aaaaaaaaaaaa",`
	checkLines(t, text,
		`nexar_cluster_up 1`, `nexar_cluster_waiting_nodes 3`, `nexar_rank_up{node="aaaaaaaaaaaa",rank="0"} 1`,
		`nexar_rank_info{name="host:1",node="aaaaaaaaaaaa",rank="0"} 1`,
		`nexar_rank_awaited_seconds_total{node="bbbbbbbbbbbb",rank="1"} 4`,
		`nexar_operations_total{comm_size="2",`+node+`op="all_reduce",rank="0"} 20`,
		`nexar_operation_failures_total{comm_size="2",`+node+`op="all_reduce",rank="0"} 2`,
		`nexar_operation_wait_seconds_total{comm_size="2",`+node+`op="all_reduce",rank="0"} 5`,
		`nexar_operation_slowest_rank{comm_size="2",`+node+`op="all_reduce",rank="0"} 1`,
		`nexar_operation_algorithm_info{algorithm="ring",comm_size="2",`+node+`op="all_reduce",rank="0"} 1`,
		`nexar_operation_duration_seconds_bucket{comm_size="2",`+node+`op="all_reduce",rank="0",le="0.25"} 0`,
		`nexar_operation_duration_seconds_bucket{comm_size="2",`+node+`op="all_reduce",rank="0",le="1"} 16`,
		`nexar_operation_duration_seconds_bucket{comm_size="2",`+node+`op="all_reduce",rank="0",le="+Inf"} 18`,
		`nexar_operation_duration_seconds_sum{comm_size="2",`+node+`op="all_reduce",rank="0"} 6`,
		`nexar_running_operations{`+node+`rank="0"} 1`, `nexar_longest_operation_seconds{`+node+`rank="0"} 3`,
		`nexar_links{class="tls",`+node+`rank="0",transport="tcp"} 2`,
		`nexar_link_sent_bytes_total{class="tls",`+node+`rank="0",transport="tcp"} 110`,
		`nexar_link_unacknowledged_bytes{class="tls",`+node+`rank="0",transport="tcp"} 43`,
		`nexar_link_stalls_total{class="tls",`+node+`rank="0",transport="tcp"} 2`,
		`nexar_stalled_links{`+node+`rank="0"} 1`, `nexar_longest_link_stall_seconds{`+node+`rank="0"} 2`, `nexar_longest_link_stall_peer{`+node+`rank="0"} 1`,
		`nexar_relay_frames_total{`+node+`outcome="lost",rank="0"} 2`,
		`nexar_certificate_expiry_timestamp_seconds{`+node+`rank="0"} 5000`,
		`nexar_recovery_seconds_total{`+node+`rank="0"} 20`, `nexar_dial_failures_total{`+node+`rank="0"} 17`, `nexar_heap_bytes{`+node+`rank="0"} 12`,
	)
	if n := strings.Count(text, "nexar_operations_total{"); n != 4 {
		t.Errorf("%d pairs of a rank and an operation, want 4", n)
	}
}

// TestNative: a scraper that asks for native histograms gets them, with the same buckets as the recorder has.
func TestNative(t *testing.T) {
	c := clusterOf(full(0))
	r := prometheus.NewRegistry()
	r.MustRegister(answering(&c))
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var h *dto.Histogram
	for _, f := range families {
		if f.GetName() == "nexar_operation_duration_seconds" {
			h = f.GetMetric()[0].GetHistogram()
		}
	}
	if h.GetSchema() != 0 || h.GetSampleCount() != 18 || h.GetSampleSum() != 6 || len(h.GetPositiveSpan()) == 0 {
		t.Fatalf("got %v", h)
	}
	got, at, count, delta := make(map[int32]int64), int32(0), int64(0), h.GetPositiveDelta()
	for _, span := range h.GetPositiveSpan() {
		at += span.GetOffset()
		for range span.GetLength() {
			count += delta[0]
			delta = delta[1:]
			if got[at] = count; count == 0 {
				delete(got, at)
			}
			at++
		}
	}
	if len(got) != 2 || got[-1] != 16 || got[1] != 2 {
		t.Errorf("the buckets are %v, want 16 durations up to 1/2 s and 2 of 1 to 2 s", got)
	}
}

// TestMissing: a node that does not answer is down, and its other metrics are missing. Without a seed there is one metric.
func TestMissing(t *testing.T) {
	c := clusterOf(full(0))
	text := scrape(t, serve(answering(&c)))
	checkLines(t, text, `nexar_rank_up{node="bbbbbbbbbbbb",rank="1"} 0`)
	if strings.Contains(text, `nexar_goroutines{node="bbbbbbbbbbbb"`) {
		t.Errorf("rank 1 has goroutines in\n%s", text)
	}
	c = trace.Cluster{World: 2, Joined: 1, Nodes: []trace.Node{{Rank: 0, Node: id(0), Missing: "has not joined"}, {Rank: -1, Node: id(1)}}}
	text = scrape(t, serve(answering(&c)))
	checkLines(t, text, `nexar_cluster_formed 0`, `nexar_cluster_wanted_nodes 2`)
	if strings.Contains(text, "nexar_rank_up") {
		t.Errorf("a node is down before the world has formed:\n%s", text)
	}
	down := newCollector(func(context.Context) (trace.Cluster, error) { return trace.Cluster{}, errors.New("no seed") }, true)
	if text := scrape(t, serve(down)); strings.Count(text, "\nnexar_") != 1 || !strings.Contains(text, "\nnexar_cluster_up 0\n") {
		t.Errorf("without a seed:\n%s", text)
	}
}

// TestOtherNodes: a query of the program may return snapshots with other NodeIDs than their nodes, or none: the node counts.
func TestOtherNodes(t *testing.T) {
	c := clusterOf(full(0), full(1))
	c.Nodes[0].Snapshot.Node, c.Nodes[1].Snapshot.Node = "", "cc"
	checkLines(t, scrape(t, serve(answering(&c))), `nexar_link_sent_bytes_total{class="tls",node="aaaaaaaaaaaa",rank="0",transport="tcp"} 110`,
		`nexar_link_sent_bytes_total{class="tls",node="bbbbbbbbbbbb",rank="1",transport="tcp"} 110`)
}

// TestMonotone: counters never decrease when a link or a node is replaced, a node does not answer, or ranks get other numbers.
func TestMonotone(t *testing.T) {
	var c trace.Cluster
	h := serve(answering(&c))
	sent := func(bytes, awaited int) {
		t.Helper()
		checkLines(t, scrape(t, h),
			fmt.Sprintf(`nexar_link_sent_bytes_total{class="tls",node="aaaaaaaaaaaa",rank="0",transport="tcp"} %d`, bytes),
			fmt.Sprintf(`nexar_rank_awaited_seconds_total{node="bbbbbbbbbbbb",rank="1"} %d`, awaited))
	}
	s := full(0)
	with := func(epoch, bytes uint64, waited time.Duration) {
		s = full(0)
		s.Epoch, s.Links, s.Counters[0].WaitedFor[0].Time = epoch, s.Links[:1], waited
		s.Links[0].Sent = bytes
		c = clusterOf(s)
		c.Epoch = epoch
	}
	with(1, 100, 4*time.Second)
	sent(100, 4)
	with(1, 150, 6*time.Second)
	sent(150, 6)
	with(1, 30, 6*time.Second) // another link to the same rank
	sent(180, 6)
	links := s.Links
	s.Links = nil // It had no room.
	sent(180, 6)
	s.Links = links
	sent(180, 6)
	c = clusterOf() // no answer
	checkLines(t, scrape(t, h), `nexar_rank_awaited_seconds_total{node="bbbbbbbbbbbb",rank="1"} 6`)
	with(2, 1000, time.Second) // The rank may be another one than before.
	sent(180, 7)
	with(2, 1001, 2*time.Second)
	sent(181, 8)
	c.Nodes = c.Nodes[1:]
	if text := scrape(t, h); strings.Contains(text, id(0)[:idLength]) {
		t.Errorf("a node that has gone is in\n%s", text)
	}
}

// TestReplacedWaits: a rank that takes the place of another among the longest waits is not charged for the time that it has taken over.
func TestReplacedWaits(t *testing.T) {
	c := clusterOf(full(0))
	var others []trace.RankTime
	for i := range trace.WaitedForMax {
		others = append(others, trace.RankTime{Rank: 100 + i, Time: time.Minute})
	}
	k := &c.Nodes[0].Snapshot.Counters[0]
	k.WaitedFor = others
	h := serve(answering(&c))
	checkLines(t, scrape(t, h), `nexar_rank_awaited_seconds_total{node="bbbbbbbbbbbb",rank="1"} 0`)
	k.WaitedFor = slices.Concat(others[:len(others)-1], []trace.RankTime{{Rank: 1, Time: time.Minute + time.Second}})
	checkLines(t, scrape(t, h), `nexar_rank_awaited_seconds_total{node="bbbbbbbbbbbb",rank="1"} 1`)
}

// TestHostile: names that other nodes choose are escaped, their number is bounded, and a repeated one is no error.
func TestHostile(t *testing.T) {
	c := clusterOf(full(0))
	s := c.Nodes[0].Snapshot
	s.Counters[0].Op, s.Counters[0].Plan = `all"reduce\`, "a\nb"
	c.Nodes[0].Name, s.Links[0].Transport = "\xff", "\xff"
	s.Counters[1] = s.Counters[0]
	h := serve(answering(&c))
	checkLines(t, scrape(t, h), `nexar_operations_total{comm_size="2",node="aaaaaaaaaaaa",op="all\"reduce\\",rank="0"} 20`,
		`nexar_operation_algorithm_info{algorithm="a\nb",comm_size="2",node="aaaaaaaaaaaa",op="all\"reduce\\",rank="0"} 1`)
	for i := range 10 * namesMax {
		s.Counters[0].Op, s.Counters[0].Plan = fmt.Sprint("op", i), fmt.Sprint("plan", i)
		s.Links[0].Transport, s.Links[0].Class = fmt.Sprint("t", i), fmt.Sprint("c", i)
		scrape(t, h)
	}
	text := scrape(t, h)
	checkLines(t, text, `nexar_operations_total{comm_size="2",node="aaaaaaaaaaaa",op="other",rank="0"} 20`)
	if n := strings.Count(text, "nexar_links{"); n > pathsMax+1 {
		t.Errorf("%d pairs of a transport and a class, want at most %d", n, pathsMax+1)
	}
	for i := range 10 * pairsMax {
		s.Counters = append(s.Counters, trace.Counter{Op: "barrier", Ranks: i + 1})
	}
	if n := strings.Count(scrape(t, h), "nexar_operations_total{"); n > pairsMax {
		t.Errorf("%d pairs of an operation and a size, want at most %d", n, pairsMax)
	}
	// The largest numbers that the recorder lets pass.
	s.Counters[0].Durations = trace.Durations{Sum: 1<<63 - 1, First: trace.DurationFirst, Counts: make([]uint64, trace.DurationLast-trace.DurationFirst+1)}
	for i := range s.Counters[0].Durations.Counts {
		s.Counters[0].Durations.Counts[i] = 1 << 56
	}
	s.Counters = s.Counters[:1]
	read, err := recorder.Decode(recorder.Encode(*s, wire.Full))
	if err != nil {
		t.Fatal(err)
	}
	c.Nodes[0].Snapshot = &read
	if text := scrape(t, h); !strings.Contains(text, `le="+Inf"} 2.954361355555045`) {
		t.Errorf("with large numbers:\n%s", text)
	}
}

// TestOnePoll: one poll serves all scrapes that arrive meanwhile, and the next scrape polls again.
func TestOnePoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		polls := 0
		h := ClusterHandler(func(context.Context) (trace.Cluster, error) {
			polls++
			time.Sleep(time.Second)
			return clusterOf(full(0)), nil
		})
		var all sync.WaitGroup
		for range scrapesMax {
			all.Go(func() { scrape(t, h) })
		}
		all.Wait()
		if polls != 1 {
			t.Errorf("%d polls for %d scrapes", polls, scrapesMax)
		}
		if scrape(t, h); polls != 2 {
			t.Errorf("%d polls after another scrape, want 2", polls)
		}
	})
}

// TestSlowPoll: a poll ends before Prometheus gives up, and more scrapes than scrapesMax at a time are refused.
func TestSlowPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := ClusterHandler(func(ctx context.Context) (trace.Cluster, error) {
			<-ctx.Done()
			return trace.Cluster{}, ctx.Err()
		})
		var all sync.WaitGroup
		for range scrapesMax {
			all.Go(func() { checkLines(t, scrape(t, h), "nexar_cluster_up 0") })
		}
		synctest.Wait()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		if w.Code != http.StatusServiceUnavailable {
			t.Errorf("status %d with %d other scrapes, want 503", w.Code, scrapesMax)
		}
		began := time.Now()
		if all.Wait(); time.Since(began) != pollTimeout {
			t.Errorf("the poll took %v, want %v", time.Since(began), pollTimeout)
		}
	})
}

// TestNode: the handler of a node shows its calls while it works, also when it is closed meanwhile, and afterwards.
func TestNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var handlers [2]http.Handler
		check := func(rank int, when string) {
			text := scrape(t, handlers[rank])
			if !strings.Contains(text, fmt.Sprintf("op=\"all_reduce\",rank=\"%d\"} 1\n", rank)) || strings.Contains(text, "nexar_cluster") {
				t.Errorf("%s, rank %d shows\n%s", when, rank, text)
			}
		}
		w := nexartest.New(t, 2)
		w.Start(func(ctx context.Context, node *nexar.Node) error {
			c := node.World()
			handlers[c.Rank()] = Handler(node)
			if err := nexar.AllReduce(ctx, c, []float32{1, 2}, nexar.Sum); err != nil {
				return err
			}
			check(c.Rank(), "in the program")
			var scrapes sync.WaitGroup
			for range 4 {
				scrapes.Go(func() { check(c.Rank(), "while it closes") })
			}
			defer scrapes.Wait()
			return node.Close()
		})
		for rank, err := range w.Wait() {
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
			check(rank, "when it is closed")
		}
	})
}

// TestDocument: docs/metrics.md lists the metrics of the table, with their labels and help texts.
func TestDocument(t *testing.T) {
	const begin, end = "<!-- metrics -->\n", "<!-- end -->\n"
	b, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	from, to := strings.Index(text, begin)+len(begin), strings.Index(text, end)
	if want := document(); from < len(begin) || to < from || text[from:to] != want {
		t.Errorf("docs/metrics.md differs from the table. Between %q and %q it must have\n%s", begin, end, want)
	}
}

// document returns the table in Markdown.
func document() string {
	var b strings.Builder
	b.WriteString("| Metric | Labels | Meaning |\n|---|---|---|\n")
	for _, r := range table {
		kind := map[prometheus.ValueType]string{gauge: "Gauge", counter: "Counter", histogram: "Histogram"}[r.kind]
		if r.ofCluster {
			kind += " of clusters"
		}
		labels := "`" + strings.ReplaceAll(r.labels, " ", "` `") + "`"
		if r.labels == "" {
			labels = ""
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s. %s |\n", r.name, labels, kind, r.help)
	}
	return b.String()
}

// BenchmarkScrape measures a scrape of a node that makes calls meanwhile, and of a cluster of 128 nodes.
func BenchmarkScrape(b *testing.B) {
	comms, err := nexar.Local(b.Context(), 2, nexar.Config{})
	if err != nil {
		b.Fatal(err)
	}
	var calls sync.WaitGroup
	ctx, cancel := context.WithCancel(b.Context())
	for _, c := range comms {
		calls.Go(func() {
			for nexar.AllReduce(ctx, c, []float32{1}, nexar.Sum) == nil {
			}
		})
	}
	var many trace.Cluster
	for rank := range 128 {
		s := full(0)
		s.Node, s.Rank = fmt.Sprintf("%012x", rank), rank
		many.Nodes = append(many.Nodes, trace.Node{Rank: rank, Node: s.Node, Snapshot: s})
	}
	many.Formed = true
	for name, c := range map[string]*collector{
		"node":    newCollector(func(context.Context) (trace.Cluster, error) { return alone(comms[0].Trace()), nil }, false),
		"cluster": answering(&many),
	} {
		b.Run(name, func(b *testing.B) {
			h := serve(c)
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/metrics", nil))
			}
		})
	}
	cancel()
	calls.Wait()
	for _, c := range comms {
		c.Close()
	}
}
