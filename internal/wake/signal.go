// Package wake wakes goroutines that wait for a change.
package wake

// A Signal tells goroutines that something has changed. The lock of that thing guards the Signal.
type Signal struct{ next chan struct{} }

// NewSignal returns a Signal.
func NewSignal() Signal { return Signal{make(chan struct{})} }

// Next returns a channel that is closed at the next change.
func (s *Signal) Next() <-chan struct{} { return s.next }

// Send wakes all goroutines that wait for the next change.
func (s *Signal) Send() {
	close(s.next)
	s.next = make(chan struct{})
}
