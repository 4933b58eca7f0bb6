// Package spin yields the processor, in waits that are too short for a sleep and a wakeup.
//
// A goroutine that waits for another process calls [Turns.Yield] between two reads of a word.
package spin

import (
	"runtime"
	"time"
)

// Time is how long a wait yields before it sleeps, while nothing happens. Sleeping and waking take a tenth of it, also within a process: its threads
// sleep then, and a rank may wake on another processor. With more ranks than processors each rank waits until others have run.
const Time = 200 * time.Microsecond

// Within yields to another goroutine of this process.
func Within() { runtime.Gosched() }

// goschedOnly and goschedEvery are the numbers of yields to other processes between two yields to
// other goroutines, with one processor for this process and with several. With several, a yield to
// a goroutine often moves this goroutine to a thread that was just woken, most likely on the
// processor of the awaited rank.
const (
	goschedOnly  = 8
	goschedEvery = 256
)

// Across returns the Yield of a new [Turns].
func Across() func() {
	var turns Turns
	return turns.Yield
}

// Turns yields to other processes, and periodically to other goroutines. It is for one goroutine.
type Turns struct{ n int }

// Yield yields the processor once.
func (t *Turns) Yield() {
	if t.n++; t.n%goschedEvery == 0 || t.n%goschedOnly == 0 && runtime.GOMAXPROCS(0) == 1 {
		runtime.Gosched()
	}
	thread()
}
