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

// stopRead interrupts reads. The socket stays open until release.
func (ps *pipeSocket) stopRead() {
	ps.dirs.mu.Lock()
	defer ps.dirs.mu.Unlock()
	ps.dirs.readEnded = true
	_ = ps.socket.SetReadDeadline(past())
}

// endRead interrupts reads, and closes the socket if no pipe writes to it. It is called once.
func (ps *pipeSocket) endRead() {
	ps.stopRead()
	ps.release()
}

// endWrite interrupts writes, and closes the socket if no pipe reads from it. It is called once.
func (ps *pipeSocket) endWrite() {
	ps.dirs.mu.Lock()
	ps.dirs.writeEnded = true
	_ = ps.socket.SetWriteDeadline(past())
	ps.dirs.mu.Unlock()
	ps.release()
}

// release ends the use of the socket by one of its pipes.
func (ps *pipeSocket) release() {
	ps.dirs.mu.Lock()
	defer ps.dirs.mu.Unlock()
	if ps.dirs.users--; ps.dirs.users <= 0 {
		ps.socket.Close()
	}
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

// retire sends m, which says that a pipe has ended. The socket stays open until the peer has heard it, since a socket that fails before
// ends the conn.
func (c *conn) retire(m message, ps *pipeSocket) {
	c.mu.Lock()
	over := c.ended
	if !over {
		c.retired[m.pipe] = ps
	}
	c.mu.Unlock()
	if over {
		ps.release()
		return
	}
	c.send(m)
}

// handleHeard ends the use of a socket: the peer knows that the pipe has ended.
func (c *conn) handleHeard(id uint32) {
	if s := c.sender(id); s != nil {
		s.handleHeard()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if ps := c.retired[id]; ps != nil {
		delete(c.retired, id)
		ps.release()
	}
}
