package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nexar-go/nexar/consensus"
	"github.com/nexar-go/nexar/internal/host"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/server"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/quic"
)

// SeedConfig configures a Seed. Fields of the same name have the meaning of those of
// server.Config.
type SeedConfig struct {
	Listen     string // the address that nodes dial
	Transports Transports
	StateDir   string   // the directory of the replicated log or, without Open, of the CA; empty: in memory
	Peers      []string // addresses of all seeds of the cluster; empty: a single seed
	// ForgetState lets one of several seeds start with an empty or damaged StateDir: it
	// learns from the others before it votes.
	ForgetState bool
	// Open opens the replicated log of several seeds, or of one with a StateDir. Without Open there is a
	// single seed, which writes only its CA to StateDir.
	Open            consensus.OpenFunc
	PeerToken       pki.Token   // authenticates seeds to each other; default: Token
	Issuer          *pki.Issuer // signs the CA of the cluster; nil: that signs itself
	Advertise       string      // the address of this seed in Peers; empty: derived from Listen
	Token           pki.Token
	World           int
	Elastic         bool
	Min, Max        int
	FormTimeout     time.Duration
	CertificateLife time.Duration
	Health          string             // the TCP address for /healthz and /readyz; empty: none
	Progress        func(server.Event) // called when a node joins or leaves; may be nil
	Log             *slog.Logger
}

// A Seed is a running seed. Nodes reach it over each of its transports.
type Seed struct {
	server  *server.Server
	sockets *sockets
	joins   *multiListener
	addr    string        // in SeedConfig.Peers; empty for a single seed
	health  *healthServer // may be nil
	done    chan struct{}
	stop    context.CancelFunc
	wg      sync.WaitGroup
}

// StartSeed starts a seed, which runs until it is closed.
func StartSeed(cfg SeedConfig) (*Seed, error) {
	if err := cfg.checkAddrs(); err != nil {
		return nil, err
	}
	dir := cfg.StateDir
	if cfg.Open != nil {
		dir = "" // The log contains the authority.
	}
	if cfg.StateDir != "" {
		if err := pki.CheckState(cfg.StateDir); err != nil {
			return nil, err
		}
	}
	authority, err := cfg.Issuer.Authority(dir)
	if err != nil {
		return nil, err
	}
	joining, err := authority.Joining()
	if err != nil {
		return nil, err
	}
	cfg.Transports.Roots = cfg.Issuer.Roots() // of the other seeds
	s := &Seed{done: make(chan struct{})}
	s.sockets, err = openSockets(context.Background(), cfg.Listen, nil, cfg.Transports, quic.Config{MaxHandshakes: joiningMax(cfg.World, transport.MaxFiles()), Log: cfg.Log, Heartbeat: -1})
	if err != nil {
		return nil, err
	}
	s.joins, err = s.sockets.acceptJoins(cfg.Listen, cfg.World, joining)
	var replication *server.Replication
	if err == nil {
		replication, err = s.replication(cfg)
	}
	if err == nil {
		s.server, err = server.Serve(server.Config{
			Transport: s.joins, Authority: authority, Adopt: joining.Use, Replication: replication, Token: cfg.Token, World: cfg.World,
			CheckAddress: s.sockets.checkAddress, HasEnded: s.sockets.nodeEnded, Elastic: cfg.Elastic, Min: cfg.Min, Max: cfg.Max, FormTimeout: cfg.FormTimeout, CertificateLife: cfg.CertificateLife, Log: cfg.Log,
		})
	}
	if err != nil {
		return nil, errors.Join(err, s.closeSockets())
	}
	if cfg.Health != "" {
		checks := map[string]func() error{"/healthz": s.server.Broken, "/readyz": s.server.Ready}
		if s.health, err = serveHealth(cfg.Health, checks); err != nil {
			return nil, errors.Join(err, s.server.Close(), s.closeSockets())
		}
	}
	run, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.wg.Go(func() {
		defer close(s.done)
		s.server.Follow(run, cfg.Progress)
	})
	return s, nil
}

// replication returns the configuration of the log, for several seeds or one with a directory, and
// nil for a seed without a replicated log.
func (s *Seed) replication(cfg SeedConfig) (*server.Replication, error) {
	q := &server.Replication{
		Self: alone, Seeds: []string{alone}, Dir: cfg.StateDir, ForgetState: cfg.ForgetState, Open: cfg.Open,
		Dial: s.sockets.dialSeed,
	}
	if len(cfg.Peers) > 0 {
		self, err := selfOf(cfg.Peers, cfg.Advertise, s.sockets.addr)
		if err != nil {
			return nil, err
		}
		q.Self, q.Seeds, q.Token = self, cfg.Peers, cfg.PeerToken
		s.addr = self
	} else if cfg.StateDir == "" || cfg.Open == nil {
		return nil, nil
	}
	return q, nil
}

// alone is the name of a single seed in its log. It does not depend on the address.
const alone = "alone"

// selfOf returns the address in seeds of the seed that listens at an address.
func selfOf(seeds []string, advertise, listen string) (string, error) {
	if advertise != "" {
		if !slices.Contains(seeds, advertise) {
			return "", fmt.Errorf("advertised address %q: not in the list of peers %s, which must contain this seed", advertise, strings.Join(seeds, ", "))
		}
		return advertise, nil
	}
	here := slices.DeleteFunc(slices.Clone(seeds), func(addr string) bool { return !host.Leads(addr, listen) })
	if len(here) == 1 {
		return here[0], nil
	}
	found := "none of the peers " + strings.Join(seeds, ", ") + " is"
	if len(here) > 1 {
		found = "several peers, " + strings.Join(here, ", ") + ", are"
	}
	return "", fmt.Errorf("%s an address of this seed, which listens at %s: name its address among the peers (--advertise)", found, listen)
}

// checkAddrs checks the syntax of addresses, before other errors contain them.
func (cfg *SeedConfig) checkAddrs() error {
	if !host.IsAddr(cfg.Listen, true) {
		return fmt.Errorf("listen address %q: not of the form host:port, :port or host:0", cfg.Listen)
	}
	for _, peer := range cfg.Peers {
		if !host.IsAddr(peer, false) {
			return fmt.Errorf("peer %q: must be an address of the form host:port", peer)
		}
	}
	return nil
}

// Addr returns an address at which nodes, possibly of other hosts, reach the seed.
func (s *Seed) Addr() string { return cmp.Or(s.addr, host.Reachable(s.sockets.addr)) }

// HealthAddr returns the address of /healthz and /readyz, empty if there is none.
func (s *Seed) HealthAddr() string {
	if s.health == nil {
		return ""
	}
	return s.health.addr()
}

// Wait is [server.Server.Wait].
func (s *Seed) Wait(ctx context.Context) error { return s.server.Wait(ctx) }

// Err returns the reason why the seed cannot continue, or nil.
func (s *Seed) Err() error { return s.server.Broken() }

// Done returns a channel that is closed when the world has failed to form, or has no nodes left.
func (s *Seed) Done() <-chan struct{} { return s.done }

func (s *Seed) closeSockets() error {
	var err error
	if s.joins != nil {
		err = s.joins.Close()
	}
	return errors.Join(err, s.sockets.close())
}

// Close ends the seed. It waits for a call of SeedConfig.Progress to return.
func (s *Seed) Close() error {
	s.stop()
	s.wg.Wait()
	if s.health != nil {
		s.health.close()
	}
	return errors.Join(s.server.Close(), s.closeSockets())
}
