// Package cluster tests whole clusters from outside: processes that are killed, stopped
// and cut off, hosts with a network between them, and clients without the token.
//
// It has tests only. A test forms a world in its own process (form), or starts workers
// (newWorkerSet): processes of the test binary with NEXAR_* in their environment, which
// execute commands and report results. On Linux, root can also give every worker its own
// host (newNetwork): a network namespace, connected to the others by a bridge. The namespaces
// have no names and end with the process of the test.
package cluster
