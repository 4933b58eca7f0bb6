package transport

import (
	"context"
	"crypto/tls"
	"log/slog"
)

// A Factory makes a transport for a node. A program passes factories to nexar in
// Config.Factories.
type Factory struct {
	// Name is how nodes agree on the transport: two nodes use it if both have a
	// factory of this name. It is short, lower case, and none of the built-in
	// "shm", "tcp" and "quic".
	Name string

	// Listen starts a transport for what env describes: a node that is about to
	// join, or, where Env.Node is empty, a seed or a process that dials a seed. It
	// should not block for long, and must return when ctx ends. The caller closes
	// the transport.
	Listen func(ctx context.Context, env Env) (Transport, error)
}

// Env describes the node that a transport is for.
type Env struct {
	// Cluster is the identity of the cluster, and Node that of this node: what
	// Conn.Peer of its peers returns. Both are empty for a seed, which accepts
	// processes that have no identity yet, and for a process that dials a seed;
	// their Conns need the capability Secured to join a cluster by.
	Cluster, Node string

	// Server is the TLS configuration for clients, and Client that for dialing a
	// peer, which fails with any server that is not the peer. Peer returns the
	// identity from a completed handshake; it is empty where Node is. A transport
	// that has another proof of the peer's identity need not use them. Server is
	// nil for a process that dials a seed.
	Server *tls.Config
	Client func(peer string) *tls.Config
	Peer   func(state tls.ConnectionState) (string, error)

	// Listen is where the node or the seed listens, "host:port" as configured. The
	// port belongs to the built-in transports, if there are any.
	Listen string

	// Log takes what an operator should know. It is never nil.
	Log *slog.Logger
}
