package command

import (
	"fmt"
	"io"
	"net"

	"github.com/spf13/cobra"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/page"
)

// httpUsage is the usage of --http.
const httpUsage = "`address` at which to show the cluster in a browser: a port for this host alone, or host:port (default: none)"

// servePage shows the cluster of cfg at the value of --http until stop, and prints the address and how to get a ticket: the ticket itself if w is
// a terminal, which nobody keeps.
func servePage(w io.Writer, title, value, command string, cfg nexar.Config) (stop func(), err error) {
	p, err := page.OfCluster(cfg)
	if err != nil {
		return nil, err
	}
	l, err := listenHTTP("--http", value)
	if err != nil {
		return nil, err
	}
	addr := l.Addr().(*net.TCPAddr)
	fmt.Fprintf(w, "%s: page: %s\n", title, urlOf(addr))
	if isTerminal(w) {
		fmt.Fprintf(w, "%s: ticket: %s (valid for 10 minutes; for another: %s)\n", title, p.Ticket(), command)
	} else {
		fmt.Fprintf(w, "%s: for a ticket: %s\n", title, command)
	}
	if !addr.IP.IsLoopback() {
		fmt.Fprintf(w, "%s: note: readers of the network can read the page and its tickets: use --http %d and 'ssh -L %[2]d:127.0.0.1:%[2]d' instead\n", title, addr.Port)
	}
	return serveHTTP(w, title, "the page", l, p, p.Close), nil
}

func newTicket(s streams) *cobra.Command {
	var job string
	cmd := &cobra.Command{
		Use:   "ticket [--job JOB]",
		Short: "Print a ticket for the page of a cluster",
		Long: `Print a ticket for the page that "nexar seed --http" and "nexar run --http" serve. The
page asks for it in a form; then the browser may read the page for 12 hours. A ticket
is valid for at least 10 and less than 20 minutes, for any number of browsers.

The ticket is made of the token of the cluster, which is in NEXAR_CLUSTER_TOKEN or in
the file that NEXAR_CLUSTER_TOKEN_FILE names, and of the time; the clocks of the two
hosts may differ by 10 minutes. A ticket does not reveal the token if that comes from
"nexar token", and does not admit nodes.`,
		Example: `  export NEXAR_CLUSTER_TOKEN=...
  nexar ticket

  On this computer, the page of a seed on another host:
    ssh -L 8080:127.0.0.1:8080 10.0.0.1
  and then http://127.0.0.1:8080/`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			token, err := clusterToken(nil)
			if err != nil {
				return err
			}
			if token == "" {
				return usagef("neither %s nor %s is set: set one as for the nodes of the cluster", tokenVariable, tokenFileVariable)
			}
			if job != "" {
				if token, err = nexar.JobToken(token, job); err != nil {
					return usagef("%w", err)
				}
			}
			ticket, err := page.Ticket(nexar.Config{Token: token})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(s.out, ticket)
			return err
		},
	}
	cmd.Flags().StringVar(&job, "job", "", "print one for the page of the world of the `job` with this name, as in nexar token --job")
	return cmd
}
