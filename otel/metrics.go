package otel

import (
	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/metrics"
)

// NewProducer returns a producer of the metrics of a node, with the names of package [metrics], for a reader of OpenTelemetry:
//
//	reader := metric.NewPeriodicReader(exporter, metric.WithProducer(otel.NewProducer(node)))
//	provider := metric.NewMeterProvider(metric.WithReader(reader))
func NewProducer(n *nexar.Node) metric.Producer {
	r := prometheus.NewRegistry()
	r.MustRegister(metrics.NewCollector(n))
	return bridge.NewMetricProducer(bridge.WithGatherer(r))
}
