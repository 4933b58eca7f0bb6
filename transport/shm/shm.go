// Package shm connects processes of one user on one host through shared memory.
//
// Each process calls [New] once and dials the other nodes. Dial fails immediately for a node
// that is not on this host:
//
//	node, err := shm.New(shm.Config{Cluster: "training", Node: "a"})
//	conn, err := node.Dial(ctx, "b", "b")
//	if errors.Is(err, shm.ErrNotLocal) { … } // use another transport
//
// The address of a node is its identity, which Conn.Peer returns. A node listens at a socket in
// the abstract namespace. Its name depends on the cluster and the node. Nodes must therefore
// share a network namespace, and a crash leaves nothing in the file system. The kernel
// reports the user of the peer's process: both sides refuse other users with
// transport.ErrIdentity.
//
// Every pipe is a ring in separate memory: 128 KiB, or 1 MiB if OpenLarge has opened it. A write
// becomes one or more records, whose lengths the reader polls. A short one moves with a single cache line. The
// ring reserves memory for the pages that it has touched, for all of them after 64 KiB, and
// releases it after half a minute with little traffic. ReadFunc passes bytes in the ring,
// which a peer could change meanwhile: copy bytes before you check and use them, as Read
// does. A peer that breaks the protocol or writes invalid lengths or positions only ends the conn. Memory of
// a peer is mapped only if it is sealed against shrinking.
//
// A conn ends with transport.ErrPeerGone when the kernel closes the socket of a process that
// has died. There are no locks in shared memory, so that a process may die at any instruction.
// A ring is unmapped when both ends are closed and the last Read, Write or view has returned.
//
// A waiting reader or writer first reads a word repeatedly, then yields the
// processor for up to 100 µs if its recent waits were short, and then parks its goroutine. A
// parked goroutine needs no thread and no processor time. At most GOMAXPROCS goroutines of a
// node yield at a time. A conn has two goroutines and three file descriptors.
//
// Every conn is a transport.MemorySharer, and every Transport a transport.HostMemory: the peers of a
// node read its areas, of Config.AreaSize bytes each, in place. They get them with a conn, or open them
// in /proc without one. The kernel lets only processes of the same user, and root, open the areas.
//
// The package works on Linux. Elsewhere New and Supported return an error.
package shm

import (
	"errors"
	"fmt"
	"log/slog"
	"math"

	"github.com/nexar-go/nexar/transport"
)

// ErrNotLocal is returned by Dial if no node with this identity is on this host. It wraps [transport.ErrNotLocal].
var ErrNotLocal = fmt.Errorf("shm: %w", transport.ErrNotLocal)

// nameBytesMax is the length of the longest name of a cluster or a node.
const nameBytesMax = 255

// A Config configures a node.
type Config struct {
	// Cluster is the name of the cluster, at most 255 bytes. Nodes connect only to nodes
	// of their cluster.
	Cluster string

	// Node is the identity of this node, 1 to 255 bytes. It is unique in the cluster on
	// this host.
	Node string

	// Areas is the number of areas that peers can read, and AreaSize the length of each in
	// bytes. Two nodes share areas only if both values are equal. The default is one area
	// with an AreaSize, and none without.
	Areas, AreaSize int

	// Stream, if not nil, copies src to dst, of the same length, with non-temporal stores.
	// Later stores become visible after them. It is used where the caches of the peers are
	// slow to reach.
	Stream func(dst, src []byte)

	// Log logs refused clients; nil discards the messages.
	Log *slog.Logger
}

// New starts a node, which accepts conns from now on.
func New(cfg Config) (transport.Transport, error) {
	switch {
	case cfg.Node == "":
		return nil, errors.New("shm: Config.Node is empty, want the identity of the node")
	case len(cfg.Node) > nameBytesMax || len(cfg.Cluster) > nameBytesMax:
		return nil, fmt.Errorf("shm: the name of node %.20q… or cluster %.20q… is longer than %d bytes", cfg.Node, cfg.Cluster, nameBytesMax)
	case cfg.Areas < 0 || cfg.Areas > math.MaxInt32 || cfg.AreaSize < 0:
		return nil, fmt.Errorf("shm: %d areas of %d bytes: neither may be negative, and the number at most %d", cfg.Areas, cfg.AreaSize, math.MaxInt32)
	}
	if cfg.AreaSize > 0 {
		cfg.Areas = max(cfg.Areas, 1)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return newEndpoint(cfg)
}

// Supported tries the features of the operating system that this package needs, and returns an
// error that names those that fail. Containers and security modules can forbid each of them.
func Supported() error { return selfTest() }
