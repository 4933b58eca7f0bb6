// Package results turns what the programs of the comparison print into tables,
// drawings and a page.
//
// Most people call Parse on the output of the ranks of one run, Merge to make
// entries of a File of it, and WritePage for the files of all settings.
//
// A time is the median of a rank's iterations, then the largest over the
// ranks, since an operation is as slow as its slowest rank, then the median
// over the rounds. Two systems differ if their quartiles over the rounds do
// not overlap. Errors name the line, file or rank they are about. All but
// writing files is pure, and nothing here may be called concurrently on one
// File.
package results
