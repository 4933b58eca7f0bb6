package nexar

import (
	"log/slog"

	"github.com/nexar-go/nexar/internal/rendezvous/server"
)

// Consensus opens the log by which the seeds of a cluster agree. Programs use consensus.Log,
// of package github.com/nexar-go/nexar/consensus; those that do not import it do not carry
// it.
type Consensus func(ConsensusConfig) (ReplicatedLog, error)

// ConsensusConfig is what StartSeed hands to a Consensus.
type ConsensusConfig struct {
	// Self identifies this seed, and Seeds all of them. IDs are not 0, and their lower
	// 32 bits are 0.
	Self  uint64
	Seeds []uint64
	// Dir is the directory for the log.
	Dir string
	// ForgetState lets the seed start with an empty or damaged Dir. It must not vote before
	// it has learned the log from a majority.
	ForgetState bool
	// Machine applies the changes of the log.
	Machine StateMachine
	// Send sends a message to another seed, whose log gets it by Step. It does not block,
	// and may lose the message.
	Send func(to uint64, message []byte)
	// Log receives events. It is not nil.
	Log *slog.Logger
}

// A ReplicatedLog is one seed's part of a log that all seeds agree on. Its methods may be
// called by several goroutines.
type ReplicatedLog interface {
	// Propose appends a change if this seed leads in the term. The change is applied by all
	// seeds or lost. Propose does not block.
	Propose(term uint64, change []byte)
	// Step takes a message of another seed. An error ends the connection to that seed.
	Step(from uint64, message []byte) error
	// Gone says that the process of another seed has ended.
	Gone(seed uint64)
	// Done is closed when the log has ended, and Err returns the reason.
	Done() <-chan struct{}
	Err() error
	// Close ends the log, and waits for calls of the StateMachine.
	Close() error
}

// A StateMachine applies the changes of a ReplicatedLog, in the same order on all seeds. The
// log calls its methods one at a time, on a goroutine of its own; a Consensus calls none but
// Restore before it returns.
type StateMachine interface {
	// Apply makes a change that a majority of the seeds has stored.
	Apply(change []byte)
	// Lead says which seed leads since a term; 0 means that none is known. All changes of
	// earlier terms have been applied, and no change that this seed did not have when the
	// log was opened.
	Lead(seed, term uint64)
	// Progress is called again and again while this seed leads, with the seeds that have
	// not acknowledged all changes that were applied.
	Progress(behind []uint64)
	// Snapshot returns the state, and Restore replaces it by a later one. Check reports why
	// Restore would refuse a state.
	Snapshot() []byte
	Check(state []byte) error
	Restore(state []byte) error
}

// open adapts a Consensus to the seed.
func (open Consensus) open(cfg server.LogConfig) (server.Log, error) {
	return open(ConsensusConfig{
		Self: cfg.Self, Seeds: cfg.Seeds, Dir: cfg.Dir, ForgetState: cfg.ForgetState, Machine: cfg.Machine, Send: cfg.Send, Log: cfg.Log,
	})
}
