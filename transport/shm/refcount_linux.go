package shm

import (
	"math"
	"sync/atomic"
)

// A refCount counts the users of a resource, and frees it when it was retired and the last
// user has finished.
type refCount struct {
	users atomic.Int32 // plus retired after retire
	free  func()
}

const retired = math.MinInt32 / 2

// acquire makes the caller a user until unref. It reports false after retire.
func (c *refCount) acquire() bool {
	for {
		n := c.users.Load()
		if n < 0 {
			return false
		}
		if c.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (c *refCount) unref() {
	if c.users.Add(-1) == retired {
		c.free()
	}
}

// retire makes acquire fail from now on. Only the first call has an effect.
func (c *refCount) retire() {
	for {
		n := c.users.Load()
		if n < 0 {
			return
		}
		if c.users.CompareAndSwap(n, n+retired) {
			if n == 0 {
				c.free()
			}
			return
		}
	}
}
