package settings

import (
	"fmt"
	"slices"
)

// switchedOn parses a variable that is 0 or 1. Empty means 1.
func switchedOn(name, value string) (bool, error) {
	if value == "" {
		return true, nil
	}
	on, err := Truth(value)
	if err != nil {
		return false, fmt.Errorf("%s=%q: %w", name, value, err)
	}
	return on, nil
}

// Switch removes item from a list if the variable name is 0; it is 1 by default. An empty list
// means all items. If no item is left, the result is rest alone.
func Switch(list, all []string, item, rest, name string, set map[string]string) ([]string, error) {
	on, err := switchedOn(name, set[name])
	if on || err != nil {
		return list, err
	}
	if len(list) == 0 {
		list = all
	}
	list = slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == item })
	if len(list) == 0 {
		list = []string{rest}
	}
	return list, nil
}

// Opposite combines two variables of opposite meaning, and returns an error if they contradict each
// other. value is the field of the first one. The second one is 1 by default.
func Opposite(value bool, name, opposite string, set map[string]string) (bool, error) {
	on, err := switchedOn(opposite, set[opposite])
	if set[opposite] == "" || err != nil {
		return value, err
	}
	if set[name] != "" && value == on {
		return false, fmt.Errorf("%s=%q contradicts %s=%q: set one of them", opposite, set[opposite], name, set[name])
	}
	return !on, nil
}

// Overruled returns an error if the program has set a field of such variables and the
// environment sets the contrary.
func Overruled(program, environment bool, field, name, opposite string, set map[string]string) error {
	for _, v := range []string{name, opposite} {
		if set[v] != "" && program && !environment {
			return fmt.Errorf("%s=%q: but the program sets %s", v, set[v], field)
		}
	}
	return nil
}
