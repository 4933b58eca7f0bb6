// Package campaign runs the same work on several systems, in turn, and keeps
// what they print.
//
// Most people call Build for the programs, choose of Settings, and call
// Campaign.Measure for each. A Setting says where the ranks are and which
// systems take part; it is data, so that a new system is a new line.
//
// In every round each system runs once, so that what else happens on the
// machine falls on all of them. A system that fails is noted, and left out
// after it has failed twice in a row; a program that could not be built is
// noted with what to install. Nothing a run has started outlives it: its
// processes are ended as groups, and on Linux those that have left their group
// as well. A Campaign measures one setting at a time.
package campaign
