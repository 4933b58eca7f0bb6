// Package raft replicates the state of a cluster's seeds by Raft (Ongaro and Ousterhout, "In
// Search of an Understandable Consensus Algorithm", USENIX ATC 2014). Pass [Open] to
// nexar.StartSeed:
//
//	seed, err := nexar.StartSeed(ctx, nexar.SeedConfig{
//		World:     6,
//		Listen:    ":7946",
//		Peers:     []string{"10.0.0.1:7946", "10.0.0.2:7946", "10.0.0.3:7946"},
//		StateDir:  "/var/lib/nexar",
//		Consensus: raft.Open,
//	})
//
// Replicated seeds survive the loss of fewer than half of them, and a restarted seed
// continues from its stored state.
package raft

import (
	"github.com/nexar-go/nexar/consensus"
	"github.com/nexar-go/nexar/internal/rendezvous/raftlog"
)

// Open opens the Raft log stored in cfg.Dir, and creates it if there is none. It is a
// [consensus.OpenFunc]; only nexar.StartSeed calls it. A directory that is damaged, or older
// than the last change that this seed has acknowledged, is an error that names the file. A
// log that cannot be written, or that contradicts the logs of the other seeds, ends the seed
// (Seed.Err).
func Open(cfg consensus.Config) (consensus.Log, error) {
	l, err := raftlog.Open(cfg)
	if err != nil {
		return nil, err
	}
	return l, nil
}
