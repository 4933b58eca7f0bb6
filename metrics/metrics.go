// Package metrics shows a node, or all nodes of a cluster, to Prometheus.
//
//	http.Handle("/metrics", metrics.Handler(node))
//
// A program that has a registry of its own registers the result of [NewCollector]. Metrics of the runtime of Go are left to the program. "nexar run --metrics" and
// "nexar seed --metrics" serve the metrics of all nodes for programs that do nothing. docs/metrics.md lists the metrics.
//
// # Bounds
//
// A node has at most 24 pairs of an operation and a size of communicators, 25 time series for each, 5 for each pair of a transport and a class of
// its links, and about 30 others. A rank of an ordinary program has about 150. No label has the other rank of a link or of a wait. Label
// values from other nodes are checked: after 64 names of operations, and as many of algorithms and transports, further ones become "other".
package metrics

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/trace"
)

const (
	// pollTimeout is the longest time of a poll. Prometheus waits for 10 s by default.
	pollTimeout = 8 * time.Second
	// scrapesMax is the maximum number of scrapes at a time.
	scrapesMax = 32
)

// Handler returns a handler that serves the metrics of a node.
func Handler(n *nexar.Node) http.Handler { return serve(NewCollector(n)) }

// NewCollector returns a collector of the metrics of a node, for a registry of the program.
func NewCollector(n *nexar.Node) prometheus.Collector {
	return newCollector(func(context.Context) (trace.Cluster, error) { return alone(n.Trace()), nil }, false)
}

// alone returns the cluster of a node without the others.
func alone(s trace.Snapshot) trace.Cluster {
	return trace.Cluster{Time: s.Time, Epoch: s.Epoch, Joined: s.Size, Nodes: []trace.Node{{Rank: s.Rank, Node: s.Node, Name: s.Name, Snapshot: &s}}}
}

// ClusterHandler returns a handler that serves the metrics of all nodes of a cluster, which query returns, as [nexar.QueryCluster] does. One call of
// query serves all scrapes that arrive meanwhile. Its context ends after 8 seconds, and not with a scrape. After an error the only metric is
// nexar_cluster_up, with the value 0.
func ClusterHandler(query func(context.Context) (trace.Cluster, error)) http.Handler {
	return serve(newCollector(query, true))
}

func serve(c prometheus.Collector) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: scrapesMax, EnableOpenMetrics: true})
}

// A collector polls a cluster at each scrape.
type collector struct {
	query   func(context.Context) (trace.Cluster, error)
	metrics map[string]metric // by name

	mu      sync.Mutex
	running *poll // or nil
	totals  *totals
}

// A poll is a call of query that several scrapes wait for.
type poll struct {
	done    chan struct{}
	metrics []prometheus.Metric
}

func newCollector(query func(context.Context) (trace.Cluster, error), isCluster bool) *collector {
	c := &collector{query: query, metrics: make(map[string]metric), totals: newTotals()}
	for _, r := range table {
		if isCluster || !r.ofCluster {
			c.metrics[r.name] = metric{prometheus.NewDesc(r.name, r.help, strings.Fields(r.labels), nil), r.kind}
		}
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(descs chan<- *prometheus.Desc) {
	for _, m := range c.metrics {
		descs <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	c.mu.Lock()
	p := c.running
	if p != nil {
		c.mu.Unlock()
		<-p.done
	} else {
		p = &poll{done: make(chan struct{})}
		c.running = p
		c.mu.Unlock()
		c.run(p)
	}
	for _, m := range p.metrics {
		metrics <- m
	}
}

// run does a poll. One runs at a time.
func (c *collector) run(p *poll) {
	ctx, cancel := context.WithTimeout(context.Background(), pollTimeout)
	defer cancel()
	defer func() { // also after a panic of query, so that no scrape waits forever
		c.mu.Lock()
		c.running = nil
		c.mu.Unlock()
		close(p.done)
	}()
	cluster, err := c.query(ctx)
	s := samples{totals: c.totals, metrics: c.metrics}
	s.cluster(&cluster, err)
	p.metrics = s.list
}
