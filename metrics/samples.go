package metrics

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/nexar-go/nexar/trace"
)

// A metric is a row of the table for Prometheus.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// samples are the metrics of a poll.
type samples struct {
	totals  *totals
	metrics map[string]metric // that the collector has
	list    []prometheus.Metric
}

// add adds a sample, if the collector has the metric.
func (s *samples) add(name string, value float64, labels ...string) {
	if m, ok := s.metrics[name]; ok {
		s.list = append(s.list, prometheus.MustNewConstMetric(m.desc, m.kind, value, labels...))
	}
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// cluster adds the metrics of a cluster, or of its error.
func (s *samples) cluster(c *trace.Cluster, err error) {
	s.add("nexar_cluster_up", number(err == nil))
	if err != nil {
		return
	}
	s.totals.update(c)
	s.add("nexar_cluster_formed", number(c.Formed))
	s.add("nexar_cluster_epoch", float64(c.Epoch))
	s.add("nexar_cluster_wanted_nodes", float64(c.World))
	s.add("nexar_cluster_joined_nodes", float64(c.Joined))
	s.add("nexar_cluster_waiting_nodes", float64(c.Waiting))
	seen := make(map[string]bool)
	for i := range c.Nodes {
		if n := &c.Nodes[i]; n.Rank >= 0 && !seen[n.Node] {
			seen[n.Node] = true
			s.node(c, n)
		}
	}
}

// idLength is the number of hexadecimal digits of a NodeID in labels.
const idLength = 12

// node adds the metrics of a node.
func (s *samples) node(c *trace.Cluster, n *trace.Node) {
	of := []string{strconv.Itoa(n.Rank), n.Node[:min(len(n.Node), idLength)]}
	s.add("nexar_rank_info", 1, append(of[:2:2], strings.ToValidUTF8(n.Name, "\uFFFD"))...)
	if n.Snapshot == nil && !c.Formed { // Nobody has asked the node.
		return
	}
	s.add("nexar_rank_up", number(n.Snapshot != nil), of...)
	s.add("nexar_rank_awaited_seconds_total", s.totals.nodes[n.Node].awaited, of...)
	t := n.Snapshot
	if t == nil {
		return
	}
	s.add("nexar_epoch", float64(t.Epoch), of...)
	s.add("nexar_world_size", float64(t.Size), of...)
	s.process(&t.Process, of)
	s.calls(t, of)
	s.links(t, s.totals.nodes[n.Node].sums, of)
	if r := t.Relayed; r != nil {
		for outcome, frames := range map[string]uint64{"forwarded": r.Forwarded, "lost": r.Lost} {
			s.add("nexar_relay_frames_total", float64(frames), append(of[:2:2], outcome)...)
		}
	}
}

func (s *samples) process(p *trace.Process, of []string) {
	s.add("nexar_node_failures_total", float64(p.Failures), of...)
	s.add("nexar_recoveries_total", float64(p.Recoveries), of...)
	s.add("nexar_recovery_seconds_total", p.Recovery.Seconds(), of...)
	if end := p.CertificateEnd; !end.IsZero() {
		s.add("nexar_certificate_expiry_timestamp_seconds", float64(end.Unix()), of...)
	}
	s.add("nexar_dials_total", float64(p.Dials), of...)
	s.add("nexar_dial_failures_total", float64(p.DialFailures), of...)
	s.add("nexar_goroutines", float64(p.Goroutines), of...)
	s.add("nexar_heap_bytes", float64(p.HeapBytes), of...)
	s.add("nexar_pool_lent_buffers", float64(p.LentBuffers), of...)
	s.add("nexar_pool_idle_bytes", float64(p.IdleBytes), of...)
	s.add("nexar_shared_memory_bytes", float64(p.SharedBytes), of...)
}

func (s *samples) calls(t *trace.Snapshot, of []string) {
	running, longest := 0, time.Duration(0)
	for i := range t.Operations {
		if o := &t.Operations[i]; o.Running() {
			running++
			longest = max(longest, o.Duration)
		}
	}
	s.add("nexar_running_operations", float64(running), of...)
	s.add("nexar_longest_operation_seconds", longest.Seconds(), of...)
	seen := make(map[call]bool)
	for i := range min(len(t.Counters), pairsMax) {
		k := &t.Counters[i]
		op := call{s.totals.name(operations, k.Op), k.Ranks}
		if seen[op] { // Another node may send anything.
			continue
		}
		seen[op] = true
		s.counter(k, append(of[:2:2], op.op, strconv.Itoa(op.commSize)))
	}
}

func (s *samples) counter(k *trace.Counter, of []string) {
	s.add("nexar_operations_total", float64(k.Calls), of...)
	s.add("nexar_operation_failures_total", float64(k.Failed), of...)
	s.add("nexar_operation_bytes_total", float64(k.Bytes), of...)
	s.add("nexar_operation_wait_seconds_total", k.Waited.Seconds(), of...)
	if !k.Durations.IsZero() {
		s.list = append(s.list, durations{k.Durations, s.metrics["nexar_operation_duration_seconds"].desc, of})
	}
	if len(k.WaitedFor) > 0 {
		s.add("nexar_operation_slowest_rank", float64(k.WaitedFor[0].Rank), of...)
		s.add("nexar_operation_slowest_rank_wait_seconds", k.WaitedFor[0].Time.Seconds(), of...)
	}
	if k.Plan != "" {
		s.add("nexar_operation_algorithm_info", 1, append(of[:4:4], s.totals.name(algorithms, k.Plan))...)
	}
}

func (s *samples) links(t *trace.Snapshot, sums map[path]*linkSum, of []string) {
	stalled, longest, peer := 0, time.Duration(0), -1
	for _, l := range t.Links {
		if l.Stalled == 0 {
			continue
		}
		if stalled++; l.Stalled > longest {
			longest, peer = l.Stalled, l.Rank
		}
	}
	s.add("nexar_stalled_links", float64(stalled), of...)
	s.add("nexar_longest_link_stall_seconds", longest.Seconds(), of...)
	s.add("nexar_longest_link_stall_peer", float64(peer), of...)
	for p, sum := range sums {
		labels := slices.Concat(of[:2], []string{p.transport, p.class})
		s.add("nexar_links", float64(sum.links), labels...)
		s.add("nexar_link_unacknowledged_bytes", float64(sum.unacknowledged), labels...)
		s.add("nexar_link_sent_bytes_total", float64(sum.sent), labels...)
		s.add("nexar_link_received_bytes_total", float64(sum.received), labels...)
		s.add("nexar_link_connections_total", float64(sum.connections), labels...)
		s.add("nexar_link_stalls_total", float64(sum.stalls), labels...)
	}
}

// durations is a histogram, native for scrapers that ask for it, and with some of its buckets for others.
type durations struct {
	trace.Durations
	desc   *prometheus.Desc
	labels []string
}

// The buckets of a histogram that is not native have the upper bounds 2^n s, from 4 µs to 64 s; n grows by classicStep.
const (
	classicFirst = -18
	classicLast  = 6
	classicStep  = 2
)

// Desc implements prometheus.Metric.
func (d durations) Desc() *prometheus.Desc { return d.desc }

// Write implements prometheus.Metric.
func (d durations) Write(m *dto.Metric) error {
	native := make(map[int]int64)
	for i, n := range d.Counts {
		if n > 0 {
			native[d.First+i] = int64(n)
		}
	}
	h, err := prometheus.NewConstNativeHistogram(d.desc, d.Count(), d.Sum.Seconds(), native, nil, 0, 0, 0, time.Time{}, d.labels...)
	if err != nil {
		return err
	}
	if err := h.Write(m); err != nil {
		return err
	}
	sum, i := uint64(0), 0
	for bound := classicFirst; bound <= classicLast; bound += classicStep {
		for ; i < len(d.Counts) && d.First+i <= bound; i++ {
			sum += d.Counts[i]
		}
		count, upper := sum, math.Ldexp(1, bound)
		m.Histogram.Bucket = append(m.Histogram.Bucket, &dto.Bucket{CumulativeCount: &count, UpperBound: &upper})
	}
	return nil
}
