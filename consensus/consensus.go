// Package consensus is how the seeds of a cluster agree: give Log to nexar.StartSeed.
//
//	seed, err := nexar.StartSeed(ctx, nexar.SeedConfig{
//		World:     6,
//		Listen:    ":7946",
//		Peers:     []string{"10.0.0.1:7946", "10.0.0.2:7946", "10.0.0.3:7946"},
//		StateDir:  "/var/lib/nexar",
//		Consensus: consensus.Log,
//	})
//
// Seeds that agree outlive the loss of fewer than half of them, and one that is started
// again goes on where it was. It is a package of its own so that other programs,
// nodes above all, do not carry it and what it is built on.
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
