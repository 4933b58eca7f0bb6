// Package yield gives the processor to others for a moment. That suits waits
// that are shorter than it takes to go to sleep and to be woken.
//
// Most callers that wait for another process take the function that Across
// returns, and call it between two looks.
package yield

import "runtime"

// Within gives the processor to another goroutine of this process.
func Within() { runtime.Gosched() }

// goschedEvery is how many yields to other processes lie between two to other
// goroutines, which wait for a processor of this process as well.
const goschedEvery = 8

// Across returns a function that gives the processor to other processes. It is
// for one goroutine.
func Across() func() {
	var turns Turns
	return turns.Yield
}

// Turns gives the processor to other processes, and now and then to other
// goroutines. It is for one goroutine.
type Turns struct{ n int }

// Yield gives the processor away once.
func (t *Turns) Yield() {
	if t.n++; t.n%goschedEvery == 0 {
		runtime.Gosched()
	}
	thread()
}
