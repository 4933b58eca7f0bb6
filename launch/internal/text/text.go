// Package text makes values from outside readable in errors.
package text

import (
	"fmt"
	"strings"
)

// Quote shortens a value from outside for an error.
func Quote(s string) string {
	const most = 80
	if len(s) > most {
		return fmt.Sprintf("%q… (%d bytes)", s[:most], len(s))
	}
	return fmt.Sprintf("%q", s)
}

// Plain quotes a name from outside only if it is long or has other characters than names have.
func Plain(s string) string {
	odd := func(c rune) bool { return c <= ' ' || c > '~' }
	if len(s) > 256 || strings.ContainsFunc(s, odd) {
		return Quote(s)
	}
	return s
}
