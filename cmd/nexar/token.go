package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/nexar-go/nexar"
)

func newToken(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "token",
		Short: "Print a new cluster token",
		Long: `Token prints a new cluster token of 256 random bits: the secret that admits
nodes to a cluster. All of its nodes and seeds have the same one, in the
environment variable NEXAR_CLUSTER_TOKEN. It never crosses the network.

Whoever has it can join the cluster, so treat it as a password: hand it out
by a secret of your scheduler or a file that only you can read, not on a
command line.`,
		Example: `  export NEXAR_CLUSTER_TOKEN=$(nexar token)

  nexar token | kubectl create secret generic cluster --from-file=token=/dev/stdin`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(s.out, nexar.NewToken())
			return err
		},
	}
}
