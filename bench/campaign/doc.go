// Package campaign runs the same work on several systems, in turn, and records their
// output.
//
// Most callers call Build for the programs, select from Settings, and call
// Campaign.Measure for each. A Setting has the placement of ranks and the systems; it is
// data, so that a new system is a new line.
//
// In every round each system runs once, so that other load of the machine affects all
// alike. A system that fails is recorded, and left out after two failures in a row; a
// program that could not be built is recorded with the packages to install. No process of
// a run outlives it: processes are ended as groups, and on Linux those that have left
// their group as well. A Campaign measures one setting at a time.
package campaign
