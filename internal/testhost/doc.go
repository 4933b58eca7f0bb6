// Package testhost creates hosts for tests: network namespaces that are connected by a
// bridge.
//
// A test calls [New] and starts processes on the hosts with [Host.Start]. The namespaces
// have no names and end with the process of the test, however it ends. They require Linux
// and root; elsewhere New skips the test by package require.
//
// [FreePort] needs neither. It finds a port on loopback for a process that is restarted.
//
// Functions with a testing.TB are called by the goroutine of the test; all others may be
// called concurrently.
package testhost
