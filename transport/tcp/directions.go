package tcp

import (
	"sync"
	"time"
)

// directions are the two directions of a pipeSocket. Each carries at most one pipe.
type directions struct {
	mu         sync.Mutex
	users      int
	shared     bool // a second pipe uses or has used the socket
	readEnded  bool // the direction has ended
	writeEnded bool
}

// share adds the second pipe, unless the first has ended.
func (ps *pipeSocket) share() bool {
	d := &ps.dirs
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shared || d.readEnded || d.writeEnded {
		return false
	}
	d.shared = true
	d.users++
	return true
}

// endRead interrupts reads, and closes the socket if no pipe writes to it.
func (ps *pipeSocket) endRead() {
	ps.dirs.end(&ps.dirs.readEnded, ps.socket.SetReadDeadline, ps.socket)
}

// endWrite interrupts writes, and closes the socket if no pipe reads from it.
func (ps *pipeSocket) endWrite() {
	ps.dirs.end(&ps.dirs.writeEnded, ps.socket.SetWriteDeadline, ps.socket)
}

func (d *directions) end(ended *bool, limit func(time.Time) error, sock socket) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if *ended {
		return
	}
	*ended = true
	if d.users--; d.users > 0 {
		_ = limit(past())
		return
	}
	sock.Close()
}

// SetReadDeadline sets the read deadline, unless the direction has ended.
func (ps *pipeSocket) SetReadDeadline(t time.Time) error {
	return ps.dirs.setDeadline(&ps.dirs.readEnded, ps.socket.SetReadDeadline, t)
}

// SetWriteDeadline sets the write deadline, unless the direction has ended.
func (ps *pipeSocket) SetWriteDeadline(t time.Time) error {
	return ps.dirs.setDeadline(&ps.dirs.writeEnded, ps.socket.SetWriteDeadline, t)
}

func (d *directions) setDeadline(ended *bool, set func(time.Time) error, t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if *ended {
		return errPipeClosed
	}
	return set(t)
}
