package rendezvous

import "log/slog"

// A Log is what several seeds agree by. What is proposed either comes back to the
// Machines of all seeds, in the same order everywhere, or is lost. internal/raftlog has
// one, where the methods are explained; programs whose seeds agree with nobody do not
// carry it.
type Log interface {
	Propose(term uint64, change []byte)
	Step(from uint64, message []byte) error
	Gone(seed uint64)
	Done() <-chan struct{}
	Err() error
	Close() error
}

// A Machine is what a Log is about. It is internal/raftlog's, where its methods are
// explained.
type Machine interface {
	Apply(change []byte)
	Lead(seed, term uint64)
	Snapshot() []byte
	Restore(state []byte) error
	Progress(behind []uint64)
}

// LogConfig is what a Log needs: the Config of internal/raftlog.
type LogConfig struct {
	Self    uint64
	Seeds   []uint64
	Dir     string
	Machine Machine
	Send    func(to uint64, message []byte)
	Log     *slog.Logger

	ForgetState bool
}
