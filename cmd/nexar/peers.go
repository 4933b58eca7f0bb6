package main

import (
	"fmt"
	"maps"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// peerFlags are what a seed is told that may be one of several.
type peerFlags struct {
	listen    string
	stateDir  string
	forget    bool
	peers     []string
	advertise string
	tokenFile string // of the token of the seeds
}

// peerToken is what the seeds prove to each other, empty if there is none.
func (f *peerFlags) peerToken() (string, error) {
	if f.tokenFile == "" {
		return "", nil
	}
	if len(f.peers) == 0 {
		return "", usagef("--peer-token-file is for several seeds: it needs --peers")
	}
	info, err := os.Stat(f.tokenFile)
	if err != nil {
		return "", fmt.Errorf("--peer-token-file: %w: 'nexar token' makes a token, the same file belongs on the host of every seed", err)
	}
	// Windows keeps permissions elsewhere and reports every file as open.
	if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode&0o027 != 0 {
		return "", usagef("--peer-token-file: other users can read or change %q (mode %04o): chmod 600 makes it safe", f.tokenFile, mode)
	}
	b, err := os.ReadFile(f.tokenFile)
	if err != nil {
		return "", fmt.Errorf("--peer-token-file: %w", err)
	}
	if token := strings.TrimSpace(string(b)); token != "" {
		return token, nil
	}
	return "", usagef("--peer-token-file: %q is empty; 'nexar token' makes a token", f.tokenFile)
}

func (f *peerFlags) definePeers(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.peers, "peers", nil, "`addresses` of all seeds of the cluster, this one among them, separated by commas (default: there is one)")
	flags.StringVar(&f.advertise, "advertise", "", "which `address` of --peers is that of this seed (default: the one that leads here)")
	flags.StringVar(&f.tokenFile, "peer-token-file", "", "`file` with a token that seeds prove to each other, and no node has (default: that of the cluster)")
	flags.BoolVar(&f.forget, "forget-state", false, "start one of --peers after it has lost its state, or with a damaged one: it learns the state from the others before it votes")
	flags.StringVar(&f.stateDir, "state-dir", "", "keep what has to outlive the seed in this `directory` (default: in memory)")
}

// checkPeers refuses what are no peers, and says where to listen by them.
func (f *peerFlags) checkPeers() error {
	if len(f.peers) == 0 && f.advertise != "" {
		return usagef("--advertise says which of --peers this seed is, and there are none")
	}
	if len(f.peers) == 0 && f.forget {
		return usagef("--forget-state needs --peers: a seed that has no others starts a new world in an empty directory (--state-dir)")
	}
	if len(f.peers) > 0 && f.stateDir == "" {
		return usagef("--peers needs --state-dir: a seed that others count on must not forget what it has agreed to")
	}
	ports := make(map[string]bool)
	for i, p := range f.peers {
		p = strings.TrimSpace(p)
		f.peers[i] = p
		_, port, err := net.SplitHostPort(p)
		if err != nil || port == "" || port == "0" {
			return usagef("--peers: %q is not an address of the form host:port", p)
		}
		ports[port] = true
	}
	if f.listen == "" {
		f.listen = ":0"
		if host, port, err := net.SplitHostPort(f.advertise); err == nil {
			f.listen = ":" + port
			if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
				f.listen = f.advertise // and not where others can try
			}
		} else if len(ports) == 1 {
			f.listen = ":" + slices.Collect(maps.Keys(ports))[0]
		} else if len(ports) > 1 {
			return usagef("--peers have different ports: say with --listen or --advertise which one this seed is")
		}
	}
	return nil
}

// checkToken wants a token that the other seeds have as well.
func checkToken() error {
	if os.Getenv("NEXAR_CLUSTER_TOKEN") == "" {
		return usagef("several seeds need the same token: set NEXAR_CLUSTER_TOKEN, on all of them; 'nexar token' makes one")
	}
	return nil
}
