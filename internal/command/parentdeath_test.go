//go:build linux || freebsd

package command

import "testing"

// Only these systems end a process with its parent, however that ends.
func TestScriptsParentDeath(t *testing.T) { runScripts(t, "parentdeath") }
