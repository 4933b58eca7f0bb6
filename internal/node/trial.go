package node

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wake"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport/quic"
)

// A Trial is the result of Try.
type Trial struct {
	Seeds    []SeedTrial
	Observed string // the address at which the seed sees this node
	Progress membership.Progress
}

// A SeedTrial is the result of an attempt to reach a seed over one transport, and to prove the token.
type SeedTrial struct {
	Addr, Transport string
	Err             error
}

// Try does all that Join does until the seed would admit the node, and returns the error of Join if
// it would not. The node does not join. The seeds are also dialed over each transport.
func Try(ctx context.Context, cfg Config) (t Trial, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if t.Seeds, err = trySeeds(ctx, cfg); err != nil {
		return t, err
	}
	if cfg.Timeout = askTimeout / 2; !slices.ContainsFunc(t.Seeds, func(s SeedTrial) bool { return s.Err == nil }) {
		cfg.Timeout = time.Second // for the error of Join
	}
	n := &Node{cfg: cfg, failed: wake.NewSignal()}
	defer n.abandon()
	request := cfg.Request
	request.Trial = true
	if err := n.register(ctx, request); err != nil {
		return t, err
	}
	t.Observed = n.Session.Observed
	t.Progress, err = n.Session.Trial(ctx)
	return t, err
}

// trySeeds dials each seed over each transport that dials it.
func trySeeds(ctx context.Context, cfg Config) (list []SeedTrial, err error) {
	s, err := openSockets(ctx, ":0", nil, cfg.Transports, quic.Config{Log: cfg.Log, Heartbeat: -1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	var tries []func() error
	for _, addr := range cfg.Seeds {
		dialers, rest := s.dialersOf(addr)
		for _, d := range dialers {
			list = append(list, SeedTrial{Addr: addr, Transport: d.name})
			tries = append(tries, func() error { return trySeed(ctx, d, rest, cfg) })
		}
	}
	var trying sync.WaitGroup
	for i, try := range tries {
		trying.Go(func() { list[i].Err = try() })
	}
	trying.Wait()
	return list, nil
}

// trySeed proves the token to a seed, and the seed to this process.
func trySeed(ctx context.Context, d seedDialer, addr string, cfg Config) error {
	if err := cfg.Request.Token.Check(addr); err != nil {
		return errors.Join(handshake.ErrToken, err)
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout/4)
	defer cancel()
	c, err := d.dial(ctx, addr, func() {})
	if err != nil {
		return err
	}
	_, err = client.Status(ctx, c, cfg.Request.Token, wire.JoinStatusRequest{})
	if r, ok := errors.AsType[*handshake.RefusedError](err); ok && !errors.Is(r, handshake.ErrToken) && !errors.Is(r, handshake.ErrVersion) {
		return nil // It has answered after the proof.
	}
	if _, ok := errors.AsType[*handshake.RedirectError](err); ok {
		return nil // So has a seed that does not lead.
	}
	return err
}
