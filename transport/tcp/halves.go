package tcp

import (
	"sync"
	"time"
)

// halves are the two directions of a pipeSocket. Each carries at most one pipe.
type halves struct {
	mu         sync.Mutex
	users      int
	shared     bool // a second pipe uses or has used the socket
	readEnded  bool // the direction has ended
	writeEnded bool
}

// share adds the second pipe, unless the first has ended.
func (ps *pipeSocket) share() bool {
	h := &ps.halves
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.shared || h.readEnded || h.writeEnded {
		return false
	}
	h.shared = true
	h.users++
	return true
}

// endRead interrupts reads, and closes the socket if no pipe writes to it.
func (ps *pipeSocket) endRead() {
	ps.halves.end(&ps.halves.readEnded, ps.socket.SetReadDeadline, ps.socket)
}

// endWrite interrupts writes, and closes the socket if no pipe reads from it.
func (ps *pipeSocket) endWrite() {
	ps.halves.end(&ps.halves.writeEnded, ps.socket.SetWriteDeadline, ps.socket)
}

func (h *halves) end(ended *bool, limit func(time.Time) error, sock socket) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if *ended {
		return
	}
	*ended = true
	if h.users--; h.users > 0 {
		limit(past())
		return
	}
	sock.Close()
}

// SetReadDeadline sets the read deadline, unless the direction has ended.
func (ps *pipeSocket) SetReadDeadline(t time.Time) error {
	return ps.halves.setDeadline(&ps.halves.readEnded, ps.socket.SetReadDeadline, t)
}

// SetWriteDeadline sets the write deadline, unless the direction has ended.
func (ps *pipeSocket) SetWriteDeadline(t time.Time) error {
	return ps.halves.setDeadline(&ps.halves.writeEnded, ps.socket.SetWriteDeadline, t)
}

func (h *halves) setDeadline(ended *bool, set func(time.Time) error, t time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if *ended {
		return errPipeClosed
	}
	return set(t)
}
