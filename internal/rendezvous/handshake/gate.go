package handshake

import "time"

const (
	// longFrame is the length in bytes of frames that pass a Gate. They take several packets.
	longFrame = 4 << 10
	// passMax is the longest time that a connection holds a token of a Gate: a peer that does not read delays others no longer.
	passMax = 5 * time.Millisecond
)

// A Gate limits the number of connections that write long frames at the same time. If a seed writes a view to all nodes at once,
// the packets for a node arrive one by one, and each of them wakes its process. A nil Gate has no limit.
type Gate struct{ tokens chan struct{} }

// NewGate returns a Gate for n connections at a time.
func NewGate(n int) *Gate { return &Gate{tokens: make(chan struct{}, n)} }

// pass calls write with a token. Others get the token when write returns, or after passMax. If done is closed first, it does not wait.
func (g *Gate) pass(done <-chan struct{}, length int, write func() error) error {
	if g == nil || length < longFrame {
		return write()
	}
	select {
	case g.tokens <- struct{}{}:
	case <-done:
		return write() // It fails.
	}
	released := time.AfterFunc(passMax, func() { <-g.tokens })
	err := write()
	if released.Stop() {
		<-g.tokens
	}
	return err
}
