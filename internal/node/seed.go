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
	"github.com/nexar-go/nexar/transport/quic"
)

// SeedConfig is what a Seed needs. Its fields are as those of server.Config where
// they have the same names.
type SeedConfig struct {
	Listen     string // where nodes reach it
	Transports Transports
	StateDir   string   // where it keeps what has to outlive it; empty: in memory
	Peers      []string // addresses of all seeds of the cluster; empty: there is this one
	// ForgetState lets one of several seeds start with an empty or damaged StateDir: it
	// learns from the others before it votes.
	ForgetState bool
	// Open opens the log by which seeds agree. Without it there is one seed, which keeps
	// its certificate authority alone.
	Open        consensus.OpenFunc
	PeerToken   pki.Token // what seeds prove to each other; none: Token
	Advertise   string    // which of them is this one; empty: it finds out
	Token       pki.Token
	World       int
	Elastic     bool
	Min, Max    int
	FormTimeout time.Duration
	Progress    func(server.Event) // called for each node that joins or goes; nil ignores
	Log         *slog.Logger
}

// A Seed is a seed that nodes reach over each of its transports.
type Seed struct {
	server  *server.Server
	sockets *sockets
	arrival *multi // of nodes
	addr    string // among those of its peers
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
	if len(cfg.Peers) > 0 {
		dir = "" // The seeds agree on one.
	}
	authority, err := openAuthority(dir)
	if err != nil {
		return nil, err
	}
	joining, err := authority.Joining()
	if err != nil {
		return nil, err
	}
	s := &Seed{done: make(chan struct{})}
	s.sockets, err = openSockets(context.Background(), cfg.Listen, nil, cfg.Transports, quic.Config{Log: cfg.Log, Heartbeat: -1})
	if err != nil {
		return nil, err
	}
	s.arrival, err = s.sockets.accept(cfg.Listen, joining)
	var quorum *server.Quorum
	if err == nil {
		quorum, err = s.quorum(cfg)
	}
	if err == nil {
		s.server, err = server.Serve(server.Config{
			Transport: s.arrival, Authority: authority, Quorum: quorum, Token: cfg.Token, World: cfg.World,
			Elastic: cfg.Elastic, Min: cfg.Min, Max: cfg.Max, FormTimeout: cfg.FormTimeout, Log: cfg.Log,
		})
	}
	if err != nil {
		return nil, errors.Join(err, s.closeSockets())
	}
	run, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.wg.Go(func() {
		defer close(s.done)
		s.server.Follow(run, cfg.Progress)
	})
	return s, nil
}

// quorum is with whom the seed keeps what it decides: with itself alone if it has a
// directory and no peers.
func (s *Seed) quorum(cfg SeedConfig) (*server.Quorum, error) {
	q := &server.Quorum{
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

// alone is the name of a seed that has no others, at whatever address it is started
// again.
const alone = "alone"

// selfOf is which of the seeds is the one that listens at an address.
func selfOf(seeds []string, advertise, listen string) (string, error) {
	if advertise != "" {
		if !slices.Contains(seeds, advertise) {
			return "", fmt.Errorf("the seed is to be reached at %q, which is none of its peers %s; it is one of them itself", advertise, strings.Join(seeds, ", "))
		}
		return advertise, nil
	}
	here := slices.DeleteFunc(slices.Clone(seeds), func(addr string) bool { return !host.Leads(addr, listen) })
	if len(here) == 1 {
		return here[0], nil
	}
	which := "none of the peers " + strings.Join(seeds, ", ") + " leads"
	if len(here) > 1 {
		which = "several peers, " + strings.Join(here, ", ") + ", lead"
	}
	return "", fmt.Errorf("%s to the seed that listens at %s: say which one it is, by its address", which, listen)
}

// checkAddrs finds addresses that cannot be meant, before other errors contain
// them.
func (cfg *SeedConfig) checkAddrs() error {
	if !host.IsAddr(cfg.Listen, true) {
		return fmt.Errorf("listen address %q: not of the form host:port, :port or host:0", cfg.Listen)
	}
	for _, peer := range cfg.Peers {
		if !host.IsAddr(peer, false) {
			return fmt.Errorf("peer %q: not an address of the form host:port", peer)
		}
	}
	return nil
}

func openAuthority(dir string) (*pki.Authority, error) {
	if dir == "" {
		return pki.NewAuthority()
	}
	return pki.OpenAuthority(dir)
}

// Addr is an address at which nodes, perhaps of other hosts, look for the seed.
func (s *Seed) Addr() string { return cmp.Or(s.addr, host.Reachable(s.sockets.addr)) }

// Wait is that of the Server.
func (s *Seed) Wait(ctx context.Context) error { return s.server.Wait(ctx) }

// Err is why the seed cannot go on; nil: it can, or there is nothing more to do.
func (s *Seed) Err() error { return s.server.Broken() }

// Done is closed when the world did not form, or when all its nodes have gone.
func (s *Seed) Done() <-chan struct{} { return s.done }

func (s *Seed) closeSockets() error {
	var err error
	if s.arrival != nil {
		err = s.arrival.Close()
	}
	return errors.Join(err, s.sockets.close())
}

// Close ends the seed, and waits for Progress to return.
func (s *Seed) Close() error {
	s.stop()
	s.wg.Wait()
	return errors.Join(s.server.Close(), s.closeSockets())
}
