package node

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/host"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/seed"
	"github.com/nexar-go/nexar/transport/quic"
)

// SeedConfig is what a Seed needs. Its fields are as those of seed.Config where
// they have the same names.
type SeedConfig struct {
	Listen      string // where nodes reach it
	StateDir    string // of its certificate authority; empty: in memory
	Token       pki.Token
	World       int
	Elastic     bool
	Min, Max    int
	FormTimeout time.Duration
	Progress    func(seed.Event) // called for each node that joins or goes; nil ignores
	Log         *slog.Logger
}

// A Seed is a seed that nodes reach over QUIC.
type Seed struct {
	server   *seed.Server
	endpoint *quic.Endpoint
	done     chan struct{}
	stop     context.CancelFunc
	wg       sync.WaitGroup
}

// StartSeed starts a seed, which runs until it is closed.
func StartSeed(cfg SeedConfig) (*Seed, error) {
	authority, err := openAuthority(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	joining, err := authority.Joining()
	if err != nil {
		return nil, err
	}
	s := &Seed{done: make(chan struct{})}
	s.endpoint, err = quic.Listen(quic.Config{Addr: cfg.Listen, Log: cfg.Log, Heartbeat: -1})
	if err != nil {
		return nil, err
	}
	t, err := s.endpoint.Transport(joining)
	if err == nil {
		s.server, err = seed.Serve(seed.Config{
			Transport: t, Authority: authority, Token: cfg.Token, World: cfg.World,
			Elastic: cfg.Elastic, Min: cfg.Min, Max: cfg.Max, FormTimeout: cfg.FormTimeout, Log: cfg.Log,
		})
	}
	if err != nil {
		return nil, errors.Join(err, s.endpoint.Close())
	}
	run, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.wg.Go(func() {
		defer close(s.done)
		s.server.Follow(run, cfg.Progress)
	})
	return s, nil
}

func openAuthority(dir string) (*pki.Authority, error) {
	if dir == "" {
		return pki.NewAuthority()
	}
	return pki.OpenAuthority(dir)
}

// Addr is an address at which nodes, perhaps of other hosts, look for the seed.
func (s *Seed) Addr() string { return host.Reachable(s.endpoint.Addr()) }

// Wait is that of the Server.
func (s *Seed) Wait(ctx context.Context) error { return s.server.Wait(ctx) }

// Done is closed when the world did not form, or when all its nodes have gone.
func (s *Seed) Done() <-chan struct{} { return s.done }

// Close ends the seed, and waits for Progress to return.
func (s *Seed) Close() error {
	s.stop()
	s.wg.Wait()
	return errors.Join(s.server.Close(), s.endpoint.Close())
}
