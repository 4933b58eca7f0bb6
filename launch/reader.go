package launch

import (
	"fmt"
	"strconv"

	"github.com/nexar-go/nexar/launch/internal/text"
)

// A reader reads variables and keeps the first error.
type reader struct {
	vars    map[string]string
	err     error
	partial bool // err says that a variable is absent
}

// answer returns what the variables say.
func (r *reader) answer(p Process) answer {
	return answer{process: p, err: r.err, partial: r.partial}
}

// has reports whether all variables are set.
func (r *reader) has(names ...string) bool {
	for _, name := range names {
		if r.vars[name] == "" {
			return false
		}
	}
	return true
}

// any reports whether one of the variables is set.
func (r *reader) any(names ...string) bool {
	for _, name := range names {
		if r.vars[name] != "" {
			return true
		}
	}
	return false
}

// need fails unless the other variables of a launcher are set, too.
func (r *reader) need(present string, names ...string) {
	for _, name := range names {
		if r.err == nil && r.vars[name] == "" {
			r.partial = true
			r.err = fmt.Errorf("%s is %s, but %s is not set: expected both: start all processes by the launcher, or unset %s",
				present, text.Quote(r.vars[present]), name, present)
		}
	}
}

func (r *reader) text(name string) string { return r.vars[name] }

// number returns a variable that must be a whole number of at least 0.
func (r *reader) number(name string) int {
	n, ok := parseNumber(r.vars[name])
	if !ok && r.err == nil {
		r.err = fmt.Errorf("%s is %s: expected a number from 0 to %d: correct or unset it", name, text.Quote(r.vars[name]), numberMax)
	}
	return n
}

// optional is like number, but returns otherwise if the variable is not set.
func (r *reader) optional(name string, otherwise int) int {
	if !r.has(name) {
		return otherwise
	}
	return r.number(name)
}

// first returns the name of the first variable that is set, or the last name.
func (r *reader) first(names ...string) string {
	for _, name := range names[:len(names)-1] {
		if r.has(name) {
			return name
		}
	}
	return names[len(names)-1]
}

const numberMax = 1<<31 - 1

// parseNumber parses up to 10 decimal digits: no sign, no space.
func parseNumber(s string) (int, bool) {
	if len(s) > 10 {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || n > numberMax {
		return 0, false
	}
	return int(n), true
}
