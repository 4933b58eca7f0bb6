package transport

import (
	"context"
	"crypto/tls"
	"sync/atomic"
	"time"
)

// Capabilities say what a Transport, Conn, Sender or Receiver can do beyond the
// methods of its interface. The zero value is a plain transport, which needs no
// more than these methods. Each field stands alone; nil means that the value
// lacks the capability.
//
// A value that has capabilities implements [Capable]. Its user calls
// [CapabilitiesOf] once for each value and keeps the result, so that capabilities
// must not change afterwards.
type Capabilities struct {
	// Locality and Class describe a Transport and its Conns.
	Locality Locality
	Class    Class

	// Capabilities of a Transport.
	FileUser FileUser

	// Capabilities of a Conn.
	Pairer       Pairer
	Roomy        Roomy
	Secured      Secured
	Prover       Prover
	Sharer       Sharer
	RemoteMemory RemoteMemory

	// Capabilities of a Sender.
	TryWriter       TryWriter
	TryVectorWriter TryVectorWriter
	PartWriter      PartWriter
	VectorWriter    VectorWriter
	Prioritizer     Prioritizer

	// Capabilities of a Receiver.
	Poller  Poller
	Locator Locator
}

// A Capable is a Transport, Conn, Sender or Receiver with capabilities.
type Capable interface {
	Capabilities() Capabilities
}

// CapabilitiesOf returns the capabilities of a Transport, Conn, Sender or
// Receiver: none unless v is [Capable].
func CapabilitiesOf(v any) Capabilities {
	if c, ok := v.(Capable); ok {
		return c.Capabilities()
	}
	return Capabilities{}
}

// Locality says which peers a transport can reach.
type Locality uint8

const (
	// AnyHost is the locality of a transport that crosses the network.
	AnyHost Locality = iota
	// SameHost is the locality of a transport between processes of one host. Such
	// a transport is tried first, and its Dial returns an error at once for a peer
	// of another host.
	SameHost
	// SameProcess is the locality of a transport within one process.
	SameProcess
)

// A Class says which cost model fits a transport. Ranks choose algorithms for the
// highest class among their links.
type Class uint8

// The classes that have a cost model.
const (
	ClassUnknown Class = iota
	ClassMemory        // through memory of this host
	ClassTCP           // TCP in the clear
	ClassTLS           // TLS over TCP
	ClassQUIC          // QUIC in user space
)

// A FileUser is a Transport that needs file descriptors, such as sockets.
type FileUser interface {
	// OutOfFiles returns why the process could not open another descriptor within
	// the last minute, or nil.
	OutOfFiles() error
}

// A TryWriter is a Sender that can write without blocking.
type TryWriter interface {
	// TryWrite writes the whole of p without blocking and reports true, or
	// writes nothing and reports false. The next Write returns the error, if
	// any. Several goroutines may call it, but not during a Write.
	TryWrite(p []byte) bool
}

// A TryVectorWriter is a TryWriter for data that lies in several pieces.
type TryVectorWriter interface {
	// TryWriteVectored is TryWrite of all pieces, one after the other.
	TryWriteVectored(pieces [][]byte) bool
}

// A PartWriter is a Sender that can write part of its input without blocking.
type PartWriter interface {
	// TryWritePart writes as much of the pieces, one after the other, as would
	// not block, and returns the number of bytes. The next Write returns the
	// error, if any. Several goroutines may call it, but not during a Write.
	TryWritePart(pieces [][]byte) int
}

// A VectorWriter is a Sender for data that lies in several pieces.
type VectorWriter interface {
	// WriteVectored is Write of all pieces, one after the other. It may change
	// the elements of pieces, but not the bytes that they refer to.
	WriteVectored(pieces [][]byte) (n int, err error)
}

// A Prioritizer is a Sender whose bytes can overtake those of other pipes of
// the same Conn.
type Prioritizer interface {
	// Prioritize puts this pipe before pipes that are not prioritized.
	Prioritize()
}

