package command

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nexar-go/nexar/internal/command/internal/doctor"
)

func newDoctor(s streams, h Hardware) *cobra.Command {
	var asJSON bool
	var seed string
	var local, world int
	cmd := &cobra.Command{
		Use:   "doctor [flags]",
		Short: "Check this machine and its settings, and explain how to fix problems",
		Long: `Check UDP and TCP ports of this machine, the addresses that other hosts would use,
UDP buffers, and NEXAR_* variables that are malformed or misspelt. Say which launcher
(Slurm, Kubernetes, torchrun, mpiexec, mpirun) started this process, and why it was not
another. Compare the limits of open files, threads and memory with the needs of -n
ranks on this host in a world of --world ranks. If --seed or NEXAR_SEEDS names seeds,
dial them over UDP and TCP, prove the token, and have the seed check NEXAR_ADVERTISE,
all without joining; if Join would fail, print the reason. Then form a cluster of two
ranks on the loopback interface, verify results and measure times.

Run it in the environment of your program, and in its container.

The status of a finding is ok, note (for information), warn (nexar works with
restrictions) or fail. The line below a finding tells how to fix it.

JSON is one object: healthy (false if a finding is fail), and findings, each with
about (the subject), status, text, and fix if there is a problem.

EXIT STATUS
  0  no finding is fail
  1  a finding is fail
  2  wrong usage`,
		Example: `  nexar doctor
  nexar doctor --seed 10.0.0.1
  nexar doctor -n 8 --world 256
  docker run --rm my-training-image nexar doctor --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case local < 1 || local > processesMax:
				return usagef("-n %d: must be between 1 and %d", local, processesMax)
			case cmd.Flags().Changed("world") && world < 1:
				return usagef("--world %d: must be at least 1", world)
			case world > 0 && !cmd.Flags().Changed("processes"):
				local = min(local, world)
			case world > 0 && world < local:
				return usagef("--world %d: must be at least the number of processes on this host (%d)", world, local)
			}
			var seeds []string
			if seed != "" {
				if err := checkAddrs(seed); err != nil {
					return err
				}
				seeds = strings.Split(seed, ",")
			}
			findings := append(doctor.Examine(cmd.Context(), seeds, local, world, h.Locks), h.findings()...)
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
	cmd.Flags().StringVar(&seed, "seed", "", "`address` of the seed, or several separated by commas (default: NEXAR_SEEDS)")
	cmd.Flags().IntVarP(&local, "processes", "n", runtime.NumCPU(), "number of ranks on this host")
	cmd.Flags().IntVar(&world, "world", 0, "number of ranks on all hosts (default -n)")
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
		verdict = "nexar does not work here: fix the findings with the status fail."
	}
	_, err := fmt.Fprintf(s.out, "\n%s\n", verdict)
	return err
}
