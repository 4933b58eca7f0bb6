// Package cluster tests whole clusters, from outside: processes that are
// killed, stopped and cut off, hosts with a network between them, strangers
// that try to join.
//
// There is nothing to call here. A test forms a world in its own process
// (form), or hires workers (newCrew): the test binary started again, with
// NEXAR_* in its environment, which carries out one order after another and
// reports how each has ended. On Linux the superuser can also give every
// worker a host of its own (newNetwork): a network namespace, all of them
// joined by a bridge. Namespaces have no names and live as long as the test's
// process, so nothing is left behind however it ends.
package cluster
