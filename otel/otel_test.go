package otel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/nexartest"
	"github.com/nexar-go/nexar/otel"
)

// recorded is an Observer with a recorder of its spans.
func recorded(t *testing.T, cfg otel.Config) (*otel.Observer, *tracetest.SpanRecorder) {
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	t.Cleanup(func() { provider.Shutdown(context.Background()) })
	cfg.TracerProvider, cfg.Propagator = provider, propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	return otel.New(cfg), spans
}

// named returns the spans with a name.
func named(spans *tracetest.SpanRecorder, name string) (list []sdktrace.ReadOnlySpan) {
	for _, s := range spans.Ended() {
		if s.Name() == name {
			list = append(list, s)
		}
	}
	return list
}

// attributes returns the attributes of a span as text.
func attributes(s sdktrace.ReadOnlySpan) map[string]string {
	m := make(map[string]string)
	for _, kv := range s.Attributes() {
		m[string(kv.Key)] = kv.Value.String()
	}
	return m
}

// TestJoin: joining is a span with the rank, and a failed attempt one with its error.
func TestJoin(t *testing.T) {
	o, spans := recorded(t, otel.Config{})
	seed, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: "127.0.0.1:0", World: 1, AllowWeakToken: true})
	if err != nil {
		t.Fatal(err)
	}
	defer seed.Close()
	cfg := nexar.Config{Seeds: []string{seed.Addr()}, AllowWeakToken: true}
	node, err := o.Join(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	o.Watch(node) // It ends when the node is closed: TestMain finds goroutines that remain.
	cfg.Rank = new(7)
	if _, err := o.Join(t.Context(), cfg); err == nil {
		t.Fatal("rank 7 of 1 has joined")
	}
	list := named(spans, "nexar.join")
	if len(list) != 2 || attributes(list[0])["nexar.rank"] != "0" || attributes(list[0])["nexar.size"] != "1" || list[1].Status().Code != codes.Error {
		t.Errorf("got %v", list)
	}
}

// TestCalls: the function of another rank runs in the trace of its caller.
func TestCalls(t *testing.T) {
	o, spans := recorded(t, otel.Config{})
	failure := errors.New("no such item")
	nexartest.Run(t, 2, func(t *testing.T, c *nexar.Comm) {
		o.Register(c, "echo", func(_ context.Context, _ int, args []byte) ([]byte, error) { return args, nil })
		o.Register(c, "fail", func(context.Context, int, []byte) ([]byte, error) { return nil, failure })
		if err := c.Barrier(t.Context()); err != nil {
			t.Fatal(err)
		}
		if c.Rank() == 0 {
			if got, err := o.Call(t.Context(), c, 1, "echo", []byte("hello")); err != nil || string(got) != "hello" {
				t.Errorf("got %q, %v", got, err)
			}
			if _, err := o.Call(t.Context(), c, 1, "fail", nil); err == nil || !strings.Contains(err.Error(), failure.Error()) {
				t.Errorf("got %v, want %v", err, failure)
			}
			if _, err := c.Call(t.Context(), 1, "echo", []byte{200}); err == nil || !strings.Contains(err.Error(), "call it by Observer.Call") {
				t.Errorf("a call without an Observer: %v", err)
			}
		}
		if err := c.Barrier(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	calls, served := named(spans, "nexar.call"), named(spans, "nexar.serve")
	if len(calls) != 2 || len(served) != 2 {
		t.Fatalf("%d calls and %d served, want 2", len(calls), len(served))
	}
	for i, call := range calls {
		if served[i].Parent().SpanID() != call.SpanContext().SpanID() || served[i].SpanContext().TraceID() != call.SpanContext().TraceID() {
			t.Errorf("the function runs in %v, the call is %v", served[i].Parent(), call.SpanContext())
		}
		if got := attributes(served[i]); got["nexar.peer"] != "0" || got["nexar.rank"] != "1" {
			t.Errorf("served: %v", got)
		}
	}
	if calls[1].Status().Code != codes.Error || served[1].Status().Code != codes.Error {
		t.Errorf("the failed call has status %v, at its rank %v", calls[1].Status(), served[1].Status())
	}
}

// TestRecovery: the failure of a node is a span of each other node, and so is the time from the failed operation to the next world. A node that
// joins makes it a reconfiguration.
func TestRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, spans := recorded(t, otel.Config{})
		w := nexartest.Cluster{Config: nexar.Config{HeartbeatTimeout: 2 * time.Second}}.New(t, 3)
		w.Start(func(ctx context.Context, n *nexar.Node) error {
			defer o.Watch(n)()
			for c, err := range o.Epochs(ctx, n) {
				if err != nil {
					return err
				}
				for again := true; again; {
					changed, err := n.Reconfigure(ctx)
					if err != nil && c.Err() == nil {
						return err
					}
					if again = !changed && err == nil; again {
						time.Sleep(time.Second)
					}
				}
				if c.Epoch() >= 3 {
					return nil
				}
			}
			return nil
		})
		time.Sleep(3 * time.Second)
		w.Kill(2)
		time.Sleep(10 * time.Second)
		w.Add()
		time.Sleep(10 * time.Second)
		check := func(name, attribute, value string, least time.Duration) {
			list := named(spans, name)
			if len(list) == 0 {
				t.Errorf("no span %s", name)
			}
			for _, s := range list {
				if got := attributes(s)[attribute]; attributes(s)["nexar.rank"] != "" && (got != value || s.EndTime().Sub(s.StartTime()) < least) {
					t.Errorf("%s has taken %v with %s = %s, want %s", name, s.EndTime().Sub(s.StartTime()), attribute, got, value)
				}
			}
		}
		check("nexar.recovery", "nexar.removed", "1", time.Microsecond)
		check("nexar.reconfiguration", "nexar.joined", "1", 0)
		lost := 0
		for _, s := range named(spans, "nexar.failure") {
			if attributes(s)["nexar.peer"] == "2" {
				lost++
			}
		}
		if lost != 2 {
			t.Errorf("%d nodes report the failure of rank 2, want 2", lost)
		}
	})
}

