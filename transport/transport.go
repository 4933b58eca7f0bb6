// Package transport is the contract between nexar and the ways to reach a
// peer: quic, tcp, shared memory, the same process, a simulated network.
//
// A transport gives connections, a connection gives pipes, and a pipe carries
// bytes one way, reliably and in order. There is nothing else in it: frames,
// matching, credit and grants are written once, above, and work alike over
// every transport.
//
// Three promises make that possible, and package transporttest checks them:
//
//   - Pipes are independent. A pipe that nobody reads never delays another.
//   - A Conn ends when its peer ends. As soon as a transport can tell that the
//     peer's process is gone it closes Done, and every blocked call returns.
//   - An interrupted Write or ReadFunc reports exactly how many bytes it moved,
//     so that its caller can finish the frame later.
//
// All methods of Transport and Conn may be called from several goroutines. A
// Sender or a Receiver is used by one goroutine at a time, save for
// SetWriteDeadline, SetReadDeadline and Close, which may interrupt it.
package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"sync/atomic"
	"time"
)

// Errors that every transport reports alike. Test for them with errors.Is.
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
	// ErrIdentity says that the peer proved to be someone other than the one
	// asked for, or could not prove to be anyone.
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

// A TryWriter is a Sender that can tell whether a write would block.
type TryWriter interface {
	// TryWrite writes the whole of p without blocking and reports true, or
	// writes nothing and reports false. Errors come with the next Write. It
	// may be called by several goroutines, but not during a Write.
	TryWrite(p []byte) bool
}

// A TryVectorWriter is a TryWriter that can take what lies in several places at
// once.
type TryVectorWriter interface {
	// TryWriteVectored is TryWrite of all pieces, one after the other.
	TryWriteVectored(pieces [][]byte) bool
}

// A PartWriter is a Sender that can tell how much it takes without blocking.
type PartWriter interface {
	// TryWritePart writes as much of the pieces, one after the other, as would
	// not block, and returns how many bytes that are. Errors come with the next
	// Write. It may be called by several goroutines, but not during a Write.
	TryWritePart(pieces [][]byte) int
}

// A VectorWriter is a Sender that can take what lies in several places at once.
type VectorWriter interface {
	// WriteVectored is Write of all pieces, one after the other. It may change
	// the elements of pieces, but not the bytes that they refer to.
	WriteVectored(pieces [][]byte) (n int, err error)
}

// A Poller is a Receiver at which whoever needs what comes can look himself. To
// be woken by a goroutine that waits for it takes several times as long as a
// short message does.
//
// Of Read, ReadFunc, TryRead, TryReadFunc and Attend one call runs at a time, on
// whatever goroutine. Await may run beside the last three. Nobody waits in Read or
// ReadFunc while another one awaits the pipe, or while it is attended.
type Poller interface {
	// TryRead is Read, but returns 0 and no error where Read would wait.
	TryRead(p []byte) (n int, err error)

	// TryReadFunc consumes at most n bytes as ReadFunc does, and calls view with
	// one piece at the most. It returns 0 and no error where ReadFunc would wait.
	TryReadFunc(n int, view func(p []byte)) (int, error)

	// Await waits until TryRead would not return 0, or the pipe or its conn
	// has ended. It waits as well while the pipe is attended, whatever comes.
	// It may return early. One goroutine at a time awaits a pipe.
	Await()

	// Attend says whether somebody looks at the pipe with TryRead, again and
	// again. As long as it is attended, nothing is done to wake who awaits it,
	// which makes it cheap for the peer to write. Attend(false) makes Await
	// return if there is something to read by then.
	Attend(attended bool)
}

// A Locator is a Receiver that may know where its peer runs.
type Locator interface {
	// Processor is the number of the processor that what came last has come from,
	// if the peer is on this machine; -1 is unknown. It may be called at any time.
	Processor() int
}

// A Pairer is a Conn that can pair pipes: the n-th that this side opens so goes one
// way and the n-th that the peer opens so goes the other way of one connection of
// the network, which costs less where short messages are answered. What is long had
// better not be paired: where both ways are busy they are in each other's way. In all
// else such a pipe is one like any other.
type Pairer interface {
	// OpenPaired is OpenPipe for a pipe that is paired.
	OpenPaired(ctx context.Context) (Sender, error)
}

// A Roomy is a Conn that can open pipes with room for more than others have. Long
// payloads, and many short ones in a row, go faster through such a pipe, which may
// occupy more memory. In all else it is one like any other.
type Roomy interface {
	// OpenRoomy is OpenPipe for a pipe with more room.
	OpenRoomy(ctx context.Context) (Sender, error)
}

// A Prioritizer is a Sender whose bytes can be put before those of other
// pipes of the same Conn.
type Prioritizer interface {
	// Prioritize puts this pipe before pipes that are not prioritized.
	Prioritize()
}

// A Secured is a Conn that is protected by TLS.
type Secured interface {
	// ConnectionState is the state of the TLS session, from which keying
	// material can be exported (RFC 9266).
	ConnectionState() tls.ConnectionState
}

// A Prover is an accepted Conn that can be without an identity of its peer, which has to
// authenticate itself by other means. Until then the Transport may close the Conn to admit
// another one.
type Prover interface {
	// Proved notes that the peer has authenticated itself. It reports false if the Conn
	// was closed before.
	Proved() bool
}

// A Sharer is a Conn to a peer that can read this node's memory.
type Sharer interface {
	// Areas returns how many areas either side shares with the other, and the
	// length of each in bytes. Both are 0 if they share none.
	Areas() (count, size int)
	// Hold returns the areas of both sides, or ErrClosed or the end of the Conn.
	Hold() (Areas, error)
	// Sleep blocks while word, in an area of either side, has the value
	// old, until Wake, or for d at the most. It may return early.
	Sleep(word *atomic.Uint32, old uint32, d time.Duration)
	// Wake wakes all that Sleep on word, in whatever process.
	Wake(word *atomic.Uint32)
	// PeerEnded returns a function that reports whether the peer is known to read nothing
	// any more, as its process has ended or has closed its Transport: that the Conn has
	// ended is not enough. It does not keep the Conn.
	PeerEnded() func() bool
}

// Areas are those of a node and of one of its peers. They stay valid until Release, also
// if the Conn ends and its Transport is closed before that.
type Areas interface {
	// Area returns area i of this node, which is the same for all Conns of
	// its Transport, and that of the peer, which must not be written to. They
	// are zero at first, and aligned to pages.
	Area(i int) (own, peer []byte)
	// Reserve has the system provide memory for the first n bytes of area i of
	// this node. It returns an error where there is none; without Reserve, a
	// store to the area, or a load by the peer, would end the process.
	Reserve(i, n int) error
	// Release ends that. It may be called more than once.
	Release()
}
