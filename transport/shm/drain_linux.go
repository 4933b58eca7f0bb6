package shm

import "time"

// The rings of a peer whose process has ended are read to the end for at most drainTicks of a millisecond. The bound is counted in
// ticks, so that readers run between them on a busy machine. Only a pipe that is not read takes so long.
const drainTicks = 300

// drain returns when all bytes were read that the peer has written before its process ended. It wakes readers, since the peer may have
// ended before it did.
func (c *conn) drain() {
	for ticks := 0; ticks < drainTicks && c.wakeReaders(); ticks++ {
		time.Sleep(time.Millisecond)
	}
}

// wakeReaders wakes the readers of pipes with unread bytes. It reports false if there are none, or the conn has ended.
func (c *conn) wakeReaders() (some bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.ends {
		if e.unread != nil && e.unread() {
			e.wake()
			some = true
		}
	}
	return some && !c.ended
}