// A Poller lets the goroutine that needs the data read a Receiver without
// blocking. Waking a goroutine that blocks in Read costs several times as much as
// a short message.
//
// One call of Read, ReadFunc, TryRead, TryReadFunc and Attend runs at a time, on
// any goroutine. Await may run beside the last three. Read and ReadFunc are not
// called while another goroutine is in Await, or while the pipe is attended.
type Poller interface {
	// TryRead is Read, but returns 0 and no error where Read would block.
	TryRead(p []byte) (n int, err error)

	// TryReadFunc consumes at most n bytes as ReadFunc does, and calls view with
	// one piece at most. It returns 0 and no error where ReadFunc would block.
	TryReadFunc(n int, view func(p []byte)) (int, error)

	// Await blocks until TryRead would not return 0, or the pipe or its Conn has
	// ended. It also blocks while the pipe is attended, whatever arrives. It may
	// return early. One goroutine at a time calls Await.
	Await()

	// Attend says whether a goroutine polls the pipe with TryRead. While it is
	// attended the transport does not wake Await, which makes writes cheap for
	// the peer. Attend(false) makes Await return if there is something to read.
	Attend(attended bool)
}

// A Locator is a Receiver that can know on which processor its peer runs.
type Locator interface {
	// Processor is the number of the processor that sent the last data, if the
	// peer is on this machine; -1 is unknown. It may be called at any time.
	Processor() int
}

// A Pairer is a Conn that can pair pipes: the n-th pipe that this side opens with
// OpenPaired and the n-th that the peer opens with it are the two directions of
// one network connection. Acknowledgements then travel with the answers, which
// makes short messages cheaper. Long payloads should not be paired: both
// directions slow each other down. A paired pipe is otherwise like any other.
type Pairer interface {
	// OpenPaired is OpenPipe for a paired pipe.
	OpenPaired(ctx context.Context) (Sender, error)
}

// A Roomy is a Conn that can open pipes with larger buffers. Long payloads, and
// many short ones in a row, are faster through such a pipe, which may use more
// memory. It is otherwise like any other.
type Roomy interface {
	// OpenRoomy is OpenPipe for a pipe with larger buffers.
	OpenRoomy(ctx context.Context) (Sender, error)
}

// A Secured is a Conn that is protected by TLS. Nodes join a cluster over such
// Conns only.
type Secured interface {
	// ConnectionState is the state of the TLS session, from which keying
	// material can be exported (RFC 9266).
	ConnectionState() tls.ConnectionState
}

// A Prover is an accepted Conn whose peer may have no identity yet and
// authenticates itself by other means. Until then the Transport may close the
// Conn to admit another one.
type Prover interface {
	// Proved notes that the peer has authenticated itself. It reports false if
	// the Conn was closed before.
	Proved() bool
}

// A Sharer is a Conn to a peer that can read this node's memory.
type Sharer interface {
	// Areas returns how many areas either side shares with the other, and the
	// length of each in bytes. Both are 0 if they share none.
	Areas() (count, size int)
	// Hold returns the areas of both sides. It fails with ErrClosed or with the
	// error of the Conn.
	Hold() (Areas, error)
	// Sleep blocks while word, in an area of either side, has the value
	// old, until Wake, or for d at most. It may return early.
	Sleep(word *atomic.Uint32, old uint32, d time.Duration)
	// Wake wakes every Sleep on word, in any process.
	Wake(word *atomic.Uint32)
	// PeerEnded returns a function that reports whether the peer reads nothing
	// any more, because its process has ended or has closed its Transport; the
	// end of the Conn alone does not imply that. It does not keep the Conn.
	PeerEnded() func() bool
}

// Areas are those of a node and of one of its peers. They stay valid until Release,
// even if the Conn ends and its Transport is closed before.
type Areas interface {
	// Area returns area i of this node, which is the same for all Conns of
	// its Transport, and that of the peer, which is read-only. They are zero at
	// first, and aligned to pages.
	Area(i int) (own, peer []byte)
	// Reserve allocates memory for the first n bytes of area i of this node, and
	// fails if there is none. Without Reserve, a store to the area, or a load by
	// the peer, would end the process where memory is short.
	Reserve(i, n int) error
	// Release ends the use of the areas. It may be called more than once.
	Release()
}
