package ranks

import (
	"context"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/consensus/raft"
)

// A Seed is one of several of a larger cluster, as nexar.SeedConfig has them.
type Seed struct {
	Listen    string
	Peers     []string
	Advertise string
	StateDir  string
	Forget    bool   // nexar.SeedConfig.ForgetState
	Token     string // of the seeds; empty: that of the cluster
}

// An own is a seed that runs as long as the processes do.
type own struct{ seed *nexar.Seed }

func (cfg *Config) startOwn(ctx context.Context) (*own, error) {
	seed, err := nexar.StartSeed(ctx, nexar.SeedConfig{
		Listen: cfg.Own.Listen, Peers: cfg.Own.Peers, Advertise: cfg.Own.Advertise, StateDir: cfg.Own.StateDir, ForgetState: cfg.Own.Forget, Consensus: raft.Open, PeerToken: cfg.Own.Token,
		World: cfg.World, Token: cfg.Token,
		Elastic: cfg.Elastic, ElasticMin: cfg.Min, ElasticMax: cfg.Max,
	})
	if err != nil {
		return nil, err
	}
	return &own{seed}, nil
}

// parting is how long a seed waits for the others to agree that the world is over, if
// it is: those that are started again need not look for its nodes then.
const parting = 3 * time.Second

func (o *own) close() {
	t := time.NewTimer(parting)
	defer t.Stop()
	select {
	case <-o.seed.Done():
	case <-t.C:
	}
	o.seed.Close()
}
