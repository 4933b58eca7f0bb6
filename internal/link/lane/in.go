package lane

import "sync/atomic"

const (
	// besideBytes is the number of bytes behind the last acknowledgement above which the next frame brings one.
	besideBytes = 128 << 10
	// aloneBytes is the number at which an acknowledgement is due without another frame. The credit that a peer gets for what was
	// consumed comes before.
	aloneBytes = 3 * besideBytes
)

// An In is the receiving half of a lane. One goroutine at a time calls Handled; all methods may be called concurrently.
type In struct {
	received atomic.Uint64 // bytes of whole frames that were handled
	stated   atomic.Uint64 // of them, those that the peer was told of
}

// Handled notes that a numbered frame of n bytes was handled. It reports whether an acknowledgement is due even if no other
// frame is sent.
func (i *In) Handled(n int) (due bool) {
	return i.received.Add(uint64(n))-i.stated.Load() >= aloneBytes
}

// IsDue reports whether the next frame brings an acknowledgement.
func (i *In) IsDue() bool { return i.received.Load()-i.stated.Load() > besideBytes }

// Received returns the position up to which all frames were handled.
func (i *In) Received() uint64 { return i.received.Load() }

// IsStated reports whether the peer was told of all frames.
func (i *In) IsStated() bool { return i.received.Load() == i.stated.Load() }

// State returns the position for an acknowledgement that is sent now.
func (i *In) State() uint64 {
	n := i.received.Load()
	i.stated.Store(n)
	return n
}
