package command

import (
	"strings"

	"github.com/spf13/cobra"
)

// newHelp returns the command help. Unlike that of cobra, it fails for an unknown command.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Show the help of a command",
		ValidArgsFunction: func(_ *cobra.Command, args []string, begun string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
			for _, cmd := range root.Commands() {
				if len(args) == 0 && cmd.IsAvailableCommand() && strings.HasPrefix(cmd.Name(), begun) {
					names = append(names, cmd.Name())
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil {
				return &usageError{err}
			}
			if err := noArgs(cmd, rest); err != nil {
				return err
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}

// rejectShells makes the command completion fail for a shell that it does not know.
func rejectShells(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	cmd, _, err := root.Find([]string{"completion"})
	if err != nil || cmd == root {
		return
	}
	var shells []string
	for _, shell := range cmd.Commands() {
		shells = append(shells, shell.Name())
	}
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usagef("shell %q: want %s", args[0], strings.Join(shells, ", "))
		}
		return cmd.Help()
	}
}
