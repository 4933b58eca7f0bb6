package stream

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// A conn is a connection to one peer. Pipes of the side that dialed have even numbers,
// those of the other one odd numbers.
type conn struct {
	t        *streams
	control  *tls.Conn
	stream   net.Conn // under control
	peer     string
	key      []byte // both ends know it
	dialed   bool
	addr     string // of the peer, if dialed
	incoming chan *receiver
	done     chan struct{}

	speaking sync.Mutex // held while a message is written

	mu        sync.Mutex
	err       error // set before done is closed
	closing   bool  // Close was called
	next      uint32
	pipes     map[net.Conn]struct{}
	wanted    map[uint32]chan opened // pipes that OpenPipe waits for
	receivers map[uint32]*receiver   // of the peer's pipes that have not ended
}

func newConn(t *streams, control *tls.Conn, s net.Conn, peer string, key []byte) *conn {
	return &conn{
		t: t, control: control, stream: s, peer: peer, key: key,
		incoming: make(chan *receiver, backlogMax), done: make(chan struct{}),
		pipes: make(map[net.Conn]struct{}), wanted: make(map[uint32]chan opened), receivers: make(map[uint32]*receiver),
	}
}

// An opened is the stream of a pipe, or why there is none.
type opened struct {
	stream net.Conn
	err    error
}

// id is the public half of the key.
func (c *conn) id() string { return string(c.key[:16]) }

func (c *conn) Peer() string          { return cmp.Or(c.peer, c.RemoteAddr()) }
func (c *conn) RemoteAddr() string    { return cmp.Or(c.addr, c.t.cfg.Name) }
func (c *conn) Done() <-chan struct{} { return c.done }

// ConnectionState implements [transport.TLSConn].
func (c *conn) ConnectionState() tls.ConnectionState { return c.control.ConnectionState() }

// Capabilities implements [transport.Capable].
func (c *conn) Capabilities() transport.Capabilities {
	return transport.Capabilities{Locality: c.t.cfg.Locality, TLSConn: c}
}

// Err implements transport.Conn.
func (c *conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close implements transport.Conn.
func (c *conn) Close() error {
	c.mu.Lock()
	c.closing = true // The peer may end its side before this one has ended.
	c.mu.Unlock()
	c.say(msgBye, 0, 0)
	c.end(transport.ErrClosed)
	return nil
}

// end ends the conn. The first reason counts, but for that of Close, which overrides others
// that follow from the goodbye.
func (c *conn) end(reason error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	if c.closing {
		reason = transport.ErrClosed
	}
	c.err = fmt.Errorf("%s: conn to %q: %w", c.t.cfg.Name, c.Peer(), reason)
	close(c.done)
	pipes := c.pipes
	c.pipes = nil
	c.mu.Unlock()
	c.stream.Close()
	for p := range pipes {
		p.Close()
	}
	c.t.forget(c)
}

// Messages on the control stream: a byte, the number of a pipe and a count.
const (
	messageBytes = 1 + 4 + 8

	msgWant   = 'w' // dial a stream for my pipe
	msgFailed = 'f' // that did not work
	msgEnd    = 'e' // my pipe had so many bytes
	msgBye    = 'b' // I close the conn
	sayLimit  = time.Second
)

func (c *conn) say(kind byte, pipe uint32, n uint64) {
	b := binary.BigEndian.AppendUint32([]byte{kind}, pipe)
	b = binary.BigEndian.AppendUint64(b, n)
	c.speaking.Lock()
	defer c.speaking.Unlock()
	select {
	case <-c.done:
		return
	default:
	}
	c.stream.SetWriteDeadline(time.Now().Add(sayLimit))
	if _, err := c.control.Write(b); err != nil {
		c.end(fmt.Errorf("%w: it does not read its control stream: %w", transport.ErrPeerGone, err))
	}
}

// listen carries out what the peer says until the conn ends.
func (c *conn) listen() {
	var b [messageBytes]byte
	for {
		if _, err := io.ReadFull(c.control, b[:]); err != nil {
			c.end(fmt.Errorf("%w: %v", transport.ErrPeerGone, err))
			return
		}
		pipe := binary.BigEndian.Uint32(b[1:])
		switch b[0] {
		case msgWant:
			c.t.tasks.Go(func() { c.serveWant(pipe) })
		case msgFailed:
			c.answer(pipe, opened{err: errors.New("stream: the peer cannot dial")})
		case msgEnd:
			c.receiver(pipe).finish(binary.BigEndian.Uint64(b[5:]))
		case msgBye:
			c.end(transport.ErrPeerClosed)
			return
		default:
			c.end(fmt.Errorf("%w: it says %#x", transport.ErrPeerGone, b[0]))
			return
		}
	}
}

// A hello is the beginning of the stream of a pipe.
type hello struct {
	id    [16]byte
	pipe  uint32
	proof [sha256.Size]byte
}

func (h *hello) read(r io.Reader) error {
	var b [16 + 4 + sha256.Size]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return err
	}
	copy(h.id[:], b[:])
	h.pipe = binary.BigEndian.Uint32(b[16:])
	copy(h.proof[:], b[20:])
	return nil
}

