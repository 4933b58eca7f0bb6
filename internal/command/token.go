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

// clusterToken returns the token of the environment, or "" if there is none. The ranks cannot name its source, since they get it
// from nexar run, so it must be strong unless weak ones are allowed.
func (f *runFlags) clusterToken() (string, error) {
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
	allowed := allowsWeak(os.Getenv(weakVariable)) || slices.ContainsFunc(f.env, func(pair string) bool {
		value, found := strings.CutPrefix(pair, weakVariable+"=")
		return found && allowsWeak(value)
	})
	if err := nexar.CheckToken(token); err != nil && !allowed {
		return "", usagef("%s: %w", source, err)
	}
	return token, nil
}

func newToken(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "token",
		Short: "Print a new cluster token",
		Long: `Print a new cluster token of 256 random bits. All nodes and seeds of a cluster have
the same token: in NEXAR_CLUSTER_TOKEN, or in a file that NEXAR_CLUSTER_TOKEN_FILE
names and that only its owner may access (mode 0600). nexar never sends the token
over the network.

A process with the token can join the cluster. Treat it as a password: distribute it
as a secret of your scheduler or in a file with mode 0600, not on a command line.`,
		Example: `  (umask 077; nexar token > ~/.nexar-token)
  export NEXAR_CLUSTER_TOKEN_FILE=~/.nexar-token

  export NEXAR_CLUSTER_TOKEN=$(nexar token)

  nexar token | kubectl create secret generic cluster --from-file=token=/dev/stdin`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(s.out, nexar.NewToken())
			return err
		},
	}
}

// allowsWeak reports whether a value of weakVariable allows weak tokens.
func allowsWeak(value string) bool {
	on, err := settings.Truth(value)
	return on && err == nil
}
