// Package results turns the output of the programs of the comparison into tables,
// drawings and a page.
//
// Most callers call [Parse] with the output of the ranks of one turn, [Merge] to make entries
// of a [File], and [WritePage] for the files of all settings.
//
// The time of a rank is the median over its iterations, the time of a turn the maximum over the
// ranks, and the time of a cell the median over the turns in one [State] of the processors. Two
// systems differ if the quartiles of their turns do not overlap. Errors name the line, file or
// rank. Only functions that read or write files have side effects. A File must not be modified
// while other goroutines use it.
package results
