// Package transport is the contract between nexar and what connects two nodes:
// QUIC, TCP, shared memory, the same process, a simulated network, or a
// transport of your own.
//
// A transport gives connections, a connection gives pipes, and a pipe carries
// bytes one way, reliably and in order. Frames, matching, credit and grants are
// implemented once, above, and work alike over every transport.
//
// A transport has to keep three promises, which package transporttest checks:
//
//   - Pipes are independent. A pipe that is not read never delays another.
//   - A Conn ends when its peer ends. As soon as a transport can tell that the
//     peer's process is gone it closes Done, and every blocked call returns.
//   - An interrupted Write or ReadFunc reports exactly how many bytes it moved,
//     so that its caller can finish the frame later.
//
// A transport that can do more, such as writing without blocking or sharing
// memory, returns [Capabilities]. A program passes its own transports to nexar
// as [Factory] values.
//
// All methods of Transport and Conn may be called from several goroutines. A
// Sender or a Receiver is used by one goroutine at a time, save for
// SetWriteDeadline, SetReadDeadline and Close, which may interrupt it.
package transport

import (
	"context"
	"errors"
	"time"
)

// Errors that every transport reports. Test for them with errors.Is.
var (
	// ErrClosed says that this side closed the transport, conn or pipe.
	ErrClosed = errors.New("transport: closed")
	// ErrPeerClosed says that the peer closed the conn, in good order.
	ErrPeerClosed = errors.New("transport: closed by the peer")
	// ErrPeerGone says that the peer's process or host is gone, or that it
	// can no longer be reached.
	ErrPeerGone = errors.New("transport: peer is gone")
	// ErrBusy says that the peer's host answers, but takes no further connection at
	// present: dial again after a pause.
	ErrBusy = errors.New("transport: peer is busy")
	// ErrNotHere says that the peer cannot be reached, as it is not on this host or
	// in this process. Transports return it at once whose Locality is not AnyHost.
	ErrNotHere = errors.New("transport: peer is not on this host")
	// ErrIdentity says that the peer proved another identity than the requested
	// one, or none.
	ErrIdentity = errors.New("transport: peer has the wrong identity")
)

// A Transport dials peers and accepts their connections at one address.
type Transport interface {
	// Name is the short name of the transport: "quic", "mem".
	Name() string

	// Addr is the address under which this transport listens, in the form
	// that Dial takes. It may hold an unspecified host ("0.0.0.0:7000").
	Addr() string

	// Dial connects to the transport that listens at addr. A peer that does
	// not prove to be peer is refused with ErrIdentity; the empty string
	// accepts any peer. A cancelled Dial leaves nothing behind.
	Dial(ctx context.Context, addr, peer string) (Conn, error)

	// Accept returns the next connection whose peer has proved its identity.
	// Clients that fail to, however slowly, never delay one that does. After
	// Close it returns ErrClosed.
	Accept(ctx context.Context) (Conn, error)

	// Close ends all connections and waits until the transport's goroutines
	// have ended.
	Close() error
}

// A Conn is a connection to one peer.
type Conn interface {
	// Peer is the identity that the peer has proved, or its address where
	// the transport knows no identities.
	Peer() string

	// RemoteAddr is the address that the peer's packets come from.
	RemoteAddr() string

	// OpenPipe opens a pipe to the peer. It may return before the peer knows
	// of the pipe, which it does at the latest on the first Write.
	OpenPipe(ctx context.Context) (Sender, error)

	// AcceptPipe returns the next pipe that the peer opened.
	AcceptPipe(ctx context.Context) (Receiver, error)

	// Done is closed when the connection has ended, for whatever reason.
	Done() <-chan struct{}

	// Err is nil until Done is closed. Then it wraps ErrClosed, ErrPeerClosed
	// or ErrPeerGone.
	Err() error

	// Close ends the connection on both sides and drops what is still in the
	// pipes. It does not wait for the peer. The first Close decides Err.
	Close() error
}

// A Sender is the writing end of a pipe.
type Sender interface {
	// Write blocks until p may be used again: until it is delivered, or
	// buffered. If it fails after n bytes, the peer reads exactly these n.
	Write(p []byte) (n int, err error)

	// SetWriteDeadline makes a Write that runs now, and later ones, return
	// os.ErrDeadlineExceeded at t. The zero time takes the deadline away, and
	// the pipe goes on after the byte it stopped at.
	SetWriteDeadline(t time.Time) error

	// Close ends the pipe: the reader gets io.EOF after the last byte. A pipe
	// whose conn has ended is closed already.
	Close() error
}

// A Receiver is the reading end of a pipe.
type Receiver interface {
	// Read reads at least one byte unless p is empty. It returns io.EOF at
	// the end of the pipe.
	Read(p []byte) (n int, err error)

	// ReadFunc consumes exactly n bytes and calls view with each piece of
	// them, in order, where they lie: in a buffer of the transport or in the
	// sender's own memory. The view is read-only and valid only during the
	// call. ReadFunc returns how many bytes it consumed, fewer than n only
	// with an error, which is io.ErrUnexpectedEOF at the end of the pipe.
	ReadFunc(n int, view func(p []byte)) (int, error)

	// SetReadDeadline is to Read and ReadFunc what SetWriteDeadline is to
	// Write.
	SetReadDeadline(t time.Time) error

	// Close says that the rest of the pipe will not be read: the sender's
	// Write fails from now on.
	Close() error
}
