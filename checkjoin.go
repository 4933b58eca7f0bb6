package nexar

import (
	"context"
	"fmt"

	"github.com/nexar-go/nexar/internal/node"
)

// A JoinCheck is the result of [CheckJoin].
type JoinCheck struct {
	Seeds []SeedCheck // each seed of Config.Seeds over each transport
	// Observed is the address ("host:port") at which the seed sees this process. It is empty
	// if no seed was reached.
	Observed string
	// Joined is the number of nodes that have joined the world that is forming, and World the
	// number that it needs.
	Joined, World int
}

// A SeedCheck is the result of an attempt to connect to a seed over one transport and to prove the
// token to each other.
type SeedCheck struct {
	Addr      string
	Transport string // "quic" (UDP), "tcp", or the name of a factory
	Err       error  // nil if the seed has answered and has proved the token
}

// CheckJoin checks whether this process could join: it takes the steps of [Join] up to the admission of the
// node, and returns the error that Join would return. The process does not join. If cfg.Advertise is set,
// the seed dials that address, as for Join. CheckJoin returns within 30 seconds. If it fails, the result
// still contains the checks made until then.
func CheckJoin(ctx context.Context, cfg Config) (JoinCheck, error) {
	c, err := checkJoin(ctx, cfg)
	return c, opError("join", explainJoin(err))
}

func checkJoin(ctx context.Context, cfg Config) (c JoinCheck, err error) {
	if cfg, err = cfg.fill(); err != nil {
		return c, err
	}
	if len(cfg.Seeds) == 0 {
		return c, fmt.Errorf("%w: no seed: set NEXAR_SEEDS to the address of one", ErrConfig)
	}
	nodeConfig, err := cfg.node(ctx)
	if err != nil {
		return c, err
	}
	t, err := node.Try(ctx, nodeConfig)
	for _, s := range t.Seeds {
		c.Seeds = append(c.Seeds, SeedCheck{Addr: s.Addr, Transport: s.Transport, Err: explainJoin(s.Err)})
	}
	c.Observed, c.Joined, c.World = t.Observed, int(t.Progress.Joined), int(t.Progress.World)
	return c, err
}
