package shm

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/transport"
)

// backlogMax is the number of pipes that wait for AcceptPipe before OpenPipe blocks. The
// socket always has room for as many messages and answers.
const backlogMax = 32

// The first bytes of the messages of a conn.
const (
	messageOpen     = 'O' // opens a pipe: 4 bytes with the size of its ring, and its memory
	messageAccepted = 'A' // AcceptPipe has returned a pipe of the peer
	messageBye      = 'C' // closes the conn
)

// A conn is a connection to one peer. Its socket carries messages about pipes, and ends with
// the process of the peer. Data are in shared memory.
type conn struct {
	endpoint  *endpoint
	peer      string
	remote    string
	pid       int32 // of the peer, as this process sees it; 0 in another PID namespace
	sock      *net.UnixConn
	ownEvent  *os.File       // the peer signals it
	peerEvent *eventFDWriter // wakes the peer
	areas     *areaRef       // the areas of both sides until the conn ends, or nil

	incoming chan *receiver // pipes opened by the peer and not accepted yet
	waiting  chan struct{}  // has a value for each pipe that the peer has not accepted yet
	done     chan struct{}  // closed after err is set and all pipes are stopped
	err      error

	mu    sync.Mutex
	ended bool
	ends  []*end // with mapped memory
}

func newConn(endpoint *endpoint, m *handshake) *conn {
	return &conn{
		endpoint:  endpoint,
		peer:      m.peer,
		remote:    fmt.Sprintf("pid %d", m.pid),
		pid:       m.pid,
		sock:      m.sock,
		ownEvent:  os.NewFile(uintptr(m.ownEvent), "eventfd"),
		peerEvent: newEventFDWriter(m.peerEvent),
		areas:     m.areas,
		incoming:  make(chan *receiver, backlogMax),
		waiting:   make(chan struct{}, backlogMax),
		done:      make(chan struct{}),
	}
}

func (c *conn) Peer() string          { return c.peer }
func (c *conn) RemoteAddr() string    { return c.remote }
func (c *conn) Done() <-chan struct{} { return c.done }

// ProcessTime returns the processor time that the process of the peer has used. It is not ok if this process cannot see
// that one.
func (c *conn) ProcessTime() (used time.Duration, ok bool) {
	if c.pid <= 0 {
		return 0, false
	}
	const schedule = 2 // CPUCLOCK_SCHED: all threads, in nanoseconds; see clock_getcpuclockid(3)
	var t unix.Timespec
	if err := unix.ClockGettime(^c.pid<<3|schedule, &t); err != nil {
		return 0, false
	}
	return time.Duration(t.Nano()), true
}

// Capabilities implements [transport.Capable].
func (c *conn) Capabilities() transport.Capabilities {
	return transport.Capabilities{Locality: transport.SameHost, Class: transport.ClassMemory, LargeOpener: c, MemorySharer: c, Lasting: true}
}

// OpenPipe implements transport.Conn. It blocks while backlogMax pipes wait for the peer to
// accept them.
func (c *conn) OpenPipe(ctx context.Context) (transport.Sender, error) {
	return c.openPipe(ctx, c.endpoint.ringBytes)
}

// OpenLarge implements transport.LargeOpener.
func (c *conn) OpenLarge(ctx context.Context) (transport.Sender, error) {
	return c.openPipe(ctx, c.endpoint.largeBytes)
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
	page := os.Getpagesize()
	if err := cmp.Or(c.endpoint.reserve(memory[:page]), c.endpoint.reserve(memory[headerBytes:][:page])); err != nil { // what the peer polls
		unix.Munmap(memory)
		return nil, err
	}
	s := newSender(c, memory)
	if !c.add(&s.end) {
		return nil, c.err
	}
	text := binary.BigEndian.AppendUint32([]byte{messageOpen}, uint32(size))
	err = sendMessage(c.sock, text, fd)
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
		// An error means that the conn is about to end.
		_ = sendMessage(c.sock, []byte{messageAccepted})
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

// protocolError ends the conn because the peer has broken the protocol.
func (c *conn) protocolError(err error) {
	c.end(fmt.Errorf("%w: protocol error: %w", transport.ErrPeerGone, err))
}

// end ends the conn, unless it has ended. It returns when all pipes are stopped.
func (c *conn) end(reason error) {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		<-c.done
		return
	}
	c.ended = true
	c.err = fmt.Errorf("shm: connection to %q: %w", c.peer, reason)
	ends := slices.Clone(c.ends)
	c.mu.Unlock()

	for _, e := range ends {
		e.stop(connEnded)
	}
	if errors.Is(reason, transport.ErrClosed) {
		// Without this message the peer reports this process as dead. That is better than
		// to wait for a peer that does not read.
		_ = trySendMessage(c.sock, []byte{messageBye})
	}
	c.areas.Release()
	close(c.done)
	c.sock.Close()
	c.ownEvent.Close()
	c.peerEvent.retire()
	for _, e := range ends {
		e.finish()
	}
	c.endpoint.remove(c)
}

// add registers an end, which then stops with the conn. If the conn has ended, it unmaps the
// memory of the end and reports false.
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

// drop removes an end before its memory is unmapped.
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

// signaled wakes the ends that the peer has woken.
func (c *conn) signaled() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.ends {
		e.signaled()
	}
}

// readMessages handles the messages of the peer until the conn ends.
func (c *conn) readMessages(in *messageReader) {
	for {
		m, err := in.next()
		switch {
		case errors.Is(err, errMessage):
			c.protocolError(err)
			return
		case err != nil:
			c.drain()
			c.end(fmt.Errorf("%w: its process ended without Close", transport.ErrPeerGone))
			return
		case string(m.text) == string(messageBye):
			m.close()
			c.end(transport.ErrPeerClosed)
			return
		}
		err = c.handle(m)
		m.close()
		if err != nil {
			c.protocolError(err)
			return
		}
	}
}

// handle handles a message. The caller closes its files.
func (c *conn) handle(m message) error {
	switch kind := m.text[0]; {
	case kind == messageAccepted && len(m.text) == 1:
		select {
		case <-c.waiting:
			return nil
		default:
			return errors.New("the peer accepts a pipe that has not been opened")
		}
	case kind == messageOpen && len(m.text) == 5 && len(m.files) == 1:
		return c.acceptRing(int64(binary.BigEndian.Uint32(m.text[1:])), m.files[0])
	}
	return fmt.Errorf("unknown message of type %#x, %d bytes and %d files", m.text[0], len(m.text), len(m.files))
}

// acceptRing maps the ring of a pipe that the peer has opened.
func (c *conn) acceptRing(size int64, fd int) error {
	if size < ringBytesMin || size > ringBytesMax || size&(size-1) != 0 {
		return fmt.Errorf("the peer opens a ring of %d bytes, want a power of two from %d to %d", size, ringBytesMin, ringBytesMax)
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
		return fmt.Errorf("the peer has opened more than %d pipes that are not accepted yet", backlogMax)
	}
}
