//go:build linux

package rdma

import (
	"runtime"

	"github.com/nexar-go/nexar/hw/internal/verbs"
)

func newOp() *op { return &op{wake: make(chan struct{}, 1)} }

// finish waits until the requests of an op have ended, or the device has stopped to access memory because the conn has
// ended. It reports whether all have succeeded.
func (c *conn) finish(o *op) bool {
	for {
		c.poll()
		c.mu.Lock()
		left, status, ended := o.left, o.status, c.err != nil
		c.mu.Unlock()
		switch {
		case status != verbs.Success:
			<-c.done
			return false
		case left == 0:
			return true
		case ended:
			return false
		}
		c.await(o.wake, nil)
	}
}

// spins is the number of polls before a goroutine sleeps until a completion.
const spins = 100

// await polls for a while, and then sleeps, until wake, done or the end of the conn. It may return early.
func (c *conn) await(wake, done <-chan struct{}) {
	for range spins {
		c.poll()
		select {
		case <-wake:
			return
		case <-done:
			return
		case <-c.done:
			return
		default:
			runtime.Gosched()
		}
	}
	c.sleep(1)
	defer c.sleep(-1)
	select {
	case <-wake:
	case <-done:
	case <-c.done:
	}
}

// sleep adds n to the number of goroutines that sleep until a completion. While it is positive, events report completions, also if
// other goroutines poll.
func (c *conn) sleep(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sleepers += n
	poke(c.rouse)
}

// hold keeps the buffers of the conn until letGo. It reports false if the conn has ended.
func (c *conn) hold() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return false
	}
	c.uses++
	return true
}

func (c *conn) letGo() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uses--
	c.freeLocked()
}
