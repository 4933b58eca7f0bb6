package otel

import (
	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/metrics"
)

// Metrics returns the metrics of a node, with the names of package [metrics], for a reader of OpenTelemetry:
//
//	reader := metric.NewPeriodicReader(exporter, metric.WithProducer(otel.Metrics(node)))
//	provider := metric.NewMeterProvider(metric.WithReader(reader))
func Metrics(n *nexar.Node) metric.Producer {
	r := prometheus.NewRegistry()
	r.MustRegister(metrics.Collector(n))
	return bridge.NewMetricProducer(bridge.WithGatherer(r))
}
