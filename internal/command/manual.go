//go:build manual

package command

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manualCommands returns the command that writes man pages and shell completions. It is in binaries
// built with the tag "manual" only, since it needs a Markdown parser ("make manual").
func manualCommands(streams) []*cobra.Command {
	return []*cobra.Command{{
		Use:    "manual DIRECTORY",
		Short:  "Write man pages and shell completions",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE:   func(cmd *cobra.Command, args []string) error { return writeManual(cmd.Root(), args[0]) },
	}}
}

// writeManual writes the man page of each command to dir/man1, and completions to dir/completions.
func writeManual(root *cobra.Command, dir string) error {
	man, completions := filepath.Join(dir, "man1"), filepath.Join(dir, "completions")
	for _, d := range []string{man, completions} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	root.DisableAutoGenTag = true // A date would make every build differ.
	for _, cmd := range append(root.Commands(), root) {
		cmd.Long = markdown(cmd.Long)
	}
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "nexar", Manual: "nexar for Go"}, man); err != nil {
		return err
	}
	for name, write := range map[string]func(file string) error{
		"nexar.bash": func(file string) error { return root.GenBashCompletionFileV2(file, true) },
		"_nexar":     root.GenZshCompletionFile,
		"nexar.fish": func(file string) error { return root.GenFishCompletionFile(file, true) },
		"nexar.ps1":  root.GenPowerShellCompletionFileWithDesc,
	} {
		if err := write(filepath.Join(completions, name)); err != nil {
			return err
		}
	}
	return nil
}

// markdown marks up the help of a command: lines of capital letters are headings, and indented
// lines keep their columns.
func markdown(help string) string {
	text := regexp.MustCompile(`(?m)^[A-Z][A-Z ]+$`).ReplaceAllString(help, "\n# $0\n")
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "  ") {
			b.WriteString("  ")
		}
		b.WriteString(line)
	}
	return b.String()
}
