// Package campaign runs the same work on several systems, in turn, and records their
// output.
//
// Most callers call [Build] for the programs, select from [Settings], and call
// [Campaign.Measure] for each. A [Setting] has the placement of the ranks and the systems
// as data: to add a system, add a line.
//
// In every round each system runs once, so that other load of the machine affects all
// alike. Failures are recorded. A system is skipped after two consecutive failures, or if
// its program could not be built; then the result names the packages to install. No process
// of a run outlives it: process groups are killed, and on Linux also descendants that have
// left their group. A Campaign must not be used concurrently.
package campaign