// TestCollectives: the longest collectives are spans, with the time that they took, also those of the last interval.
func TestCollectives(t *testing.T) {
	o, spans := recorded(t, otel.Config{Interval: time.Hour, Collectives: 1})
	seed, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: "127.0.0.1:0", World: 2, AllowWeakToken: true})
	if err != nil {
		t.Fatal(err)
	}
	defer seed.Close()
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			node, err := nexar.Join(t.Context(), nexar.Config{Seeds: []string{seed.Addr()}, AllowWeakToken: true})
			if err != nil {
				t.Error(err)
				return
			}
			defer node.Close()
			c := node.World()
			if c.Rank() == 0 {
				stop := o.Watch(node)
				defer stop()
				defer stop()
			} else {
				time.Sleep(100 * time.Millisecond)
			}
			if err := nexar.AllReduce(t.Context(), c, make([]float64, 1000), nexar.Sum); err != nil {
				t.Error(err)
			}
			if err := c.Barrier(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	list := named(spans, "nexar.all_reduce")
	if len(list) != 1 {
		t.Fatalf("%d spans", len(list))
	}
	if got := attributes(list[0]); got["nexar.seq"] != "1" || got["nexar.algorithm"] == "" || list[0].EndTime().Sub(list[0].StartTime()) < 50*time.Millisecond {
		t.Errorf("got %v of %v", got, list[0].EndTime().Sub(list[0].StartTime()))
	}
}

// TestMetrics: a reader of OpenTelemetry gets the metrics of package metrics with their names.
func TestMetrics(t *testing.T) {
	seed, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: "127.0.0.1:0", World: 1, AllowWeakToken: true})
	if err != nil {
		t.Fatal(err)
	}
	defer seed.Close()
	node, err := nexar.Join(t.Context(), nexar.Config{Seeds: []string{seed.Addr()}, AllowWeakToken: true})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	for range 3 {
		if err := nexar.AllReduce(t.Context(), node.World(), make([]float64, 10), nexar.Sum); err != nil {
			t.Fatal(err)
		}
	}
	reader := metric.NewManualReader(metric.WithProducer(otel.NewProducer(node)))
	provider := metric.NewMeterProvider(metric.WithReader(reader))
	defer provider.Shutdown(t.Context())
	var got metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	kinds := make(map[string]string)
	for _, s := range got.ScopeMetrics {
		for _, m := range s.Metrics {
			kinds[m.Name] = fmt.Sprintf("%T", m.Data)
			if sum, ok := m.Data.(metricdata.Sum[float64]); ok {
				for _, p := range sum.DataPoints {
					op, _ := p.Attributes.Value("op")
					values[m.Name+" "+op.AsString()] += p.Value
				}
			}
		}
	}
	if values["nexar_operations_total all_reduce"] != 3 {
		t.Errorf("got %v, want 3 of nexar_operations_total all_reduce", values)
	}
	if kinds["nexar_world_size"] == "" {
		t.Errorf("got %v, want nexar_world_size", kinds)
	}
}
