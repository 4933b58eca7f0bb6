package command

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nexar-go/nexar"
)

// peerFlags are the flags of a seed that may be one of several.
type peerFlags struct {
	listen    string
	stateDir  string
	forget    bool
	peers     []string
	advertise string
	tokenFile string // with the token that seeds prove to each other
	caCert    string
	caKey     string
}

// peerToken returns the token that the seeds prove to each other, or "" for that of the cluster.
func (f *peerFlags) peerToken() (string, error) {
	if f.tokenFile == "" {
		return "", nil
	}
	if len(f.peers) == 0 {
		return "", usagef("--peer-token-file needs --peers: it is for several seeds")
	}
	t, err := nexar.ReadTokenFile(f.tokenFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("--peer-token-file: %w: every seed needs the same token in such a file; 'nexar token' makes one", err)
	}
	if err != nil {
		return "", usagef("--peer-token-file: %w", err)
	}
	return t, nil
}

func (f *peerFlags) definePeers(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.peers, "peers", nil, "`addresses` of all seeds, this one included, separated by commas (default: a single seed)")
	flags.StringVar(&f.advertise, "advertise", "", "`address` of this seed among --peers (default: the one that belongs to this host and --listen)")
	flags.StringVar(&f.tokenFile, "peer-token-file", "", "`file` with a token that only seeds have and prove to each other (default: the token of the cluster)")
	flags.StringVar(&f.caCert, "ca-cert", "", "`file` with the certificate (PEM) of a CA of your own, which signs that of the cluster (default: none)")
	flags.StringVar(&f.caKey, "ca-key", "", "`file` with the private key (PEM) of --ca-cert, read only at the start")
	flags.BoolVar(&f.forget, "forget-state", false, "start one of --peers whose state was lost or damaged: it learns the state from the others before it votes")
	flags.StringVar(&f.stateDir, "state-dir", "", "`directory` for the state that survives a restart (default: in memory)")
}

// checkPeers checks the flags, and derives the address to listen on from --peers.
func (f *peerFlags) checkPeers() error {
	if len(f.peers) == 0 && f.advertise != "" {
		return usagef("--advertise needs --peers: it names one of them")
	}
	if len(f.peers) == 0 && f.forget {
		return usagef("--forget-state needs --peers: a single seed has no other to learn the state from; start a new world in an empty --state-dir")
	}
	if (f.caCert == "") != (f.caKey == "") {
		return usagef("--ca-cert %q, --ca-key %q: a CA needs both, its certificate and its key", f.caCert, f.caKey)
	}
	if len(f.peers) > 0 && f.stateDir == "" {
		return usagef("--peers needs --state-dir: a seed must not forget its votes")
	}
	f.listen, f.advertise = withSeedPort(f.listen), withSeedPort(f.advertise)
	ports := make(map[string]bool)
	for i, p := range f.peers {
		p = withSeedPort(strings.TrimSpace(p))
		f.peers[i] = p
		_, port, err := net.SplitHostPort(p)
		if err != nil || port == "" || port == "0" {
			return usagef("--peers %q: want host:port, or host with the port %s", p, nexar.SeedPort)
		}
		ports[port] = true
	}
	if f.listen == "" {
		f.listen = ":0"
		if host, port, err := net.SplitHostPort(f.advertise); err == nil {
			f.listen = ":" + port
			if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
				f.listen = f.advertise // not reachable from other hosts
			}
		} else if len(ports) == 1 {
			f.listen = ":" + slices.Collect(maps.Keys(ports))[0]
		} else if len(ports) > 1 {
			return usagef("--peers have different ports: name the one of this seed with --listen or --advertise")
		}
	}
	return nil
}

// withSeedPort adds the default port of seeds to an address without a port.
func withSeedPort(addr string) string {
	bracketed := strings.HasPrefix(addr, "[") && strings.HasSuffix(addr, "]")
	if addr == "" || strings.Contains(addr, ":") && !bracketed {
		return addr
	}
	return addr + ":" + nexar.SeedPort
}

// checkToken requires a token that the other seeds can have as well.
func checkToken(token string) error {
	if token == "" {
		return usagef("NEXAR_CLUSTER_TOKEN is not set: several seeds need the same token; 'nexar token' makes one")
	}
	return nil
}
