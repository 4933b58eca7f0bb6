package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"

	"github.com/nexar-go/nexar/cmd/nexar/internal/doctor"
)

func newDoctor(s streams) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor [--json]",
		Short: "Say what is wrong with this machine, and how to mend it",
		Long: `Doctor says what this machine offers to nexar and what is wrong with it:
whether UDP and TCP ports can be opened, at which addresses other hosts would
look for it, whether UDP buffers are large enough, which variables NEXAR_* are
set, malformed or misspelt. Then it forms a cluster of two ranks on the
loopback interface, checks some results and measures how long they take.

Run it with the environment that your program has, in its container if it has
one.

A finding is ok; note, which is worth knowing; warn, with which nexar works
less well than it could; or fail. How to mend it stands below.

JSON is one object: healthy (false if anything fails), and findings, each with
about, status, what, and mend if there is something to mend.

EXIT STATUS
  0  nexar works here
  1  something keeps it from working
  2  nexar doctor was called wrongly`,
		Example: `  nexar doctor
  docker run --rm my-training-image nexar doctor --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			findings := doctor.Examine(ctx)
			healthy := doctor.Healthy(findings)
			if err := writeFindings(s, findings, healthy, asJSON); err != nil {
				return err
			}
			if !healthy {
				return statusError(statusFailed)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

func writeFindings(s streams, findings []doctor.Finding, healthy, asJSON bool) error {
	if asJSON {
		out := json.NewEncoder(s.out)
		out.SetIndent("", "  ")
		return out.Encode(struct {
			Healthy  bool             `json:"healthy"`
			Findings []doctor.Finding `json:"findings"`
		}{healthy, findings})
	}
	if err := doctor.Write(s.out, findings); err != nil {
		return err
	}
	verdict := "nexar works here."
	if !healthy {
		verdict = "nexar does not work like this: see what fails."
	}
	_, err := fmt.Fprintf(s.out, "\n%s\n", verdict)
	return err
}
