package tcp

import (
	"net"
	"sync"
	"time"
)

// patience is how long a handshake may take before it has to make way for
// others that wait.
const patience = time.Second

// A gate holds the sockets that have not proved yet what they are, so that
// strangers cost a bounded amount of memory. When it is full, one that has
// said nothing yet is closed, or else one that has been there for long; only
// while there are neither, new sockets wait in the kernel.
type gate struct {
	max  int
	left chan struct{} // has something after a socket has left

	mu     sync.Mutex
	closed bool
	inside map[net.Conn]*guest
	known  map[net.Conn]struct{} // have proved what they are, and make way for nobody
}

type guest struct {
	since time.Time
	talks bool
}

func (g *gate) init(most int) {
	g.max = most
	g.left = make(chan struct{}, 1)
	g.inside, g.known = make(map[net.Conn]*guest), make(map[net.Conn]struct{})
}

// enter lets a socket in, waiting for room if it must. It reports false if the
// gate has been closed.
func (g *gate) enter(sock net.Conn, over <-chan struct{}) bool {
	for {
		wait, ok := g.tryEnter(sock, time.Now())
		if ok {
			return true
		}
		timer := time.NewTimer(wait)
		select {
		case <-g.left:
		case <-timer.C:
		case <-over:
			timer.Stop()
			return false
		}
		timer.Stop()
	}
}

// tryEnter lets a socket in, or says how long to wait before it is worth to
// try again.
func (g *gate) tryEnter(sock net.Conn, now time.Time) (wait time.Duration, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return patience, false
	}
	if len(g.inside) >= g.max {
		oldest := g.oldest(func(v *guest) bool { return !v.talks })
		if oldest == nil {
			oldest = g.oldest(func(*guest) bool { return true })
			if age := now.Sub(g.inside[oldest].since); age < patience {
				return patience - age, false
			}
		}
		oldest.Close()
		delete(g.inside, oldest)
	}
	g.inside[sock] = &guest{since: now}
	return 0, true
}

// oldest is the one that has been inside for longest of those that which says.
func (g *gate) oldest(which func(*guest) bool) (sock net.Conn) {
	for s, v := range g.inside {
		if which(v) && (sock == nil || v.since.Before(g.inside[sock].since)) {
			sock = s
		}
	}
	return sock
}

// talks notes that a socket has begun as one of this transport does.
func (g *gate) talks(sock net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if v := g.inside[sock]; v != nil {
		v.talks = true
	}
}

// knows notes that a socket has proved what it is, so that it takes no room of others.
// It reports whether it was still inside: if not, it is closed.
func (g *gate) knows(sock net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.inside[sock]
	if ok {
		g.known[sock] = struct{}{}
		g.remove(sock)
	}
	return ok
}

// leave reports whether the socket was still there: if not, it is closed.
func (g *gate) leave(sock net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, ok := g.inside[sock]
	_, known := g.known[sock]
	delete(g.known, sock)
	g.remove(sock)
	return ok || known && !g.closed
}

// remove makes room for another. It is called with the lock held.
func (g *gate) remove(sock net.Conn) {
	delete(g.inside, sock)
	select {
	case g.left <- struct{}{}:
	default:
	}
}

// close closes the sockets that are inside, and lets no more in.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for sock := range g.inside {
		sock.Close()
	}
	for sock := range g.known {
		sock.Close()
	}
}
