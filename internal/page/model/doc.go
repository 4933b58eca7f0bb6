// Package model turns the answers of a seed into a view of its cluster, for the page and for terminals.
//
// A [Model] takes one [trace.Cluster] after the other, and returns a [View] of each. One answer does not have everything: a Model also
// remembers counts for rates, the beginnings of states, the throughput of the last minutes, and the slowest calls. It is pure: the time is a
// parameter. All of it is bounded by the number of ranks, however long it runs.
package model
