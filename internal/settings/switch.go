package settings

import (
	"fmt"
	"slices"
)

// switchedOn reads a variable that is 0 or 1, or empty, which is 1.
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

// Switch takes an item out of a list if a variable says so, which is 1 by default.
// An empty list stands for all items. If nothing is left, it is rest.
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

// Opposite is what two variables of opposite meaning say together: value is what the
// first makes of its field. The second one is 1 by default.
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

// Overruled finds a program that has set a field of such variables where the
// environment asks for the contrary.
func Overruled(program, environment bool, field, name, opposite string, set map[string]string) error {
	for _, v := range []string{name, opposite} {
		if set[v] != "" && program && !environment {
			return fmt.Errorf("%s=%q: but the program sets %s", v, set[v], field)
		}
	}
	return nil
}
