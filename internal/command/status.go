package command

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/command/internal/launch"
)

const statusHelp = `Ask the seed of a cluster what all ranks do. The first line says it in one sentence:
that all work, or which ranks wait in which operation, for which ranks, and what
these do. Use it when a cluster hangs or seems to. It disturbs nothing, and nodes
need no preparation.

The token of the cluster is in NEXAR_CLUSTER_TOKEN or in the file that
NEXAR_CLUSTER_TOKEN_FILE names, as for its nodes. "nexar seed" prints a token that
it has made. "nexar run" makes a token that it does not print unless
NEXAR_CLUSTER_TOKEN is set; then it prints the command to query its ranks.

The table below has a line for each operation in progress:

  IN         operation, its sequence number in the communicator, and its vector
  COMM       communicator; 1 is the first world
  FOR        time since its start
  ROUND      first incomplete round, and number of rounds
  WAITS FOR  ranks whose data is missing

Lines below the table name other ranks that wait, and

  linked             numbers of links, and their reasons, if not all ranks are
                     linked to each other
  through relays     number of links over relays, the largest number of hops, and
                     the slowest of these links, in a sparse topology
  dropped            numbers of frames that were altered, forged or repeated by
                     relays, and the link with most of the altered ones

Nodes without a snapshot come last, with the reason, such as no answer within 2
seconds because the process is stopped or the host is down.

JSON is one object: formed, epoch (0 before the world has formed), world (number of
nodes it forms with), joined, waiting (nodes that wait to be admitted), time, and
nodes. Each node has rank (-1: none), node, name, addr, and either snapshot, the
result of its Node.Trace, or missing, the reason why there is none. The links of a
snapshot have their reasons (purpose) and, over relays, hops, the first relay and the
round trip in nanoseconds (delay).

EXIT STATUS
  0    the seed answered
  1    no seed could be reached, or it refused: wrong token, the world did not
       form
  2    wrong usage
  130  ended by Ctrl-C`

func newStatus(s streams) *cobra.Command {
	var (
		seed   string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "status [flags]",
		Short: "Show the current operation of every rank, and the ranks that others wait for",
		Long:  statusHelp,
		Example: `  A cluster of several hosts, with the token of its seed:
    export NEXAR_CLUSTER_TOKEN=...
    nexar status --seed 10.0.0.1:7946

  Ranks of this host:
    export NEXAR_CLUSTER_TOKEN=$(nexar token)
    nexar run -n 4 -- ./train
  and, with the same token, the command that nexar run has printed:
    nexar status --seed 127.0.0.1:40123

  Ranks with an operation that has been running for more than a minute:
    nexar status --json | jq '.nodes[]
      | select(.snapshot.operations[]? | .outcome == null and .seconds > 60) | .rank'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkSeedFlag(seed); err != nil {
				return err
			}
			ctx, stop := launch.UntilSignal(cmd.Context(), os.Interrupt)
			defer stop()
			status, err := nexar.QueryCluster(ctx, seedConfig(seed))
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case err != nil:
				return err
			}
			if asJSON {
				out := json.NewEncoder(s.out)
				out.SetIndent("", "  ")
				return out.Encode(status)
			}
			_, err = status.WriteTo(s.out)
			return err
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&seed, "seed", "", seedUsage)
	flags.BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

// seedUsage is the usage of --seed.
const seedUsage = "`address` of the seed, or several separated by commas (default: NEXAR_SEEDS)"

// checkSeedFlag checks the value of --seed.
func checkSeedFlag(seed string) error {
	if seed == "" && os.Getenv("NEXAR_SEEDS") == "" {
		return usagef("--seed is missing: give the address of the seed, or set NEXAR_SEEDS")
	}
	if seed != "" {
		return checkAddrs(seed)
	}
	return nil
}

// seedConfig is the configuration of a query of the seed of --seed or, without one, of the environment.
func seedConfig(seed string) (cfg nexar.Config) {
	if seed != "" {
		cfg.Seeds = strings.Split(seed, ",")
	}
	return cfg
}

// checkAddrs checks the addresses of --seed.
func checkAddrs(list string) error {
	for addr := range strings.SplitSeq(list, ",") {
		host, port, err := net.SplitHostPort(withSeedPort(addr))
		if n, bad := strconv.ParseUint(port, 10, 16); err != nil || host == "" || bad != nil || n == 0 {
			return usagef("--seed %q: want host:port with a port from 1 to 65535, or host with the port %s", addr, nexar.SeedPort)
		}
	}
	return nil
}
