//go:build linux || freebsd

package main

import "testing"

// Only these systems end a process with its parent, however that ends.
func TestScriptsParentDeath(t *testing.T) { runScripts(t, "parentdeath") }
