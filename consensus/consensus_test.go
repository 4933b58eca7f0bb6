package consensus_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/consensus"
)

// A memoryLog is a log of one seed, in memory, written against the public contract alone.
type memoryLog struct {
	changes chan []byte
	done    chan struct{}
	close   func()
}

func (l *memoryLog) Propose(_ uint64, change []byte) { l.changes <- change }
func (l *memoryLog) Step(uint64, []byte) error       { return errors.New("no other seed exists") }
func (l *memoryLog) Gone(uint64)                     {}
func (l *memoryLog) Done() <-chan struct{}           { return l.done }
func (l *memoryLog) Err() error                      { return nil }
func (l *memoryLog) Close() error                    { l.close(); <-l.done; return nil }

// A program can pass a log of its own to StartSeed.
func TestOwnLog(t *testing.T) {
	var applied int
	open := func(cfg consensus.Config) (consensus.Log, error) {
		l := &memoryLog{changes: make(chan []byte, 1000), done: make(chan struct{})}
		l.close = sync.OnceFunc(func() { close(l.changes) })
		go func() {
			defer close(l.done)
			cfg.StateMachine.Lead(cfg.Self, 1)
			for change := range l.changes {
				cfg.StateMachine.Apply(change)
				applied++
			}
		}()
		return l, nil
	}
	seed, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: "127.0.0.1:0", World: 1, AllowWeakToken: true, StateDir: t.TempDir(), Consensus: open})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(seed.Err(), seed.Close()); err != nil {
		t.Fatal(err)
	}
	if applied == 0 {
		t.Error("the seed has proposed no change")
	}
}
