// Package consensus defines the contract between the seeds of a cluster and the replicated
// log of their decisions. nexar.SeedConfig.Consensus is an [OpenFunc]; package
// github.com/nexar-go/nexar/consensus/raft implements it, so that only programs that
// import that package link Raft and its storage.
package consensus

import "log/slog"

// An OpenFunc opens the replicated log of one seed. Before it returns, it may call
// StateMachine.Restore and no other method of the state machine.
type OpenFunc func(Config) (Log, error)

// Config configures a [Log].
type Config struct {
	// Self identifies this seed, and Seeds all seeds, Self included. IDs are not 0, and
	// their lower 32 bits are 0.
	Self  uint64
	Seeds []uint64
	// Dir is the directory of the log.
	Dir string
	// ForgetState lets the seed start with an empty or damaged Dir. It then learns the log
	// from a majority of all seeds, and does not vote until it has. A Dir that is not
	// damaged is kept.
	ForgetState bool
	// StateMachine applies the committed changes.
	StateMachine StateMachine
	// Send sends a message to another seed, which passes it to its [Log.Step]. It does not
	// block, and may drop the message.
	Send func(to uint64, message []byte)
	// Logger receives events. StartSeed always sets it.
	Logger *slog.Logger
}

// A Log is one seed's replica of a log of changes. All methods may be called concurrently.
type Log interface {
	// Propose appends a change if this seed is the leader of the term. The change is either
	// applied on all seeds or lost; [StateMachine.Lead] reports the loss of leadership.
	// Propose does not block, and keeps the change.
	Propose(term uint64, change []byte)
	// Step processes a message of another seed, and keeps it. It may block until the log
	// accepts the message. An error means that the message is invalid or that the log has
	// ended; StartSeed then closes the connection to that seed.
	Step(from uint64, message []byte) error
	// Gone reports that the process of another seed has ended. If that seed was the leader,
	// an election may start at once.
	Gone(seed uint64)
	// Done is closed when the log has ended, and Err returns the reason; it returns nil
	// before.
	Done() <-chan struct{}
	Err() error
	// Close ends the log and waits for running calls of the [StateMachine].
	Close() error
}

// A StateMachine applies the changes of a [Log], in the same order on all seeds. State
// machines that have applied the same changes are in the same state. The log calls the
// methods one at a time, on a goroutine of its own.
type StateMachine interface {
	// Apply applies a change that a majority of the seeds has stored.
	Apply(change []byte)
	// Lead reports the leader of a term; 0 means that no leader is known. When it is called
	// with a leader, all changes of earlier terms have been applied, and of the changes of
	// this term none that was in the log when it was opened.
	Lead(seed, term uint64)
	// Progress is called periodically while this seed is the leader, with the seeds that
	// have not acknowledged all applied changes.
	Progress(behind []uint64)
	// Snapshot encodes the current state.
	Snapshot() []byte
	// Check reports why Restore would refuse a state. It changes nothing.
	Check(state []byte) error
	// Restore replaces the current state by a later one, encoded by Snapshot.
	Restore(state []byte) error
}
