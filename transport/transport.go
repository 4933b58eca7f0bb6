// Package transport is the contract between nexar and the transports that connect
// two nodes: QUIC, TCP, shared memory, memory of one process, a simulated network,
// or a transport of the user.
//
// A [Transport] dials and accepts connections, a [Conn] carries pipes, and a pipe is
// a one-way, reliable, ordered stream of bytes: a [Sender] and a [Receiver]. Frames,
// matching, flow control and grants are implemented once, above this package.
//
// A transport keeps three promises, which package transporttest checks:
//
//   - Pipes are independent. A pipe that is not read never delays another one.
//   - A Conn ends when its peer ends. As soon as a transport can tell that the
//     process of the peer is gone, it closes Done, and every blocked call returns.
//   - An interrupted Write or ReadFunc returns exactly how many bytes it moved, so
//     that its caller can finish the frame later.
//
// A transport with further features, such as writing without blocking or shared
// memory, returns them as [Capabilities]. A program passes its own transports to
// nexar as [Factory] values.
//
// All methods of Transport and Conn may be called concurrently. A Sender or a
// Receiver is used by one goroutine at a time, except for SetWriteDeadline,
// SetReadDeadline and Close, which may interrupt it.
package transport

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Errors of all transports. Test for them with [errors.Is].
var (
	// ErrClosed reports that this side has closed the transport, conn or pipe.
	ErrClosed = errors.New("transport: closed")
	// ErrPeerClosed reports that the peer has closed the conn.
	ErrPeerClosed = errors.New("transport: closed by the peer")
	// ErrPeerGone reports that the process or the host of the peer has ended, or
	// can no longer be reached.
	ErrPeerGone = errors.New("transport: peer is gone")
	// ErrStalled reports that the network does not deliver the bytes of the conn. The
	// process of the peer may live, and be reached by another conn.
	ErrStalled = fmt.Errorf("%w: the connection has stalled", ErrPeerGone)
	// ErrBusy reports that the host of the peer answers but accepts no further
	// connection at present. Dial again after a pause.
	ErrBusy = errors.New("transport: peer is busy")
	// ErrNotLocal reports that the peer is on another host, or in another process,
	// which the [Locality] of the transport does not include. Dial returns it
	// without delay.
	ErrNotLocal = errors.New("transport: peer is not on this host")
	// ErrIdentity reports that the peer has proved another identity than the
	// requested one, or none.
	ErrIdentity = errors.New("transport: peer has the wrong identity")
)

// A Transport dials peers, and accepts their connections at one address.
type Transport interface {
	// Name returns the short name of the transport, such as "quic".
	Name() string

	// Addr returns the address at which the transport listens, in the form that
	// Dial takes. Its host may be unspecified ("0.0.0.0:7000").
	Addr() string

	// Dial connects to the transport that listens at addr. It fails with
	// ErrIdentity unless the peer proves the identity peer; an empty peer accepts
	// every identity. A cancelled Dial leaves no Conn behind, on either side.
	Dial(ctx context.Context, addr, peer string) (Conn, error)

	// Accept returns the next connection with a peer that has proved its identity. Clients that
	// fail to, however slowly, do not delay others. After Close it returns ErrClosed.
	Accept(ctx context.Context) (Conn, error)

	// Close closes all connections, and returns when the goroutines of the
	// transport have ended. It may be called more than once.
	Close() error
}

// A Conn is a connection to one peer.
type Conn interface {
	// Peer returns the identity that the peer has proved, or its address if the
	// transport has no identities.
	Peer() string

	// RemoteAddr returns the source address of the peer's packets.
	RemoteAddr() string

	// OpenPipe opens a pipe to the peer. It may return before the peer learns of
	// the pipe, which is at the first Write at the latest.
	OpenPipe(ctx context.Context) (Sender, error)

	// AcceptPipe returns the next pipe that the peer has opened.
	AcceptPipe(ctx context.Context) (Receiver, error)

	// Done is closed when the connection has ended for any reason.
	Done() <-chan struct{}

	// Err returns nil until Done is closed. After that it wraps ErrClosed,
	// ErrPeerClosed or ErrPeerGone.
	Err() error

	// Close ends the connection on both sides and discards the bytes in its pipes.
	// It does not wait for the peer. The side that closes first gets ErrClosed from
	// Err, and the other one ErrPeerClosed; later calls change nothing.
	Close() error
}

// A Sender is the writing end of a pipe.
type Sender interface {
	// Write blocks until p is delivered or buffered, so that the caller may use it
	// again. If Write fails after n bytes, the peer reads exactly these n.
	Write(p []byte) (n int, err error)

	// SetWriteDeadline makes the current Write and later ones fail with
	// [os.ErrDeadlineExceeded] at t. The zero time removes the deadline; the next
	// Write continues after the last byte that was written.
	SetWriteDeadline(t time.Time) error

	// Close ends the pipe: the reader gets io.EOF after the last byte. It returns nil after the
	// end of the Conn.
	Close() error
}

// A Receiver is the reading end of a pipe.
type Receiver interface {
	// Read reads at least one byte unless p is empty. At the end of the pipe it
	// returns io.EOF.
	Read(p []byte) (n int, err error)

	// ReadFunc consumes exactly n bytes. It calls view with each piece of them, in
	// order and never empty, in the memory where they lie: a buffer of the
	// transport, or the slice of the sender. A piece is read-only and valid only
	// during the call. ReadFunc returns the number of bytes consumed. If that is
	// less than n, the error is not nil; at the end of the pipe it is
	// io.ErrUnexpectedEOF.
	ReadFunc(n int, view func(p []byte)) (int, error)

	// SetReadDeadline is SetWriteDeadline for Read and ReadFunc.
	SetReadDeadline(t time.Time) error

	// Close discards the rest of the pipe: every later Write of the sender fails.
	Close() error
}
