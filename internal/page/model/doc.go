// Package model turns the answers of a seed into what is shown of a cluster: on the page and in a terminal.
//
// A [Model] takes one [trace.Cluster] after the other, and returns a [View] of each. It remembers what one answer does not
// have: rates, since when a rank is in its state, the throughput of the last minutes, and the slowest calls. It is pure: the time is a
// parameter. All of it is bounded by the number of ranks, however long it runs.
package model
