package command

import (
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// helpWidth is the maximum length of a line of the description of a command.
const helpWidth = 92

// TestHelpIsWrapped: no line of the description of a command is too long for a terminal. Tables of flags and commands to
// paste have lines of any length.
func TestHelpIsWrapped(t *testing.T) {
	commands := 0
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		if commands++; cmd.Name() == "completion" {
			return // written by cobra
		}
		for line := range strings.Lines(cmd.Long) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > helpWidth {
				t.Errorf("%s --help: a line of %d characters, more than %d: %s", cmd.CommandPath(), n, helpWidth, line)
			}
		}
		for _, c := range cmd.Commands() {
			check(c)
		}
	}
	check(newRoot(streams{nil, io.Discard, io.Discard}, Hardware{}))
	if commands < 8 {
		t.Errorf("only %d commands", commands)
	}
}
