// Package campaign runs the same work on several systems, in turn, and records their
// output.
//
// Most callers call [Build] for the programs, select from [Settings], and call
// [Campaign.Measure] for each. A [Setting] has the placement of the ranks and the systems
// as data: to add a system, add a line.
//
// A turn is one start of one system for one operation, and lasts about a second. In every round each
// system has a turn for each operation, so that other load of the machine affects all alike, and the
// state of the processors is recorded before and after it. Failures are recorded. A system gets no
// more turns for an operation after two consecutive failures, and none if its program could not be
// built; then the result says why. No process of a turn outlives it: on Linux, descendants that have
// left their process group are killed, too. A Campaign must not be used concurrently.
package campaign
