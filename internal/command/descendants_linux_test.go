package command

import "testing"

// Only Linux makes a process the parent of all that its descendants leave behind.
func TestScriptsLinux(t *testing.T) { runScripts(t, "linux") }
