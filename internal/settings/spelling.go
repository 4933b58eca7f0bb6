package settings

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// An UnknownVariable is one that nobody reads, and what can be done about it.
type UnknownVariable struct{ Name, Mend string }

// Unknown finds the variables of an environment, as os.Environ has it, that begin
// with prefix and are none of the known ones, by their names.
func Unknown(environ []string, prefix string, known []string) (list []UnknownVariable) {
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, prefix) || value == "" || slices.Contains(known, name) {
			continue
		}
		mend := "nobody reads it: unset it"
		if near := Nearest(name, prefix, known); near != "" {
			mend = fmt.Sprintf("did you mean %s?", near)
		}
		list = append(list, UnknownVariable{name, mend})
	}
	slices.SortFunc(list, func(a, b UnknownVariable) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Nearest is the name that differs least from what was written, or "" if none
// can have been meant: each differs much, and does not hold it either. All of
// them begin with prefix, which does not count.
func Nearest(written, prefix string, names []string) string {
	written = strings.TrimPrefix(written, prefix)
	best, least := "", math.MaxInt
	for _, name := range names {
		bare := strings.TrimPrefix(name, prefix)
		d := distance(written, bare)
		meant := d <= 1+len(written)/3 || strings.Contains(bare, written)
		if meant && d < least {
			best, least = name, d
		}
	}
	return best
}

// distance is the number of characters to insert, delete or replace that make
// a into b.
//
// Wagner and Fischer, "The String-to-String Correction Problem", JACM 21(1),
// 1974.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
