// Package callback calls functions of the user on goroutines that must survive a panic.
//
// Most callers create a [Guard] for an operation, call the function by Guard.Call, from any
// goroutine, and call Check when the operation has ended. Check panics if the function did, on the
// goroutine of the user.
package callback

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

// ErrExited is the value of the [Panic] of a function that called runtime.Goexit, such as by
// t.FailNow.
var ErrExited = errors.New("its goroutine was ended by runtime.Goexit")

// A Guard keeps the first panic of a function.
//
// It cannot prevent runtime.Goexit from ending the goroutine. That is harmless on the goroutine of
// the user; on others the caller has to end the process.
type Guard struct {
	Label string // of the operation
	// Failed is called after each panic, with an error that contains its value, to fail the
	// operation.
	Failed func(err error)

	mu     sync.Mutex
	caught *Panic
}

// A Panic is the panic of a function.
type Panic struct {
	Label string
	Value any
	Stack []byte
}

// New returns a Panic with a value and the stack of the caller.
func New(label string, value any) *Panic { return &Panic{label, value, debug.Stack()} }

func (p *Panic) Error() string {
	return fmt.Sprintf("nexar: %s: the function has panicked: %v\n\n%s", p.Label, p.Value, p.Stack)
}

func (p *Panic) String() string { return p.Error() }

// Unwrap returns the value, if that is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// Of returns a Guard with a panic.
func Of(p *Panic) *Guard { return &Guard{Label: p.Label, caught: p} }

// Call calls f and recovers from its panic.
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

// Check panics with the first [Panic], if there is one.
func (g *Guard) Check() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.caught != nil {
		panic(g.caught)
	}
}
