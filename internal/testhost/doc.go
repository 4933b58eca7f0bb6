// Package testhost gives tests hosts of their own: network namespaces that a
// bridge joins.
//
// A test calls New and starts processes on the hosts with Host.Start. Namespaces
// have no names and live as long as the process of the test, so nothing is left
// behind however the test ends. It works on Linux, for the superuser; elsewhere
// New skips the test by package require.
//
// LogBuffer keeps the output of processes, on every system.
//
// All functions may be called by several goroutines, save those that take a
// testing.TB, which are for the goroutine of the test.
package testhost
