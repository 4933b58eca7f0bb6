package command

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/command/internal/launch"
	"github.com/nexar-go/nexar/internal/top"
	"github.com/nexar-go/nexar/trace"
)

const topHelp = `Show what the ranks of a cluster do, in the terminal, until q is pressed: on top one
sentence about the whole cluster, below it the ranks by host, what they wait for,
collectives as a timeline, links, and who has joined, left or died. It disturbs
nothing, and programs need no preparation. ? shows the keys.

"nexar status" prints the same once, for scripts, and "nexar seed --http" and
"nexar run --http" show it in a browser.

The token of the cluster is in NEXAR_CLUSTER_TOKEN or in the file that
NEXAR_CLUSTER_TOKEN_FILE names, as for "nexar status".

EXIT STATUS
  0    after q
  1    standard output is no terminal, or the first answer of the seed was a refusal
  2    wrong usage
  130  ended by Ctrl-C from another process`

// topWait is how long the seed waits for answers of ranks.
const topWait = 500 * time.Millisecond

func newTop(s streams) *cobra.Command {
	var seed string
	cmd := &cobra.Command{
		Use:   "top [flags]",
		Short: "Show what all ranks do, in the terminal",
		Long:  topHelp,
		Example: `  A cluster of several hosts, with the token of its seed:
    export NEXAR_CLUSTER_TOKEN=...
    nexar top --seed 10.0.0.1:7946`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkSeedFlag(seed); err != nil {
				return err
			}
			if !isTerminal(s.out) || !term.IsTerminal(int(s.in.Fd())) {
				return errors.New(`standard input and output must be a terminal; "nexar status" prints the same once`)
			}
			ctx, stop := launch.UntilSignal(cmd.Context(), os.Interrupt)
			defer stop()
			return runTop(ctx, s, seedConfig(seed))
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&seed, "seed", "", seedUsage)
	return cmd
}

// runTop asks the seed once before it draws, so that a wrong token is an error on a plain screen.
func runTop(ctx context.Context, s streams, cfg nexar.Config) error {
	ask := func(ctx context.Context) (trace.Cluster, error) {
		return nexar.ClusterQuery{Wait: topWait, Brief: true}.Query(ctx, cfg)
	}
	if _, err := ask(ctx); err != nil {
		return err
	}
	return top.Run(ctx, s.in, s.out, ask)
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
