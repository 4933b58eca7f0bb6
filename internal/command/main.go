// Package command is the command nexar, for cmd/nexar, and for commands that add hardware to it.
package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nexar-go/nexar/internal/command/internal/launch"
)

// Main runs the command with the arguments and the standard streams of the process, and ends the process.
func Main(h Hardware) { os.Exit(execute(h, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// Exit statuses of the command itself.
const (
	statusOK     = 0
	statusFailed = 1
	statusUsage  = 2
)

// A usageError reports wrong usage of a command.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// usagef returns a usageError.
func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// A statusError ends the command with a status and without a message.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// streams are the standard streams of a command.
type streams struct {
	in       *os.File
	out, err io.Writer
}

// execute runs the command and returns its exit status.
func execute(h Hardware, args []string, in *os.File, out, err io.Writer) int {
	root := newRoot(streams{in, out, err}, h)
	root.SetArgs(withoutNP(root, args))
	help := &helpWriter{w: out}
	root.SetOut(help)
	called, failure := root.ExecuteContextC(context.Background())
	return conclude(err, called, cmp.Or(failure, help.err))
}

// A helpWriter keeps the first error in writing help. Cobra discards it.
type helpWriter struct {
	w   io.Writer
	err error
}

func (h *helpWriter) Write(b []byte) (int, error) {
	if h.err == nil {
		_, h.err = h.w.Write(b)
	}
	return len(b), nil
}

// conclude prints err, unless it was printed, and returns the exit status.
func conclude(w io.Writer, called *cobra.Command, err error) int {
	if err == nil {
		return statusOK
	}
	if status, ok := errors.AsType[statusError](err); ok {
		return int(status)
	}
	if ended, ok := errors.AsType[*launch.SignalError](err); ok {
		return ended.Code()
	}
	if failure, ok := errors.AsType[*launch.Failure](err); ok {
		return failure.Code()
	}
	// Do not repeat the prefix of errors of the API.
	text := err.Error()
	for _, prefix := range []string{"nexar: ", called.Name() + ": ", "query cluster: ", "environment: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	fmt.Fprintf(w, "%s: %s\n", called.CommandPath(), printable(text))
	if missing, ok := errors.AsType[*launch.StartError](err); ok {
		return missing.Code()
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		fmt.Fprintf(w, "See '%s --help'.\n", called.CommandPath())
		return statusUsage
	}
	return statusFailed
}

// printable escapes characters that a terminal would interpret. Line breaks separate joined errors and
// stay.
func printable(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r == '\n' || unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
	}
	return b.String()
}

func newRoot(s streams, h Hardware) *cobra.Command {
	root := &cobra.Command{
		Use:   cmp.Or(h.Command, "nexar"),
		Short: "Start, measure and examine clusters of nexar programs",
		Long: `Start, measure and examine clusters of programs that use
github.com/nexar-go/nexar.

On one host, "nexar run" starts a program as several ranks. On several hosts, start
"nexar seed" on one of them; it prints the commands for the others.

SETTINGS
  Programs read settings from NEXAR_* variables, such as NEXAR_TRANSPORTS=tcp,quic;
  docs/config.md lists them. "nexar doctor" shows those that are set, and
  whether they are malformed or misspelt.
` + h.Settings + `
EXIT STATUS
  0  success
  1  failure; the reason is on standard error
  2  wrong usage
  130 after Ctrl-C, 143 after SIGTERM
  "nexar run" exits with the status of the program.`,
		Example: `  nexar run -n 4 -- ./train          a cluster of four ranks on this host
  nexar seed --world 8               a cluster of eight ranks on several hosts
  nexar status --seed 10.0.0.1:7946  the operations of its ranks
  nexar bench -n 4                   measure this host
  nexar simulate -n 1024             predict the times of 1024 ranks
  nexar doctor                       check this host`,
		Args:          noArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SuggestionsMinimumDistance = 2
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return &usageError{flagError(cmd, err)} })
	root.AddCommand(newRun(s), newSeed(s), newStatus(s), newTop(s), newTrace(s), newToken(s), newTicket(s), newBench(s, h), newSimulate(s), newDoctor(s, h), newVersion(s))
	root.AddCommand(manualCommands(s)...)
	root.SetHelpCommand(newHelp(root))
	rejectShells(root)
	addCompletions(root, h)
	h.named(root)
	for _, cmd := range append(root.Commands(), root) {
		cmd.DisableFlagsInUseLine = true
	}
	return root
}

// flagError replaces errors of strconv and time by one that describes valid values, and suggests a flag
// for an unknown one.
func flagError(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if near := nearestFlag(cmd, unknown.GetSpecifiedName()); near != "" {
			return fmt.Errorf("%w: did you mean --%s?", err, near)
		}
		return err
	}
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	flag := invalid.GetFlag()
	want := "want a " + flag.Value.Type()
	switch flag.Value.Type() {
	case "int", "int64":
		want = "want a whole number"
	case "duration":
		want = "want a duration such as 30s or 1m30s"
	case "bool":
		want = "want true or false"
	}
	name := "--" + flag.Name
	if flag.Shorthand != "" {
		name = "-" + flag.Shorthand + ", " + name
	}
	return fmt.Errorf("%s %q: %s", name, invalid.GetValue(), want)
}

// withoutNP replaces -np and --np, the number of processes in mpirun, by -n. Arguments of the program of nexar run stay.
func withoutNP(root *cobra.Command, args []string) []string {
	args = slices.Clone(args)
	cmd, _, err := root.Find(args[:min(1, len(args))])
	if err != nil || cmd.Flags().ShorthandLookup("n") == nil {
		return args
	}
	for i := 1; i < len(args) && strings.HasPrefix(args[i], "-") && args[i] != "--"; i++ {
		if args[i] == "-np" || args[i] == "--np" {
			args[i] = "-n"
		}
		name := strings.TrimLeft(args[i], "-")
		flag := cmd.Flags().Lookup(name)
		if len(name) == 1 {
			flag = cmd.Flags().ShorthandLookup(name)
		}
		if flag != nil && flag.NoOptDefVal == "" {
			i++ // the value
		}
	}
	return args
}

// nearestFlag returns the flag of a command that is most likely meant by an unknown name, or "".
func nearestFlag(cmd *cobra.Command, name string) string {
	if name == "nproc" { // the flag of other launchers
		name = "processes"
	}
	// Cobra suggests only commands. In a name of two or three letters, one wrong letter is the limit.
	flags := &cobra.Command{SuggestionsMinimumDistance: min(2, len(name)/2)}
	begins := "" // a flag with which the name begins, such as --max for --max-size
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if strings.HasPrefix(name, f.Name+"-") {
			begins = f.Name
		}
		flags.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	for _, suggestion := range flags.SuggestionsFor(name) {
		return suggestion
	}
	return begins
}

// noArgs rejects arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasParent() {
		return usagef("unexpected argument %q", args[0])
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return usagef("unknown command %q: did you mean %s?", args[0], strings.Join(near, " or "))
	}
	return usagef("unknown command %q", args[0])
}
