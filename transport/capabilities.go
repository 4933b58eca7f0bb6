package transport

import (
	"context"
	"crypto/tls"
	"sync/atomic"
	"time"
)

// Capabilities are the features of a [Transport], [Conn], [Sender] or [Receiver]
// beyond the methods of its interface. The zero value describes a plain transport.
// The fields are independent of each other; nil means that the feature is missing.
//
// A value with features implements [Capable]. Callers use [CapabilitiesOf] once for
// each value and keep the result, so the capabilities of a value never change.
type Capabilities struct {
	// Locality and Class describe a Transport and its Conns.
	Locality Locality
	Class    Class
	// Clear says that the bytes of pipes cross the network in the clear, without encryption or authentication.
	Clear bool
	// Lasting says that a Conn does not break while both processes live: until a side closes it, the peer receives all that Write has taken.
	// Frames over other Conns are kept until the peer has acknowledged them.
	Lasting bool
	// Silent says that a dial to a process that has ended gets no answer. Other transports return an error at once.
	Silent bool

	// Features of a Transport.
	FileUser   FileUser
	HostMemory HostMemory

	// Features of a Conn.
	PairOpener    PairOpener
	LargeOpener   LargeOpener
	TLSConn       TLSConn
	Authenticator Authenticator
	MemorySharer  MemorySharer
	RemoteMemory  RemoteMemory
	Exposer       Exposer

	// Features of a Sender.
	TryWriter       TryWriter
	TryVectorWriter TryVectorWriter
	PartWriter      PartWriter
	LazyWriter      LazyWriter
	VectorWriter    VectorWriter
	Prioritizer     Prioritizer
	QueueLimiter    QueueLimiter

	// Features of a Receiver.
	Poller     Poller
	CPULocator CPULocator
}

// A Capable is a Transport, Conn, Sender or Receiver with capabilities.
type Capable interface {
	Capabilities() Capabilities
}

// CapabilitiesOf returns the capabilities of a Transport, Conn, Sender or Receiver:
// the zero value unless v is [Capable].
func CapabilitiesOf(v any) Capabilities {
	if c, ok := v.(Capable); ok {
		return c.Capabilities()
	}
	return Capabilities{}
}

// Locality is the set of peers that a transport can reach.
type Locality uint8

const (
	// AnyHost is the locality of a transport that crosses the network.
	AnyHost Locality = iota
	// SameHost is the locality of a transport between processes of one host. Such
	// a transport is tried first. Its Dial returns [ErrNotLocal] without delay for
	// a peer on another host.
	SameHost
	// SameProcess is the locality of a transport within one process.
	SameProcess
)

// Class is the class of a path between two ranks. It selects the cost model for the
// choice of algorithms: that of the highest class among the paths of all ranks.
type Class uint8

// The classes with a cost model, from fast to slow.
const (
	ClassUnknown Class = iota
	ClassMemory        // memory of this host
	ClassTCP           // TCP in the clear
	ClassTLS           // TLS over TCP
	ClassQUIC          // QUIC in user space
)

// A FileUser is a Transport that opens file descriptors, such as sockets.
type FileUser interface {
	// OutOfFiles returns the reason if the process could not open a descriptor
	// within the last minute, and nil otherwise.
	OutOfFiles() error
}

// A TryWriter is a Sender that can write without blocking.
type TryWriter interface {
	// TryWrite writes all of p and returns true, or writes nothing and returns
	// false. It does not block. An error is returned by the next Write. TryWrite
	// may be called concurrently, but not during a Write.
	TryWrite(p []byte) bool
}

// A TryVectorWriter is a TryWriter for several slices at a time.
type TryVectorWriter interface {
	// TryWriteVectored is TryWrite for the concatenation of pieces.
	TryWriteVectored(pieces [][]byte) bool
}

// A PartWriter is a Sender that can write a part of its input without blocking.
type PartWriter interface {
	// TryWritePart writes as much of the concatenation of pieces as it can without
	// blocking, and returns the number of bytes. An error is returned by the next
	// Write. TryWritePart may be called concurrently, but not during a Write.
	TryWritePart(pieces [][]byte) int
}

// A LazyWriter is a Sender whose peer can poll its pipe ([Poller]) without system calls, and that can write without
// waking a goroutine of the peer.
type LazyWriter interface {
	// TryWriteLazy is TryWrite for a few bytes that are not urgent. The peer reads them when it polls the pipe, or
	// with the bytes of another write. A peer that does not poll is woken for them once a bounded
	// number of them, far fewer than the pipe has room for, is unread.
	TryWriteLazy(p []byte) bool
}

// A VectorWriter is a Sender for several slices at a time, like writev.
type VectorWriter interface {
	// WriteVectored is Write for the concatenation of pieces. It may change the
	// elements of pieces, but not their bytes.
	WriteVectored(pieces [][]byte) (n int, err error)
}

// A Prioritizer is a Sender that can send its bytes before those of other pipes of the Conn.
type Prioritizer interface {
	// Prioritize schedules this pipe before all pipes that are not prioritized.
	Prioritize()
}

// A QueueLimiter is a Sender whose bytes wait in the system after Write has returned, before they are sent.
type QueueLimiter interface {
	// LimitQueue makes Write block while more than about n bytes wait there. The caller decides late what is sent next, at the cost of more
	// wakeups. It is called before the first Write.
	LimitQueue(n int)
}

