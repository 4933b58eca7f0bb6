package tcp

import (
	"sync"
	"time"
)

// Halves are the two directions of a channel. Each is used by one pipe at the most.
type halves struct {
	mu      sync.Mutex
	used    int
	shared  bool // there is a second pipe, or was
	noRead  bool // the direction has ended
	noWrite bool
}

// share takes the second half of a channel, unless the first has ended.
func (ch *channel) share() bool {
	h := &ch.halves
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.shared || h.noRead || h.noWrite {
		return false
	}
	h.shared = true
	h.used++
	return true
}

// endRead interrupts who reads, and closes the socket if no pipe writes to it.
func (ch *channel) endRead() { ch.halves.end(&ch.halves.noRead, ch.socket.SetReadDeadline, ch.socket) }

// endWrite interrupts who writes, and closes the socket if no pipe reads from it.
func (ch *channel) endWrite() {
	ch.halves.end(&ch.halves.noWrite, ch.socket.SetWriteDeadline, ch.socket)
}

func (h *halves) end(ended *bool, limit func(time.Time) error, sock socket) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if *ended {
		return
	}
	*ended = true
	if h.used--; h.used > 0 {
		limit(past())
		return
	}
	sock.Close()
}

// SetReadDeadline is that of the socket, until the direction has ended.
func (ch *channel) SetReadDeadline(t time.Time) error {
	return ch.halves.limit(&ch.halves.noRead, ch.socket.SetReadDeadline, t)
}

// SetWriteDeadline is that of the socket, until the direction has ended.
func (ch *channel) SetWriteDeadline(t time.Time) error {
	return ch.halves.limit(&ch.halves.noWrite, ch.socket.SetWriteDeadline, t)
}

func (h *halves) limit(ended *bool, set func(time.Time) error, t time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if *ended {
		return errPipeClosed
	}
	return set(t)
}
