package settings

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// An UnknownVariable is a variable that is not known. Fix is advice for the user.
type UnknownVariable struct{ Name, Fix string }

// Unknown returns the variables of an environment, in the form of os.Environ, that begin with prefix
// and are not known, ordered by name.
func Unknown(environ []string, prefix string, known []string) (list []UnknownVariable) {
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, prefix) || value == "" || slices.Contains(known, name) {
			continue
		}
		fix := "nobody reads it: unset it"
		if near := Nearest(name, prefix, known); near != "" {
			fix = fmt.Sprintf("did you mean %s?", near)
		}
		list = append(list, UnknownVariable{name, fix})
	}
	slices.SortFunc(list, func(a, b UnknownVariable) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Nearest returns the name that differs least from written. It returns "" if every name differs
// too much and does not contain written. All begin with prefix, which it ignores.
func Nearest(written, prefix string, names []string) string {
	written = strings.TrimPrefix(written, prefix)
	best, least := "", math.MaxInt
	for _, name := range names {
		bare := strings.TrimPrefix(name, prefix)
		d := distance(written, bare)
		similar := d <= 1+len(written)/3 || strings.Contains(bare, written)
		if similar && d < least {
			best, least = name, d
		}
	}
	return best
}

// distance returns the number of insertions, deletions and replacements of characters that turn a
// into b.
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
