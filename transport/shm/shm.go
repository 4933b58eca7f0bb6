// Package shm connects processes of one user on one host through memory that
// they share.
//
// Most people call New once in each process, and Dial the nodes that they know
// of. Whoever is not on this host is told apart at once:
//
//	node, err := shm.New(shm.Config{Cluster: "training", Node: "a"})
//	conn, err := node.Dial(ctx, "b", "b")
//	if errors.Is(err, shm.ErrNotLocal) { … } // take another transport
//
// An address is the identity of a node, and Conn.Peer says it. Nodes of one
// cluster and one host meet at a socket in the abstract namespace, whose name
// follows from the two. They share a network namespace, therefore, and nothing
// is ever in the file system that a crash could leave behind. The kernel says
// whose the process at the other end is: another user's is refused with
// transport.ErrIdentity, on both sides.
//
// Every pipe is a ring of 128 KiB, or of 1 MiB if OpenLarge has opened it, in
// memory of its own. It occupies what it has touched, all of it after 64 KiB,
// which it gives back when it was hardly used for half a minute. ReadFunc shows
// the bytes in the ring. The peer is able to change them meanwhile, as any process
// of the same user is able to do worse; so what is to be checked and then relied
// on should be copied first, as Read does. A peer that breaks the protocol, or
// writes nonsense to the ring, ends the conn, and can do no more: memory from it
// is mapped only if it is sealed against shrinking.
//
// A conn ends with transport.ErrPeerGone as soon as the kernel has closed the
// socket of a process that died, at whatever instruction: nothing in shared
// memory is a lock. A pipe whose both ends are closed gives its memory back. A
// mapping goes when the last Read, Write or view that uses it has returned.
//
// A reader or writer that has to wait looks a few times, then yields the
// processor for up to 100 µs if its recent waits were short, and then parks its
// goroutine. Parked ones occupy no thread and use no time, however many there
// are, and no more of a node yield at a time than GOMAXPROCS. A conn has two
// goroutines and three file descriptors.
//
// Every conn is a transport.MemorySharer: what a node writes to its areas, of
// Config.AreaSize bytes each, its peers read in place.
//
// It works on Linux. Elsewhere New and Supported return an error.
package shm

import (
	"errors"
	"fmt"
	"log/slog"
	"math"

	"github.com/nexar-go/nexar/transport"
)

// ErrNotLocal says that no node with this identity can be met on this host.
// It wraps [transport.ErrNotLocal].
var ErrNotLocal = fmt.Errorf("shm: %w", transport.ErrNotLocal)

// nameBytesMax is how long the name of a cluster or a node may be.
const nameBytesMax = 255

// A Config says who a node is. All of it is the same as long as the node lives.
type Config struct {
	// Cluster is the name of the cluster, of at most 255 bytes. Nodes of
	// different clusters do not meet.
	Cluster string

	// Node is the identity of this node, of 1 to 255 bytes. A host has it
	// once in each cluster.
	Node string

	// Areas is how many areas peers can read, and AreaSize the length of each in
	// bytes. They see them only if theirs are as many and as long. The default is
	// to have none, and one if there is an AreaSize.
	Areas, AreaSize int

	// Stream copies src to dst, which is as long, past the caches of the processor, so
	// that what is stored later is seen later. Nodes write so where their peers are far
	// away. The default is not to.
	Stream func(dst, src []byte)

	// Log takes notes of clients that are refused; nil discards them.
	Log *slog.Logger
}

// New makes a node that can be dialed from now on.
func New(cfg Config) (transport.Transport, error) {
	switch {
	case cfg.Node == "":
		return nil, errors.New("shm: the empty string is no identity of a node")
	case len(cfg.Node) > nameBytesMax || len(cfg.Cluster) > nameBytesMax:
		return nil, fmt.Errorf("shm: a name of more than %d bytes, for node %.20q… of cluster %.20q…", nameBytesMax, cfg.Node, cfg.Cluster)
	case cfg.Areas < 0 || cfg.Areas > math.MaxInt32 || cfg.AreaSize < 0:
		return nil, fmt.Errorf("shm: %d areas of %d bytes", cfg.Areas, cfg.AreaSize)
	}
	if cfg.AreaSize > 0 {
		cfg.Areas = max(cfg.Areas, 1)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return newEndpoint(cfg)
}

// Supported tries what this package needs of the operating system and says
// what of it fails. Containers and security modules can forbid each of them.
func Supported() error { return probe() }
