// Package spin gives the processor to others for a moment. That suits waits
// that are shorter than it takes to go to sleep and to be woken.
//
// Most callers that wait for another process take the function that Across
// returns, and call it between two looks.
package spin

import "runtime"

// Within gives the processor to another goroutine of this process.
func Within() { runtime.Gosched() }

// goschedOnly and goschedEvery are how many yields to other processes lie
// between two to other goroutines: where one processor is all that this process
// has, and where others may take them. There the goroutine that yields is often
// taken as well, by a thread that was woken for it: then it goes on wherever
// that has been put, most likely where the rank runs that it waits for.
const (
	goschedOnly  = 8
	goschedEvery = 256
)

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
	if t.n++; t.n%goschedEvery == 0 || t.n%goschedOnly == 0 && runtime.GOMAXPROCS(0) == 1 {
		runtime.Gosched()
	}
	thread()
}
