package nexar

import (
	"context"
	"fmt"

	"github.com/nexar-go/nexar/internal/node"
	"github.com/nexar-go/nexar/internal/trace"
)

// A ClusterStatus is where all nodes of a cluster are: how far its world has come,
// and of each node its Record, or why there is none. WriteTo writes it as a table
// for people, which says who is late and who waits for whom, and encoding/json for
// programs. Nothing in it can command a terminal, whatever nodes say.
type (
	ClusterStatus = trace.Cluster
	NodeStatus    = trace.ClusterNode
)

// AskStatus asks a seed of cfg where all nodes of its cluster are. This process needs
// the token of the cluster, as a node does, but gets no place in it. Of cfg it takes
// Seeds, Token and Log; the first two are otherwise those of the environment.
//
// Nodes that do not answer the seed within 2 seconds are named. AskStatus itself takes
// 20 seconds at the most, and fails at once if there is no seed.
func AskStatus(ctx context.Context, cfg Config) (ClusterStatus, error) {
	s, err := askStatus(ctx, cfg)
	return s, opError("status", err)
}

func askStatus(ctx context.Context, cfg Config) (s ClusterStatus, err error) {
	cfg, err = Config{Seeds: cfg.Seeds, Token: cfg.Token, Log: cfg.Log}.fill("Seeds", "Token")
	if err != nil {
		return s, err
	}
	if len(cfg.Seeds) == 0 {
		return s, fmt.Errorf("%w: no seed: set NEXAR_SEEDS to the address of one", ErrConfig)
	}
	token, err := cfg.token()
	if err != nil {
		return s, err
	}
	return node.Status(ctx, cfg.Seeds, token, cfg.Log)
}

// status is what this node tells the seed of itself: nothing before it has joined.
func (n *Node) status() []byte {
	if n.World() == nil {
		return nil
	}
	return trace.Encode(n.Record())
}
