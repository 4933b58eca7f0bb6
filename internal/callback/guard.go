// Package callback calls functions of the user's on goroutines that must not end with
// them.
//
// Most callers make a Guard for a call of theirs, have it Call the function, as often
// as it is needed and from any goroutine, and Check when the call has ended: that
// panics as the function did, on the goroutine of whoever has made the call.
package callback

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

// ErrExited is what a function counts as having panicked with that has ended its
// goroutine, most likely with t.FailNow.
var ErrExited = errors.New("its goroutine was ended by runtime.Goexit")

// A Guard keeps the first panic of a function.
//
// Nothing keeps a goroutine that runtime.Goexit ends: that of the caller may end,
// but one of others must not, which ends the process with a panic of its own.
type Guard struct {
	Label string // of the call
	// Failed is called when the function has panicked, with what it has panicked
	// with: the result of the call would be wrong.
	Failed func(err error)

	mu     sync.Mutex
	caught *Panic
}

// A Panic is what a function has panicked with.
type Panic struct {
	Label string
	Value any
	Stack []byte
}

// New is the Panic of a call with this value, at this place.
func New(label string, value any) *Panic { return &Panic{label, value, debug.Stack()} }

func (p *Panic) Error() string {
	return fmt.Sprintf("nexar: %s: the function has panicked: %v\n\n%s", p.Label, p.Value, p.Stack)
}

func (p *Panic) String() string { return p.Error() }

// Unwrap is the value, if that is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// Of is a Guard of a call that has panicked.
func Of(p *Panic) *Guard { return &Guard{Label: p.Label, caught: p} }

// Call calls f, which may panic, or end its goroutine.
func (g *Guard) Call(f func()) {
	returned := false
	defer func() {
		if returned {
			return
		}
		v := recover()
		if v == nil {
			v = ErrExited
		}
		g.mu.Lock()
		if g.caught == nil {
			g.caught = New(g.Label, v)
		}
		g.mu.Unlock()
		g.Failed(fmt.Errorf("its function has panicked: %v", v))
	}()
	f()
	returned = true
}

// Check panics if a call has.
func (g *Guard) Check() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.caught != nil {
		panic(g.caught)
	}
}
