package poll

import (
	"context"
	"sync/atomic"
)

// An Ended tells a goroutine that what it waits for has ended.
type Ended interface {
	// Has reports whether it has.
	Has() bool
	// Await blocks until it has and returns true, or until ctx ends and returns false.
	Await(ctx context.Context) bool
}

// A Signal is an [Ended] for one goroutine at a time, which needs a channel only while it sleeps. The zero Signal is not given.
type Signal struct {
	state uint32 // written by atomic operations, except in Reset
	wake  chan struct{}
}

// The states of a Signal.
const (
	asleep uint32 = iota + 1 // a goroutine is in Await
	given
)

// Give says that the end has come. It is called once.
func (s *Signal) Give() {
	if atomic.SwapUint32(&s.state, given) == asleep {
		s.wake <- struct{}{}
	}
}

// Has implements [Ended].
func (s *Signal) Has() bool { return atomic.LoadUint32(&s.state) == given }

// Await implements [Ended].
func (s *Signal) Await(ctx context.Context) bool {
	if s.wake == nil {
		s.wake = make(chan struct{}, 1)
	}
	if !atomic.CompareAndSwapUint32(&s.state, 0, asleep) {
		return true
	}
	select {
	case <-s.wake:
		return true
	case <-ctx.Done():
	}
	if atomic.CompareAndSwapUint32(&s.state, asleep, 0) {
		return false
	}
	<-s.wake
	return true
}

// Reset makes the Signal one that is not given. Nobody else may use it.
func (s *Signal) Reset() { s.state = 0 }

// A Channel is an [Ended] that has come when the channel is closed or has a value, which Has or Await takes.
type Channel <-chan struct{}

// Has implements [Ended].
func (c Channel) Has() bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Await implements [Ended].
func (c Channel) Await(ctx context.Context) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}
