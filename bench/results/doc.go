// Package results turns the output of the programs of the comparison into tables,
// charts and a page.
//
// Most callers call Parse on the output of the ranks of one run, Merge to make entries of
// a File, and WritePage for the files of all settings.
//
// A time is the median over a rank's iterations, then the maximum over the ranks, since an
// operation is as slow as its slowest rank, then the median over the rounds. Two systems
// differ if their quartiles over the rounds do not overlap. Errors name the line, file or
// rank. All functions but those that write files are pure. A File must not be used
// concurrently.
package results
