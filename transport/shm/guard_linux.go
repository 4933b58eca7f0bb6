package shm

import (
	"math"
	"sync/atomic"
)

// A guard keeps a thing until nobody uses it any more.
type guard struct {
	// users is how many have entered, plus retired once that is so.
	users   atomic.Int32
	release func()
}

const retired = math.MinInt32 / 2

// enter reports whether the thing may be used, until leave.
func (g *guard) enter() bool {
	for {
		n := g.users.Load()
		if n < 0 {
			return false
		}
		if g.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (g *guard) leave() {
	if g.users.Add(-1) == retired {
		g.release()
	}
}

// retire lets nobody enter any more. The last to leave releases the thing.
func (g *guard) retire() {
	for {
		n := g.users.Load()
		if n < 0 {
			return
		}
		if g.users.CompareAndSwap(n, n+retired) {
			if n == 0 {
				g.release()
			}
			return
		}
	}
}
