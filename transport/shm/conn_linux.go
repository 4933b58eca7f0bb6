package shm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/transport"
)

// backlogMax is how many pipes wait for AcceptPipe before OpenPipe begins to
// block. So many letters, and as many answers, always fit a socket.
const backlogMax = 32

// The letters of a conn, told apart by their first byte.
const (
	letterOpen     = 'O' // a pipe: the size of its ring in 4 bytes, and its memory
	letterAccepted = 'A' // AcceptPipe has returned one of the peer's pipes
	letterBye      = 'C' // the conn is closed in good order
)

// A conn is a connection to one peer. The socket carries letters and, by its
// end, tells of the end of the peer. All else is in memory.
type conn struct {
	owner  *endpoint
	peer   string
	remote string
	sock   *net.UnixConn
	ears   *os.File // the bell that the peer rings
	bell   *ringer  // the bell of the peer
	areas  *holding // those of both sides until the conn ends, or nil

	incoming chan *receiver // opened by the peer and not yet accepted
	waiting  chan struct{}  // one for each pipe that waits for the peer's AcceptPipe
	done     chan struct{}  // closed after err is set and all pipes are stopped
	err      error

	mu    sync.Mutex
	ended bool
	ends  []*end // those whose memory is mapped
}

func newConn(owner *endpoint, m *meeting) *conn {
	return &conn{
		owner:    owner,
		peer:     m.peer,
		remote:   fmt.Sprintf("pid %d", m.pid),
		sock:     m.sock,
		ears:     os.NewFile(uintptr(m.ears), "bell"),
		bell:     newRinger(m.bell),
		areas:    m.areas,
		incoming: make(chan *receiver, backlogMax),
		waiting:  make(chan struct{}, backlogMax),
		done:     make(chan struct{}),
	}
}

func (c *conn) Peer() string          { return c.peer }
func (c *conn) RemoteAddr() string    { return c.remote }
func (c *conn) Done() <-chan struct{} { return c.done }

// Capabilities implements [transport.Capable].
func (c *conn) Capabilities() transport.Capabilities {
	return transport.Capabilities{Locality: transport.SameHost, Class: transport.ClassMemory, LargeOpener: c, MemorySharer: c}
}

// OpenPipe implements transport.Conn. It blocks only while very many pipes
// wait for the peer to accept them.
func (c *conn) OpenPipe(ctx context.Context) (transport.Sender, error) {
	return c.openPipe(ctx, c.owner.ringBytes)
}

// OpenLarge implements transport.LargeOpener.
func (c *conn) OpenLarge(ctx context.Context) (transport.Sender, error) {
	return c.openPipe(ctx, c.owner.roomyBytes)
}

func (c *conn) openPipe(ctx context.Context, size int) (transport.Sender, error) {
	if err := c.usable(ctx); err != nil {
		return nil, err
	}
	select {
	case c.waiting <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.done:
		return nil, c.err
	}
	s, err := c.newPipe(size)
	if err != nil {
		if ended := c.Err(); ended != nil {
			return nil, ended
		}
		<-c.waiting
		return nil, fmt.Errorf("shm: open a pipe to %q: %w", c.peer, err)
	}
	return s, nil
}

func (c *conn) newPipe(size int) (*sender, error) {
	fd, memory, err := newMemory("nexar-pipe", headerBytes+size, pipeSeals)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := c.owner.reserve(memory[:os.Getpagesize()]); err != nil { // the indexes
		unix.Munmap(memory)
		return nil, err
	}
	s := newSender(c, memory)
	if !c.add(&s.end) {
		return nil, c.err
	}
	text := binary.BigEndian.AppendUint32([]byte{letterOpen}, uint32(size))
	err = post(c.sock, text, fd)
	if err == nil {
		return s, nil
	}
	s.Close()
	if hungUp(err) || errors.Is(err, net.ErrClosed) {
		<-c.done
	}
	return nil, err
}

