package main

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

// A conn is a connection to one peer. The side that dialed numbers its pipes 0, 2, 4, …,
// the other one 1, 3, 5, ….
type conn struct {
	t        *streams
	control  *tls.Conn
	stream   net.Conn // below control
	peer     string   // its identity
	key      []byte   // shared by both sides
	dialed   bool
	addr     string // of the peer, if dialed
	incoming chan *receiver
	dials    chan struct{} // has an element for each stream that is dialed for the peer
	done     chan struct{}

	sending sync.Mutex // held while a message is written

	mu        sync.Mutex
	err       error  // set before done is closed
	closing   bool   // Close has been called
	next      uint32 // number of the next pipe
	pipes     map[net.Conn]struct{}
	opening   map[uint32]chan opened // results for blocked calls of OpenPipe
	receivers map[uint32]*receiver   // pipes of the peer that wait for their stream or for their end
}

func newConn(t *streams, control *tls.Conn, s net.Conn, peer string, key []byte) *conn {
	return &conn{
		t: t, control: control, stream: s, peer: peer, key: key,
		incoming: make(chan *receiver, maxBacklog), dials: make(chan struct{}, maxBacklog), done: make(chan struct{}),
		pipes: make(map[net.Conn]struct{}), opening: make(map[uint32]chan opened), receivers: make(map[uint32]*receiver),
	}
}

// opened is the result of opening a pipe.
type opened struct {
	stream net.Conn
	err    error
}

// id returns the public half of the key.
func (c *conn) id() string { return string(c.key[:16]) }

func (c *conn) Peer() string          { return cmp.Or(c.peer, c.RemoteAddr()) }
func (c *conn) RemoteAddr() string    { return cmp.Or(c.addr, name) }
func (c *conn) Done() <-chan struct{} { return c.done }

// ConnectionState implements [transport.TLSConn].
func (c *conn) ConnectionState() tls.ConnectionState { return c.control.ConnectionState() }

// Capabilities implements [transport.Capable].
func (c *conn) Capabilities() transport.Capabilities {
	return transport.Capabilities{Locality: transport.SameHost, TLSConn: c}
}

