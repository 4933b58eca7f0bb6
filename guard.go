package nexar

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

// errExited is what a function counts as having panicked with that has ended its
// goroutine, most likely with t.FailNow.
var errExited = errors.New("its goroutine was ended by runtime.Goexit")

// A guard calls a function of the user's for a collective, on whatever
// goroutine that runs, and keeps the first panic for the goroutine that has
// made the call. The communicator ends, as the result would be wrong.
//
// Nothing keeps a goroutine that runtime.Goexit ends: that of a Handle, or of
// the caller, may end, but one of the engine's must not, which ends the process
// with a panic of its own.
type guard struct {
	comm  *Comm
	label string // of the call

	mu     sync.Mutex
	caught *combinePanic
}

// A combinePanic is what a function that combines has panicked with.
type combinePanic struct {
	label string
	value any
	stack []byte
}

func (p *combinePanic) Error() string {
	return fmt.Sprintf("nexar: %s: the function has panicked: %v\n\n%s", p.label, p.value, p.stack)
}

func (p *combinePanic) String() string { return p.Error() }

// Unwrap is the value, if that is an error.
func (p *combinePanic) Unwrap() error {
	err, _ := p.value.(error)
	return err
}

func (g *guard) call(f func()) {
	returned := false
	defer func() {
		if returned {
			return
		}
		v := recover()
		if v == nil {
			v = errExited
		}
		g.mu.Lock()
		if g.caught == nil {
			g.caught = &combinePanic{g.label, v, debug.Stack()}
		}
		g.mu.Unlock()
		g.comm.comm.Cancel(fmt.Errorf("its function has panicked: %v", v))
	}()
	f()
	returned = true
}

// check panics if a call has.
func (g *guard) check() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.caught != nil {
		panic(g.caught)
	}
}
