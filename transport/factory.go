package transport

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"time"
)

// A Factory is a transport factory: it starts a transport for a node. A program passes factories to
// nexar in the field Factories of [github.com/nexar-go/nexar.Config].
type Factory struct {
	// Name identifies the transport in the cluster: two nodes use it if both have
	// a factory of this name. It is short and lower case, and differs from the
	// built-in names "shm", "tcp" and "quic". It is the name of the transports that Listen starts.
	Name string

	// Listen starts a transport for the process described by env. It returns early if ctx is
	// done. The caller closes the transport.
	Listen func(ctx context.Context, env Env) (Transport, error)
}

// Env describes the process of a transport that a [Factory] starts: a node that is about to
// join, a seed, or a process that dials a seed.
type Env struct {
	// Cluster is the identity of the cluster, and Node that of this node, which its peers get
	// from [Conn.Peer]. Both are empty for a seed, since its clients have no identity yet, and
	// for a process that dials a seed. Nodes can join the cluster only over a Conn with the
	// capability [TLSConn].
	Cluster, Node string

	// Server is the TLS configuration for accepting connections. It is nil for a
	// process that dials a seed.
	Server *tls.Config
	// Client returns the TLS configuration for dialing a peer. The handshake fails
	// unless the server proves that identity, with an error that wraps [ErrIdentity].
	Client func(peer string) *tls.Config
	// Peer returns the identity of the peer from a completed handshake. The identity is empty if Node is
	// empty.
	//
	// A transport that authenticates peers by other means need not use Server, Client and Peer.
	Peer func(state tls.ConnectionState) (string, error)

	// Listen is the configured "host:port" of the node or seed. The built-in
	// transports, if there are any, listen at this port.
	Listen string

	// PeerTimeout is HeartbeatTimeout of [github.com/nexar-go/nexar.Config]. A peer that is silent for longer may count as
	// failed. A Conn that restores its path itself should need less. It is 0 if it is not known.
	PeerTimeout time.Duration

	// Log is never nil.
	Log *slog.Logger
}

// Authenticate runs the TLS handshake on c and returns the identity of the peer. If it has no valid one, or another than
// peer, which may be "" for any, the error wraps [ErrIdentity].
func (e *Env) Authenticate(c *tls.Conn, peer string) (string, error) {
	if err := c.Handshake(); err != nil {
		return "", err
	}
	got, err := e.Peer(c.ConnectionState())
	if err == nil && peer != "" && got != peer {
		err = fmt.Errorf("the peer is %q, want %q", got, peer)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrIdentity, err)
	}
	return got, nil
}