// Err implements [transport.Conn].
func (c *conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close implements [transport.Conn].
func (c *conn) Close() error {
	c.mu.Lock()
	c.closing = true // The peer may end the conn before this side does.
	c.mu.Unlock()
	c.send(msgBye, 0, 0)
	c.end(transport.ErrClosed)
	return nil
}

// end ends the conn. The first reason counts. After Close the reason is ErrClosed, even if the
// peer answers the goodbye before Close continues.
func (c *conn) end(reason error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	if c.closing {
		reason = transport.ErrClosed
	}
	c.err = fmt.Errorf("%s: connection to %q: %w", name, c.Peer(), reason)
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

// Messages on the control stream have a kind, the number of a pipe and a count.
const (
	messageSize = 1 + 4 + 8

	msgDial   = 'w' // asks the side that dialed the conn to dial a stream for the pipe
	msgFailed = 'f' // the answer, if that failed
	msgEnd    = 'e' // the pipe is closed after count bytes
	msgBye    = 'b' // the conn is closed

	sendTimeout = time.Second
)

// send sends a message. It ends the conn if the peer does not read it.
func (c *conn) send(kind byte, pipe uint32, n uint64) {
	b := binary.BigEndian.AppendUint32([]byte{kind}, pipe)
	b = binary.BigEndian.AppendUint64(b, n)
	c.sending.Lock()
	defer c.sending.Unlock()
	select {
	case <-c.done:
		return
	default:
	}
	c.stream.SetWriteDeadline(time.Now().Add(sendTimeout))
	if _, err := c.control.Write(b); err != nil {
		c.end(fmt.Errorf("%w: write to the control stream: %w", transport.ErrPeerGone, err))
	}
}

// readControl handles the messages of the peer until the conn ends.
func (c *conn) readControl() {
	var b [messageSize]byte
	for {
		if _, err := io.ReadFull(c.control, b[:]); err != nil {
			c.end(fmt.Errorf("%w: %v", transport.ErrPeerGone, err))
			return
		}
		pipe := binary.BigEndian.Uint32(b[1:])
		switch b[0] {
		case msgDial:
			select {
			case c.dials <- struct{}{}:
				c.t.tasks.Go(func() {
					c.dialForPeer(pipe)
					<-c.dials
				})
			default:
				c.end(fmt.Errorf("%w: it asks for more than %d streams at once", transport.ErrPeerGone, maxBacklog))
				return
			}
		case msgFailed:
			c.answer(pipe, opened{err: errors.New("unix: the peer failed to dial a stream for the pipe")})
		case msgEnd:
			r := c.receiver(pipe)
			if r == nil {
				c.end(fmt.Errorf("%w: more than %d of its pipes have no stream or no end", transport.ErrPeerGone, maxBacklog))
				return
			}
			r.finish(binary.BigEndian.Uint64(b[5:]))
		case msgBye:
			c.end(transport.ErrPeerClosed)
			return
		default:
			c.end(fmt.Errorf("%w: it sent a control message of unknown kind %#x", transport.ErrPeerGone, b[0]))
			return
		}
	}
}

// A hello is the first message on the stream of a pipe, after the kind.
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

// proof returns the proof that the side in a role possesses the key.
func (c *conn) proof(role string, pipe uint32) []byte {
	mac := hmac.New(sha256.New, c.key[16:])
	mac.Write(binary.BigEndian.AppendUint32([]byte(role), pipe))
	return mac.Sum(nil)
}

// dialPipe dials a stream for a pipe, and authenticates both sides.
func (c *conn) dialPipe(ctx context.Context, pipe uint32) (net.Conn, error) {
	s, err := c.t.dialer(ctx, c.addr)
	if err != nil {
		return nil, err
	}
	s.SetDeadline(time.Now().Add(handshakeTimeout))
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

// dialForPeer dials a stream for a pipe of the peer.
func (c *conn) dialForPeer(pipe uint32) {
	ctx, cancel := context.WithTimeout(c.t.ctx, handshakeTimeout)
	defer cancel()
	s, err := c.dialPipe(ctx, pipe)
	if err == nil {
		err = c.addStream(s, pipe)
	}
	if err != nil {
		c.send(msgFailed, pipe, 0)
	}
}

// addStream makes s the stream of a pipe. It closes s after an error.
func (c *conn) addStream(s net.Conn, pipe uint32) error {
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
		if r := c.receiver(pipe); r != nil {
			r.stream = s
			select {
			case c.incoming <- r:
				return nil
			default:
			}
		}
	}
	c.drop(s)
	return errors.New("the pipe is cancelled, or the backlog is full")
}

// answer passes the result to the OpenPipe of a pipe. It returns false if that has been
// cancelled.
func (c *conn) answer(pipe uint32, o opened) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	result := c.opening[pipe]
	delete(c.opening, pipe)
	if result != nil {
		result <- o
	}
	return result != nil
}

// receiver returns the reading end of a pipe of the peer. It is called twice for each pipe:
// for its stream and for its end, in either order. It returns nil if too many of them lack one of these.
func (c *conn) receiver(pipe uint32) *receiver {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.receivers[pipe]
	switch {
	case r == nil && len(c.receivers) >= maxBacklog:
	case r == nil:
		r = &receiver{conn: c, ended: make(chan struct{})}
		c.receivers[pipe] = r
	default: // This is the second call.
		delete(c.receivers, pipe)
	}
	return r
}

// drop closes the stream of a pipe.
func (c *conn) drop(s net.Conn) {
	c.mu.Lock()
	delete(c.pipes, s)
	c.mu.Unlock()
	s.Close()
}

// OpenPipe implements [transport.Conn].
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
	result := make(chan opened, 1)
	c.opening[pipe] = result
	c.mu.Unlock()
	if c.dialed {
		c.t.tasks.Go(func() {
			s, err := c.dialPipe(ctx, pipe)
			if err == nil {
				err = c.addStream(s, pipe)
			}
			if err != nil {
				c.answer(pipe, opened{err: fmt.Errorf("unix: open a pipe: %w", err)})
			}
		})
	} else {
		c.send(msgDial, pipe, 0)
	}
	select {
	case o := <-result:
		if o.err != nil {
			return nil, c.cause(o.err, cmp.Or(ctx.Err(), o.err))
		}
		return &sender{conn: c, stream: o.stream, pipe: pipe}, nil
	case <-c.done:
		return nil, c.Err()
	case <-ctx.Done():
	}
	c.mu.Lock()
	delete(c.opening, pipe)
	c.mu.Unlock()
	select {
	case o := <-result:
		if o.stream != nil {
			c.drop(o.stream)
		}
	default:
	}
	return nil, ctx.Err()
}

// AcceptPipe implements [transport.Conn].
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
