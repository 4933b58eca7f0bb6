package ranks

import (
	"context"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/consensus/raft"
)

// A Seed configures one of several seeds of a larger cluster; see nexar.SeedConfig.
type Seed struct {
	Listen    string
	Peers     []string
	Advertise string
	StateDir  string
	Forget    bool   // nexar.SeedConfig.ForgetState
	Token     string // PeerToken; empty: the token of the cluster
	CACert    string // nexar.SeedConfig.CACertFile
	CAKey     string // nexar.SeedConfig.CAKeyFile
}

// An own is a seed that runs as long as the processes of this host.
type own struct{ seed *nexar.Seed }

func (cfg *Config) startOwn(ctx context.Context) (*own, error) {
	seed, err := nexar.StartSeed(ctx, nexar.SeedConfig{
		Listen: cfg.Own.Listen, Peers: cfg.Own.Peers, Advertise: cfg.Own.Advertise, StateDir: cfg.Own.StateDir, ForgetState: cfg.Own.Forget, Consensus: raft.Open, PeerToken: cfg.Own.Token, CACertFile: cfg.Own.CACert, CAKeyFile: cfg.Own.CAKey,
		World: cfg.World, Token: cfg.Token,
		Elastic: cfg.Elastic, ElasticMin: cfg.Min, ElasticMax: cfg.Max,
	})
	if err != nil {
		return nil, err
	}
	return &own{seed}, nil
}

// agreementTimeout is the time for the seeds to agree that the world has ended. A seed that is started
// again after that does not wait for its nodes.
const agreementTimeout = 3 * time.Second

func (o *own) close() {
	t := time.NewTimer(agreementTimeout)
	defer t.Stop()
	select {
	case <-o.seed.Done():
	case <-t.C:
	}
	o.seed.Close()
}
