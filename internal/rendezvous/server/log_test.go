package server

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/nexar-go/nexar/consensus"
)

// A recorder is a state machine that keeps the calls of a log, and proposes a change when it
// applies the first one.
type recorder struct {
	consensus.StateMachine
	opened chan struct{}
	log    consensus.Log

	mu    sync.Mutex
	calls []string
}

func (r *recorder) Lead(seed, term uint64) {
	<-r.opened
	r.add(fmt.Sprint("lead ", seed))
	r.log.Propose(term, []byte("first"))
}

func (r *recorder) Apply(change []byte) {
	r.add(string(change))
	if string(change) == "first" {
		r.log.Propose(localTerm, []byte("second"))
	}
}

func (r *recorder) add(call string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call)
}

// The log of a seed that is alone applies all changes in order, also those that are proposed
// while one is applied, before Close returns.
func TestLocalLog(t *testing.T) {
	r := &recorder{opened: make(chan struct{})}
	var err error
	if r.log, err = openLocal(consensus.Config{Self: 7, StateMachine: r}); err != nil {
		t.Fatal(err)
	}
	close(r.opened)
	if err := r.log.Close(); err != nil {
		t.Fatal(err)
	}
	if want := []string{"lead 7", "first", "second"}; !slices.Equal(r.calls, want) {
		t.Errorf("calls %q, want %q", r.calls, want)
	}
	if err := r.log.Step(1, nil); err == nil {
		t.Error("it takes messages of other seeds")
	}
}
