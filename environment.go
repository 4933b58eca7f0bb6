package nexar

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
)

// envPrefix is what the variables of this package begin with.
const envPrefix = "NEXAR_"

// UnknownEnv finds the variables of an environment, as os.Environ has it, that
// begin with NEXAR_ and mean nothing to this package or its commands: most
// likely they are misspelt. Join logs them as warnings.
func UnknownEnv(environ []string) []Problem {
	known := knownEnv()
	var list []Problem
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, envPrefix) || value == "" || slices.Contains(known, name) {
			continue
		}
		p := Problem{What: "unknown variable " + name, Mend: "nobody reads it: unset it"}
		if near := nearest(name, known); near != "" {
			p.Mend = fmt.Sprintf("did you mean %s?", near)
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b Problem) int { return strings.Compare(a.What, b.What) })
	return list
}

// knownEnv are the variables that mean something: those of Config, and those
// that are no settings of a node.
func knownEnv() []string {
	names := []string{"NEXAR_WORLD", "NEXAR_LOCAL_RANK", "NEXAR_REQUIRE", sidecarVariable}
	config := reflect.TypeFor[Config]()
	for i := range config.NumField() {
		names = append(names, variable(config.Field(i).Name))
	}
	return names
}

// nearest is the name that differs least from what was written, or "" if none
// can have been meant: each differs much, and does not hold it either.
func nearest(written string, names []string) string {
	written = strings.TrimPrefix(written, envPrefix)
	best, least := "", math.MaxInt
	for _, name := range names {
		bare := strings.TrimPrefix(name, envPrefix)
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
