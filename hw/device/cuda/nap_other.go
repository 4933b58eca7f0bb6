//go:build !linux

package cuda

import (
	"sync"
	"time"
)

// A nap is a sleep of a thread that another one can end.
type nap struct {
	once  sync.Once
	ended chan struct{}
}

func (n *nap) channel() chan struct{} {
	n.once.Do(func() { n.ended = make(chan struct{}, 1) })
	return n.ended
}

func exact() {}

// sleep sleeps for a time, unless ready reports a reason not to, or end is called.
func (n *nap) sleep(d time.Duration, ready func() bool) {
	if ready() {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-n.channel():
	case <-timer.C:
	}
}

// end ends a sleep.
func (n *nap) end() {
	select {
	case n.channel() <- struct{}{}:
	default:
	}
}
