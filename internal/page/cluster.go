package page

import (
	"context"
	"fmt"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/trace"
)

const (
	// answerMax limits the wait for a node, so that a stopped one does not delay the state of the others.
	answerMax = 500 * time.Millisecond
	// longMax is the largest number of nodes that are asked for long snapshots.
	longMax = 64
)

// OfCluster returns the page of the cluster that nexar.QueryCluster asks with cfg.
func OfCluster(cfg nexar.Config) (*Page, error) {
	key, err := keyOf(cfg)
	if err != nil {
		return nil, err
	}
	// Snapshots of a small world may be long: they have more calls and links.
	q := nexar.ClusterQuery{Wait: answerMax}
	return New(key, func(ctx context.Context) (trace.Cluster, error) {
		c, err := q.Query(ctx, cfg)
		q.Brief = err == nil && len(c.Nodes) > longMax
		return c, err
	}), nil
}

// Ticket returns a ticket that is valid now for the page of the cluster of cfg.
func Ticket(cfg nexar.Config) (string, error) {
	key, err := keyOf(cfg)
	return key.Ticket(time.Now()), err
}

// keyOf returns the key of the token of cfg or, without one, of the environment.
func keyOf(cfg nexar.Config) (Key, error) {
	if cfg.Token == "" && cfg.TokenFile == "" {
		env, err := nexar.ConfigFromEnv()
		if err != nil {
			return Key{}, err
		}
		cfg.Token, cfg.TokenFile = env.Token, env.TokenFile
	}
	if cfg.Token != "" && cfg.TokenFile != "" {
		return Key{}, fmt.Errorf("page: both Token and TokenFile=%q are set: unset one of them", cfg.TokenFile)
	}
	if cfg.TokenFile != "" {
		token, err := nexar.ReadTokenFile(cfg.TokenFile)
		return NewKey(token), err
	}
	return NewKey(cfg.Token), nil
}