func (c *conn) proof(role string, pipe uint32) []byte {
	mac := hmac.New(sha256.New, c.key[16:])
	mac.Write(binary.BigEndian.AppendUint32([]byte(role), pipe))
	return mac.Sum(nil)
}

// dialPipe connects a stream for a pipe.
func (c *conn) dialPipe(ctx context.Context, pipe uint32) (net.Conn, error) {
	s, err := c.t.cfg.Dial(ctx, c.addr)
	if err != nil {
		return nil, err
	}
	s.SetDeadline(time.Now().Add(handshakeLimit))
	defer context.AfterFunc(ctx, func() { s.SetDeadline(past()) })()
	b := binary.BigEndian.AppendUint32(append([]byte{kindPipe}, c.key[:16]...), pipe)
	_, err = s.Write(append(b, c.proof("dial", pipe)...))
	var answer [sha256.Size]byte
	if err == nil {
		_, err = io.ReadFull(s, answer[:])
	}
	if err == nil && !hmac.Equal(answer[:], c.proof("accept", pipe)) {
		err = transport.ErrIdentity
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// serveWant dials a stream for a pipe of the peer.
func (c *conn) serveWant(pipe uint32) {
	ctx, cancel := context.WithTimeout(c.t.life, handshakeLimit)
	defer cancel()
	s, err := c.dialPipe(ctx, pipe)
	if err == nil {
		err = c.place(s, pipe)
	}
	if err != nil {
		c.say(msgFailed, pipe, 0)
	}
}

// place makes a stream the pipe with a number. It closes it if that fails.
func (c *conn) place(s net.Conn, pipe uint32) error {
	s.SetDeadline(time.Time{})
	c.mu.Lock()
	open := c.err == nil
	if open {
		c.pipes[s] = struct{}{}
	}
	c.mu.Unlock()
	if !open {
		s.Close()
		return transport.ErrClosed
	}
	if (pipe%2 == 0) == c.dialed {
		if c.answer(pipe, opened{stream: s}) {
			return nil
		}
	} else {
		r := c.receiver(pipe)
		r.stream = s
		select {
		case c.incoming <- r:
			return nil
		default:
		}
	}
	c.drop(s)
	return errors.New("nobody waits for this pipe")
}

// answer gives the result to the OpenPipe that waits for it.
func (c *conn) answer(pipe uint32, o opened) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	want := c.wanted[pipe]
	delete(c.wanted, pipe)
	if want != nil {
		want <- o
	}
	return want != nil
}

// receiver is the reading end of a pipe of the peer, which its stream or its end may
// announce first.
func (c *conn) receiver(pipe uint32) *receiver {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.receivers[pipe]
	switch {
	case r == nil:
		r = &receiver{conn: c, ended: make(chan struct{})}
		c.receivers[pipe] = r
	default: // Both have come.
		delete(c.receivers, pipe)
	}
	return r
}

func (c *conn) drop(s net.Conn) {
	c.mu.Lock()
	delete(c.pipes, s)
	c.mu.Unlock()
	s.Close()
}

// OpenPipe implements transport.Conn.
func (c *conn) OpenPipe(ctx context.Context) (transport.Sender, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return nil, c.err
	}
	pipe := c.next
	c.next += 2
	want := make(chan opened, 1)
	c.wanted[pipe] = want
	c.mu.Unlock()
	if c.dialed {
		c.t.tasks.Go(func() {
			s, err := c.dialPipe(ctx, pipe)
			if err == nil {
				err = c.place(s, pipe)
			}
			if err != nil {
				c.answer(pipe, opened{err: fmt.Errorf("stream: open a pipe: %w", err)})
			}
		})
	} else {
		c.say(msgWant, pipe, 0)
	}
	select {
	case o := <-want:
		if o.err != nil {
			return nil, c.why(o.err, cmp.Or(ctx.Err(), o.err))
		}
		return &sender{conn: c, stream: o.stream, pipe: pipe}, nil
	case <-c.done:
		return nil, c.Err()
	case <-ctx.Done():
	}
	c.mu.Lock()
	delete(c.wanted, pipe)
	c.mu.Unlock()
	select {
	case o := <-want:
		if o.stream != nil {
			c.drop(o.stream)
		}
	default:
	}
	return nil, ctx.Err()
}

// AcceptPipe implements transport.Conn.
func (c *conn) AcceptPipe(ctx context.Context) (transport.Receiver, error) {
	if err := cmp.Or(c.Err(), ctx.Err()); err != nil {
		return nil, err
	}
	select {
	case r := <-c.incoming:
		return r, nil
	case <-c.done:
		return nil, c.Err()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
