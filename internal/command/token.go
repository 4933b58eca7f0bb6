package command

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/settings"
)

// The variables with the token of the cluster. At most one may be set.
const (
	tokenVariable     = "NEXAR_CLUSTER_TOKEN"
	tokenFileVariable = "NEXAR_CLUSTER_TOKEN_FILE"
)

// weakVariable allows other tokens than those of nexar token.
const weakVariable = "NEXAR_ALLOW_WEAK_TOKEN"

// clusterToken returns the token of the environment, or "" if there is none. Ranks cannot name its source, since they get it
// from this command, so it must be strong unless a variable of the environment or of the ranks, which are in env, allows weak ones.
func clusterToken(env []string) (string, error) {
	token, file := os.Getenv(tokenVariable), os.Getenv(tokenFileVariable)
	source := tokenVariable
	switch {
	case token != "" && file != "":
		return "", usagef("both %s and %s=%q are set: unset one of them", tokenVariable, tokenFileVariable, file)
	case token == "" && file == "":
		return "", nil
	case file != "":
		var err error
		if token, err = nexar.ReadTokenFile(file); err != nil {
			return "", usagef("%s: %w", tokenFileVariable, err)
		}
		source = fmt.Sprintf("%s: token file %q", tokenFileVariable, file)
	}
	allowed := allowsWeak(os.Getenv(weakVariable)) || slices.ContainsFunc(env, func(pair string) bool {
		value, found := strings.CutPrefix(pair, weakVariable+"=")
		return found && allowsWeak(value)
	})
	if err := nexar.CheckToken(token); err != nil && !allowed {
		return "", usagef("%s: %w", source, err)
	}
	return token, nil
}

func newToken(s streams) *cobra.Command {
	var job string
	cmd := &cobra.Command{
		Use:   "token [--job JOB]",
		Short: "Print a new cluster token, or that of a job",
		Long: `Print a new cluster token of 256 random bits. All nodes and seeds of a cluster have
the same token: in NEXAR_CLUSTER_TOKEN, or in a file that NEXAR_CLUSTER_TOKEN_FILE
names and that only its owner may access (mode 0600). nexar never sends the token
over the network.

A process with the token can join the cluster. Treat it as a password: distribute it
as a secret of your scheduler or in a file with mode 0600, not on a command line.

With --job, print the token of the world that processes of this job form, if a
launcher such as srun has started them. They derive it from the token of
NEXAR_CLUSTER_TOKEN or NEXAR_CLUSTER_TOKEN_FILE and from the name of the job, so that
two jobs with the same token cannot meet. "nexar status" needs it. With NEXAR_LOG=info
the processes log the name of their job and the addresses of their seeds.`,
		Example: `  (umask 077; nexar token > ~/.nexar-token)
  export NEXAR_CLUSTER_TOKEN_FILE=~/.nexar-token

  export NEXAR_CLUSTER_TOKEN=$(nexar token)

  nexar token | kubectl create secret generic cluster --from-file=token=/dev/stdin

  The ranks of the first step of job 12 of Slurm:
    token=$(nexar token --job 12.0.0)
    unset NEXAR_CLUSTER_TOKEN_FILE
    NEXAR_CLUSTER_TOKEN=$token nexar status --seed n1:27656`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("job") {
				_, err := fmt.Fprintln(s.out, nexar.NewToken())
				return err
			}
			if job == "" {
				return usagef("--job is empty: give the name of the job, which its processes log with NEXAR_LOG=info")
			}
			given, err := clusterToken(nil)
			if err != nil {
				return err
			}
			if given == "" {
				return usagef("--job %s: neither %s nor %s is set: set one as for the processes of the job", job, tokenVariable, tokenFileVariable)
			}
			token, err := nexar.JobToken(given, job)
			if err != nil {
				return usagef("%w", err)
			}
			_, err = fmt.Fprintln(s.out, token)
			return err
		},
	}
	cmd.Flags().StringVar(&job, "job", "", "print the token of the world of the `job` with this name")
	return cmd
}

// allowsWeak reports whether a value of weakVariable allows weak tokens.
func allowsWeak(value string) bool {
	on, err := settings.Truth(value)
	return on && err == nil
}
