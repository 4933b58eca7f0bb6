package tcp

import (
	"errors"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// drainTicks times drainInterval bounds the time in which the pipes of a dead peer are read to the end of their sockets. It is
// counted in ticks, so that readers run between them on a busy machine. Only a pipe that is not read takes so long.
const (
	drainTicks    = 15
	drainInterval = 20 * time.Millisecond
)

// endDrained ends the conn after the failure of the control socket, when the bytes that the peer has sent on its pipes
// before were read. The kernel closes all sockets of a process that ends.
func (c *conn) endDrained(reason error) {
	if errors.Is(reason, transport.ErrPeerGone) {
		c.drain()
	}
	c.end(reason)
}

// awaitCause waits for done: the end of the conn, after the socket of a pipe has failed. It returns the error of interrupted before that, if there is
// one.
func awaitCause(done <-chan struct{}, interrupted func() error) error {
	tick := time.NewTicker(drainInterval)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-tick.C:
			if err := interrupted(); err != nil {
				return err
			}
		}
	}
}

func (c *conn) drain() {
	tick := time.NewTicker(drainInterval)
	defer tick.Stop()
	for ticks := 0; ticks < drainTicks && !c.isDrained(); {
		select {
		case <-c.drained:
		case <-tick.C:
			ticks++
		case <-c.ctx.Done():
			return
		}
	}
}

// isDrained reports whether no pipe of the peer has unread bytes, as far as they were read.
func (c *conn) isDrained() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.incoming {
		if !r.drained.Load() {
			return false
		}
	}
	return true
}

// noteDrained is called when the socket of a pipe of the peer has failed and all bytes in it were read.
func (c *conn) noteDrained() {
	select {
	case c.drained <- struct{}{}:
	default:
	}
}
