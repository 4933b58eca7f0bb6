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
		Long: `Print a new cluster token of 256 random bits. All nodes and seeds of a cluster have
the same token, in the environment variable NEXAR_CLUSTER_TOKEN. It never crosses
the network.

A process with the token can join the cluster. Treat it as a password: distribute it
as a secret of your scheduler or in a file with mode 0600, not on a command line.`,
		Example: `  export NEXAR_CLUSTER_TOKEN=$(nexar token)

  nexar token | kubectl create secret generic cluster --from-file=token=/dev/stdin`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(s.out, nexar.NewToken())
			return err
		},
	}
}
