// Command nexar starts, measures and examines clusters.
//
//	nexar run      starts a program as several ranks on this host
//	nexar seed     admits the nodes of a cluster of several hosts
//	nexar status   says where all nodes of a cluster are, and who is late
//	nexar token    makes the secret of a cluster
//	nexar bench    measures all operations, and checks their results
//	nexar doctor   says what is wrong with this machine, and how to mend it
//	nexar version  says what this binary is
//
// Every command explains itself: nexar run --help. The exit status is 0 if all
// went well, 1 if what was asked for failed, 2 if it was asked for wrongly;
// nexar run passes on that of the program.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/nexar-go/nexar/cmd/nexar/internal/launch"
)

func main() { os.Exit(execute(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// Exit statuses that are not those of a program.
const (
	statusOK     = 0
	statusFailed = 1
	statusUsage  = 2
)

// A usageError says that a command was called wrongly.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// usagef makes a usageError.
func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// A statusError ends the command with a status; everything has been said.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// A streams is where a command reads and writes.
type streams struct {
	in       *os.File
	out, err io.Writer
}

// execute runs the command and returns its exit status.
func execute(args []string, in *os.File, out, err io.Writer) int {
	root := newRoot(streams{in, out, err})
	root.SetArgs(args)
	called, failure := root.ExecuteContextC(context.Background())
	return conclude(err, called, failure)
}

// conclude writes an error, unless that has been done, and returns the exit
// status for it.
func conclude(w io.Writer, called *cobra.Command, err error) int {
	if err == nil {
		return statusOK
	}
	if status, ok := errors.AsType[statusError](err); ok {
		return int(status)
	}
	if failure, ok := errors.AsType[*launch.Failure](err); ok {
		return failure.Code()
	}
	// What the API says of itself is said already.
	text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "nexar: "), called.Name()+": ")
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

// printable replaces the characters of an error that are commands to a
// terminal. Errors that are joined have a line each.
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

func newRoot(s streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "nexar",
		Short: "Start, measure and examine clusters of nexar programs",
		Long: `Nexar starts, measures and examines clusters of programs that use
github.com/nexar-go/nexar.

On one host, "nexar run" is all there is to know: it starts a program as
several ranks. On several hosts, start "nexar seed" on one of them; it says
what to run on the others.

SETTINGS
  What programs do not set themselves they take from variables NEXAR_*, such as
  NEXAR_TRANSPORTS=tcp,quic. docs/config.md lists all of them. "nexar doctor"
  says which are set, and which are malformed or misspelt.

EXIT STATUS
  0  all went well
  1  what was asked for has failed; the reason is on standard error
  2  the command was called wrongly
  "nexar run" exits with the status of the program.`,
		Example: `  nexar run -n 4 -- ./train          a cluster of four ranks on this host
  nexar seed --world 8               a cluster of eight ranks on several hosts
  nexar status --seed 10.0.0.1:7000  where its nodes are, and who is late
  nexar bench -n 4                   how fast it is here
  nexar doctor                       what could be better`,
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
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.AddCommand(newRun(s), newSeed(s), newStatus(s), newToken(s), newBench(s), newDoctor(s), newVersion(s))
	root.AddCommand(manualCommands(s)...)
	for _, cmd := range append(root.Commands(), root) {
		cmd.DisableFlagsInUseLine = true
	}
	return root
}

// noArgs refuses arguments.
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