// A Poller is a Receiver that a waiting goroutine can poll for data. To wake a goroutine that
// blocks in Read costs several times as much as the transfer of a short message.
//
// At most one of Read, ReadFunc, TryRead, TryReadFunc and SetPolling runs at a time, on any
// goroutine. WaitReadable may run concurrently with the last three. Read and ReadFunc must not
// be called during WaitReadable or while polling is on.
type Poller interface {
	// TryRead is Read, but returns 0 and nil if Read would block.
	TryRead(p []byte) (n int, err error)

	// TryReadFunc consumes at most n bytes and calls view at most once, with all
	// of them. It returns 0 and nil if ReadFunc would block.
	TryReadFunc(n int, view func(p []byte)) (int, error)

	// WaitReadable blocks until TryRead would return data or an error. While
	// polling is on, data does not end the wait. It may return early. One
	// goroutine at a time calls it.
	WaitReadable()

	// SetPolling declares that a goroutine polls the pipe with TryRead, or has stopped to.
	// While polling is on, the transport does not wake WaitReadable for data, which makes
	// writes cheaper for the peer. SetPolling(false) makes WaitReadable return if there is
	// data. The memory of a pipe that ends while polling is on may be kept until then.
	SetPolling(on bool)
}

// A CPULocator is a Receiver that may know the processor of its peer.
type CPULocator interface {
	// PeerCPU returns the number of the processor that sent the last data, or -1
	// if it is unknown or on another host. It may be called concurrently.
	PeerCPU() int
}

// A PairOpener is a Conn that can carry a pipe of each direction over one network
// connection, so that acknowledgements travel with the answers. That makes short
// messages cheaper. Payloads in both directions at once slow each other down.
type PairOpener interface {
	// OpenPaired is OpenPipe for a paired pipe: the n-th paired pipe of one side
	// shares a network connection with the n-th of the other.
	OpenPaired(ctx context.Context) (Sender, error)
}

// A LargeOpener is a Conn that can open pipes with larger buffers. These are faster for long
// payloads and for bursts of short ones, and may use more memory.
type LargeOpener interface {
	// OpenLarge is OpenPipe for a pipe with larger buffers.
	OpenLarge(ctx context.Context) (Sender, error)
}

// A TLSConn is a Conn that is protected by TLS. Nodes can join a cluster only over
// such a Conn.
type TLSConn interface {
	// ConnectionState returns the state of the TLS session. It can export keying material (RFC
	// 9266).
	ConnectionState() tls.ConnectionState
}

// An Authenticator is an accepted Conn with a peer that may have no identity yet, and is
// authenticated above the transport. Until then the Transport may close the Conn to accept
// another one.
type Authenticator interface {
	// MarkAuthenticated records that the peer is authenticated. It returns false if the Conn
	// has been closed before.
	MarkAuthenticated() bool
}

// A MemorySharer is a Conn between nodes that can read areas of each other's memory.
type MemorySharer interface {
	// Areas returns the number of areas that each side shares with the other, and
	// the length of each in bytes. Both are 0 if they share none.
	Areas() (count, size int)
	// AcquireAreas returns the areas of both sides. It fails with ErrClosed or with
	// the error of the Conn.
	AcquireAreas() (Areas, error)
	// FutexWait blocks while word, in an area of either side, has the value old,
	// until FutexWake or until d has passed. It may return early.
	FutexWait(word *atomic.Uint32, old uint32, d time.Duration)
	// FutexWake wakes all calls of FutexWait on word, in all processes.
	FutexWake(word *atomic.Uint32)
	// PeerEnded returns a function that reports whether the peer no longer reads
	// any area, because its process has ended or has closed its Transport. The end
	// of the Conn alone does not imply that. The function does not keep the Conn
	// reachable.
	PeerEnded() func() bool
}

// A HostMemory is a Transport between nodes that can read areas of each other's memory without a Conn.
type HostMemory interface {
	// Areas returns the number of areas of this node and the length of each in bytes. Both
	// are 0 if it has none.
	Areas() (count, size int)
	// AreasKey returns a number for [HostMemory.AttachAreas] at peers. It is no secret, never
	// changes, and is not 0.
	AreasKey() uint64
	// AttachAreas returns the areas of this node and of a peer with this key. It does not
	// block, and the peer does not notice it. It fails if the areas are not those of the
	// peer, or differ from those of this node in number or length. If the process of the
	// peer has ended, or cannot be seen from this one, the error wraps ErrNotLocal.
	AttachAreas(peer string, key uint64) (Areas, error)
	// FutexWait and FutexWake are those of [MemorySharer].
	FutexWait(word *atomic.Uint32, old uint32, d time.Duration)
	FutexWake(word *atomic.Uint32)
	// PeerEnded is that of [MemorySharer] for a peer.
	PeerEnded(peer string) func() bool
}

// Areas are the shared memory of a node and of one peer. They stay valid until
// Release, even if the Conn ends or its Transport is closed.
type Areas interface {
	// Area returns area i of this node, which is the same memory for all Conns of its
	// Transport, and area i of the peer, which is read-only. Both are aligned to pages and
	// initially zero.
	Area(i int) (own, peer []byte)
	// Reserve allocates memory for the first n bytes of area i of this node, or
	// returns an error if none is left. Without it, an access to the area by either
	// side ends the process when the host runs out of shared memory.
	Reserve(i, n int) error
	// Release releases the areas. It may be called more than once.
	Release()
}
