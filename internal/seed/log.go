package seed

import "log/slog"

// A Log is what several seeds agree by. What is proposed either comes back to the
// Machines of all seeds, in the same order everywhere, or is lost. internal/quorum has
// one; programs whose seeds agree with nobody do not carry it.
type Log interface {
	// Propose asks for a change in a term in which this seed leads. It does not wait.
	Propose(term uint64, change []byte)
	// Step takes a message that another seed has sent.
	Step(from uint64, message []byte) error
	// Gone says that another seed has died.
	Gone(seed uint64)
	// Done is closed when the Log has ended, and Err says why then.
	Done() <-chan struct{}
	Err() error
	// Close ends the Log, and waits for the Machine.
	Close() error
}

// A Machine is what a Log is about. Its methods are called one after the other.
type Machine interface {
	// Apply makes a change that most seeds have agreed on.
	Apply(change []byte)
	// Lead says which seed leads, 0 if none does that is known, since a term. The Machine
	// has made all changes then that there were when it began to. If it is this one, it
	// may propose others.
	Lead(seed, term uint64)
	// Snapshot is the state of the Machine, and Restore puts another in its place,
	// which is later.
	Snapshot() []byte
	Restore(state []byte) error
}

// LogConfig is what a Log needs.
type LogConfig struct {
	Self  uint64   // this seed; none is 0
	Seeds []uint64 // all of them
	Dir   string   // where the Log is kept
	// Machine is told what is agreed on.
	Machine Machine
	// Send has a message sent to another seed. It does not block, and may drop it.
	Send func(to uint64, message []byte)
	Log  *slog.Logger
}
