// Package consensus replicates the state of a cluster's seeds: pass Log to nexar.StartSeed.
//
//	seed, err := nexar.StartSeed(ctx, nexar.SeedConfig{
//		World:     6,
//		Listen:    ":7946",
//		Peers:     []string{"10.0.0.1:7946", "10.0.0.2:7946", "10.0.0.3:7946"},
//		StateDir:  "/var/lib/nexar",
//		Consensus: consensus.Log,
//	})
//
// Replicated seeds survive the loss of fewer than half of them, and a seed that is restarted
// continues from its state. Only programs that import this package link Raft and its
// storage.
package consensus

import (
	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/rendezvous/raftlog"
)

// Log keeps a log by Raft (Ongaro and Ousterhout, "In Search of an Understandable
// Consensus Algorithm", USENIX ATC 2014), in a file in the StateDir. It is a
// nexar.Consensus, and called by nexar.StartSeed only. A StateDir that is damaged, or older
// than the last change that this seed has acknowledged, is an error that names the file. A
// log that cannot be written, or does not fit those of the others, ends the seed (Seed.Err).
func Log(cfg nexar.ConsensusConfig) (nexar.ReplicatedLog, error) {
	l, err := raftlog.Open(raftlog.Config{
		Self: cfg.Self, Seeds: cfg.Seeds, Dir: cfg.Dir, Machine: cfg.Machine, Send: cfg.Send, Log: cfg.Log, ForgetState: cfg.ForgetState,
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}