// AcceptPipe implements transport.Conn.
func (c *conn) AcceptPipe(ctx context.Context) (transport.Receiver, error) {
	if err := c.usable(ctx); err != nil {
		return nil, err
	}
	select {
	case r := <-c.incoming:
		// If this fails the conn is about to end.
		post(c.sock, []byte{letterAccepted})
		return r, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.done:
		return nil, c.err
	}
}

func (c *conn) usable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.Err()
}

// Err implements transport.Conn.
func (c *conn) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Close implements transport.Conn.
func (c *conn) Close() error {
	c.end(transport.ErrClosed)
	return nil
}

// broken ends the conn because of what came from the peer.
func (c *conn) broken(err error) {
	c.end(fmt.Errorf("%w: what came from it is of no use: %w", transport.ErrPeerGone, err))
}

// end ends the conn for a reason, unless it has ended. It returns when the
// calls on all pipes have been told to return.
func (c *conn) end(reason error) {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		<-c.done
		return
	}
	c.ended = true
	c.err = fmt.Errorf("shm: conn to %q: %w", c.peer, reason)
	ends := slices.Clone(c.ends)
	c.mu.Unlock()

	for _, e := range ends {
		e.stop(connEnded)
	}
	if errors.Is(reason, transport.ErrClosed) {
		// Without it the peer takes us for dead, which is not worth waiting
		// for a peer that does not read.
		postNow(c.sock, []byte{letterBye})
	}
	c.areas.Release()
	close(c.done)
	c.sock.Close()
	c.ears.Close()
	c.bell.retire()
	for _, e := range ends {
		e.finish()
	}
	c.owner.forget(c)
}

// add makes an end stop with the conn. If the conn has ended it gives the
// memory of the end back and reports false.
func (c *conn) add(e *end) bool {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		<-c.done
		e.stop(connEnded)
		e.finish()
		return false
	}
	c.ends = append(c.ends, e)
	c.mu.Unlock()
	return true
}

// drop forgets an end, whose memory is about to be unmapped.
func (c *conn) drop(e *end) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.ends, e); i >= 0 {
		c.ends = slices.Delete(c.ends, i, i+1)
	}
}

func (c *conn) allEnds() []*end {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.ends)
}

// rung looks for ends that the peer has woken.
func (c *conn) rung() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.ends {
		e.rung()
	}
}

// readLetters receives what the peer sends, until the conn ends.
func (c *conn) readLetters(box *postbox) {
	for {
		l, err := box.next()
		switch {
		case errors.Is(err, errLetter):
			c.broken(err)
			return
		case err != nil:
			c.end(transport.ErrPeerGone)
			return
		case string(l.text) == string(letterBye):
			l.drop()
			c.end(transport.ErrPeerClosed)
			return
		}
		err = c.take(l)
		l.drop()
		if err != nil {
			c.broken(err)
			return
		}
	}
}

// take does what a letter says. The caller closes its files.
func (c *conn) take(l letter) error {
	switch kind := l.text[0]; {
	case kind == letterAccepted && len(l.text) == 1:
		select {
		case <-c.waiting:
			return nil
		default:
			return errors.New("it accepts a pipe that was not opened")
		}
	case kind == letterOpen && len(l.text) == 5 && len(l.files) == 1:
		return c.takePipe(int64(binary.BigEndian.Uint32(l.text[1:])), l.files[0])
	}
	return fmt.Errorf("a letter of %d bytes and %d files that begins with %#x", len(l.text), len(l.files), l.text[0])
}

// takePipe maps a pipe that the peer has opened.
func (c *conn) takePipe(size int64, fd int) error {
	if size < ringBytesMin || size > ringBytesMax || size&(size-1) != 0 {
		return fmt.Errorf("a ring of %d bytes", size)
	}
	memory, err := mapMemory(fd, headerBytes+int(size), pipeSeals, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return err
	}
	r := newReceiver(c, memory)
	if !c.add(&r.end) {
		return nil
	}
	select {
	case c.incoming <- r:
		return nil
	default:
		return fmt.Errorf("more than %d pipes that wait to be accepted", backlogMax)
	}
}
