// Package grafana has a dashboard of Grafana and alert rules of Prometheus for the metrics of nexar (docs/metrics.md), and their test with a real
// Prometheus and a real cluster.
package grafana
