// Package handshake carries joining messages between a node and a seed, or between two
// seeds, and authenticates both sides.
//
// [Conn.Call] is the dialing side and [Conn.Answer] the accepting side. The caller proves the
// cluster token first. Both proofs are MACs over keying material of the TLS session, so that a
// proof cannot be relayed to another session.
package handshake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A Conn is a connection with two pipes, one for each direction. One goroutine may read
// while another writes.
type Conn struct {
	transport.Conn
	in  transport.Receiver // nil until the peer has opened it
	out transport.Sender   // nil until this side has opened it

	gate *Gate // of the frames of an Outbox
}

// New returns a Conn that owns the given connection.
func New(conn transport.Conn) *Conn { return &Conn{Conn: conn} }

// LimitBy makes Run pass a Gate with long frames. It is called before Run.
func (c *Conn) LimitBy(g *Gate) { c.gate = g }

// Secured returns the TLS session of the connection, nil if there is none.
func (c *Conn) Secured() transport.TLSConn { return transport.CapabilitiesOf(c.Conn).TLSConn }

// Open opens the pipe to the peer.
func (c *Conn) Open(ctx context.Context) (err error) {
	if c.out == nil {
		c.out, err = c.OpenPipe(ctx)
	}
	return err
}

// accept waits until deadline for the pipe from the peer.
func (c *Conn) accept(ctx context.Context, deadline time.Time) (err error) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	c.in, err = c.AcceptPipe(ctx)
	return err
}

// Read returns the next message, which must be complete by the deadline.
func (c *Conn) Read(deadline time.Time, limit int) (wire.JoinMessage, error) {
	if err := c.in.SetReadDeadline(deadline); err != nil {
		return nil, err
	}
	return wire.ReadJoin(c.in, limit)
}

// silenceParts is the number of parts into which ReadWithin divides the time of silence.
const silenceParts = 4

// ReadWithin returns the next message of a peer, or fails if the peer is silent for longer than
// a time. It measures the time in parts: while this process or its machine is suspended at most
// one part elapses, so that a peer that is suspended with it does not count as dead.
func (c *Conn) ReadWithin(silence time.Duration) (wire.JoinMessage, error) {
	var first [1]byte
	for part := 1; ; part++ {
		if err := c.in.SetReadDeadline(time.Now().Add(silence / silenceParts)); err != nil {
			return nil, err
		}
		_, err := c.in.Read(first[:])
		if err == nil {
			break
		}
		if part == silenceParts || !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, err
		}
	}
	if err := c.in.SetReadDeadline(time.Now().Add(silence)); err != nil {
		return nil, err
	}
	return wire.ReadJoin(io.MultiReader(bytes.NewReader(first[:]), c.in), wire.JoinBytesMax)
}

// ReadReply reads the next message of a seed. It returns a refusal or a redirect as a
// [*RefusedError] or [*RedirectError].
func (c *Conn) ReadReply(deadline time.Time) (wire.JoinMessage, error) {
	m, err := c.Read(deadline, wire.JoinBytesMax)
	if err != nil {
		return nil, fmt.Errorf("no answer: %w", err)
	}
	switch m := m.(type) {
	case wire.JoinRefusal:
		return nil, &RefusedError{Seed: c.RemoteAddr(), Code: m.Code, Text: m.Text}
	case wire.JoinRedirect:
		return nil, &RedirectError{Seed: c.RemoteAddr(), Leader: m.Leader}
	}
	return m, nil
}

// Write writes one message. Connections that run an Outbox use [Outbox.Post] instead.
func (c *Conn) Write(deadline time.Time, m wire.JoinMessage) error {
	b, err := wire.AppendJoin(nil, m)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	return c.writeFrame(deadline, b)
}

func (c *Conn) writeFrame(deadline time.Time, frame []byte) error {
	if err := c.out.SetWriteDeadline(deadline); err != nil {
		return err
	}
	_, err := c.out.Write(frame)
	return err
}

// Finish closes the pipe to the peer, and waits until the peer has read the rest and closes
// the connection: Close would drop unread bytes.
func (c *Conn) Finish(wait time.Duration) {
	if c.out.Close() != nil {
		return
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-c.Done():
	case <-t.C:
	}
}

// WriteLast writes the last message of a connection without an Outbox, and waits until the
// peer has read it.
func (c *Conn) WriteLast(ctx context.Context, wait time.Duration, m wire.JoinMessage) {
	deadline := time.Now().Add(wait)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	if c.Open(ctx) == nil && c.Write(deadline, m) == nil {
		c.Finish(wait)
	}
}

// Reason describes in a few words why the connection has ended with err.
func (c *Conn) Reason(err error) string {
	if cause := c.Err(); cause != nil && !errors.Is(cause, transport.ErrClosed) {
		err = cause
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "too slow"
	case errors.Is(err, io.EOF):
		return "ended the connection"
	default:
		return err.Error()
	}
}

// Frame encodes a message of bounded length.
func Frame(m wire.JoinMessage) []byte {
	b, err := wire.AppendJoin(nil, m)
	if err != nil {
		panic(err)
	}
	return b
}

// Sleep waits for d, or until ctx ends. It reports whether ctx has not ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
