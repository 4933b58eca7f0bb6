package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nexar-go/nexar/internal/eyeballs"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/topology"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A Request describes a node that joins.
type Request struct {
	// Token is the cluster token. It may be zero only if the seed has a loopback address.
	Token pki.Token

	// Roots are the CAs of the user, of which one must have signed the CA of the cluster. Nil
	// accepts every cluster.
	Roots *pki.Roots

	// Advertise lists the addresses at which other nodes reach this one. If it is empty, the
	// seed uses the address at which it sees the node, and then Alternates.
	Advertise  []string
	Alternates []string

	// Port is the port at which this node listens. 0 means the source port of the
	// connection, which is always used over QUIC.
	Port int

	// Endpoints lists the transports of this node with their addresses. Listen, if not nil,
	// starts the transports whose addresses depend on the identity of the node, and returns
	// their endpoints. It is called again when a seed names another cluster, and Join uses only the
	// transports of the last call.
	Endpoints []membership.Endpoint
	Listen    func(ctx context.Context, cluster string, id membership.NodeID) ([]membership.Endpoint, error)

	// Host identifies the host: nodes have equal values exactly if they are on the same host.
	// If it is empty, the seed uses the address at which it sees the node.
	Host string

	// Name is a display name: hostname:pid. Process identifies the process on its host.
	Name, Process string

	// Rank is the only rank that this node accepts. Nil means any. If Size is not 0, Rank belongs to a world of that size: in another one,
	// and in one that has formed, the node accepts any rank.
	Rank *int
	Size int

	// Place names the unit that a launcher starts again: a process with the same Place on another host takes the
	// place of this one. Empty means nothing.
	Place string

	// CheckAddress asks the seed to dial the addresses of Advertise before it admits the node.
	CheckAddress bool

	// CertificateGrace is the time after the expiry of a certificate for which this node accepts it from a
	// member of the newest view while no seed answers. Zero or a negative time is none.
	CertificateGrace time.Duration

	// Trial requests the answer that a join would get, for [Session.Trial]. The node does not
	// join.
	Trial bool

	// Topology is the topology of the node. The seed refuses a node with another one than the world.
	Topology topology.Topology

	// World is the size of the world that the node expects. Zero means any.
	World int

	// Spare makes the node wait until it can replace a node that has gone.
	Spare bool

	// Expect is called with nodes that will connect to this one. It must not block, and may
	// be nil.
	Expect func(nodes []membership.Node)

	// Forget is called with a node that was passed to Expect and does not join. It must not
	// block, and may be nil.
	Forget func(id membership.NodeID)

	// SendView sends a message about views to another node, and reports false if there is no link to
	// it. It must not block. If it is nil, this node has no links.
	SendView func(to membership.NodeID, message []byte) bool

	// Removed is called when the seed has removed this node from the world, before any other method says so. It must not block, and may
	// be nil.
	Removed func(err *RemovedError)

	// Status returns the trace of this node, of at most wire.TraceBytesMax bytes or much less if it is to be brief, for status
	// polls of the seed; it is empty if the node has not joined yet. Session calls it on a
	// separate goroutine, and Session.Close waits for it. It may be nil.
	Status func(wire.Detail) []byte

	// Log receives events. Nil discards them.
	Log *slog.Logger

	// Patience bounds how long calls of a Session wait for a durable seed to become reachable
	// again. Zero means no limit. The Session itself continues the search.
	Patience time.Duration

	// Key is the key of the node. Nil means a new key, the same in all attempts of [Seeds.Join].
	Key *pki.Key

	Limits   handshake.Limits // zero: the defaults
	seeds    Seeds            // for another connection
	rejoin   bool             // a seed may have admitted the node before
	identity *pki.Identity    // of a node that was admitted; nil: none
	epoch    uint64           // of the newest view of a node that rejoins
}

// message returns the request for a connection, with a signing request of the key.
func (r Request) message(key *pki.Key, conn transport.Capabilities) (wire.JoinRequest, error) {
	csr, err := key.RequestOver(conn.TLSConn.ConnectionState())
	if err != nil {
		return wire.JoinRequest{}, err
	}
	if r.Port < 0 || r.Port > 65535 {
		return wire.JoinRequest{}, fmt.Errorf("%w: port %d", handshake.ErrRequest, r.Port)
	}
	port := uint16(r.Port)
	if conn.Class == transport.ClassQUIC {
		port = 0 // It is the source port, unless a NAT changes it.
	}
	rank := wire.AnyRank
	if r.Rank != nil {
		if rank = *r.Rank; rank < 0 || rank > 1<<31-1 {
			return wire.JoinRequest{}, fmt.Errorf("%w: rank %d", handshake.ErrRequest, rank)
		}
	}
	linked := ""
	if !r.Topology.IsFull() {
		linked = r.Topology.String()
	}
	return wire.JoinRequest{
		CSR:          csr,
		Advertised:   r.Advertise,
		Alternates:   r.Alternates[:min(len(r.Alternates), handshake.AddrsMax)],
		Port:         port,
		Host:         r.Host,
		Name:         r.Name,
		Process:      r.Process,
		Rank:         int32(rank),
		Size:         uint32(r.Size),
		Place:        r.Place,
		Spare:        r.Spare,
		Rejoin:       r.rejoin,
		Epoch:        r.epoch,
		Endpoints:    r.Endpoints,
		CheckAddress: r.CheckAddress && r.identity == nil,
		Trial:        r.Trial,
		Topology:     linked,
	}, nil
}

// Join asks the seed at the other end of conn to admit the node, and blocks until the seed has
// done so; the world may not be full yet. A refusal is a [*handshake.RefusedError].
//
// The Session owns conn. Join closes conn if it fails, or if ctx ends before it returns.
func Join(ctx context.Context, conn transport.Conn, req Request) (*Session, error) {
	s := newSession(conn, req)
	if err := s.admit(ctx, req); err != nil {
		return nil, err
	}
	s.wg.Go(s.keepConnected)
	return s, nil
}

// admit joins, and closes the connection if that fails.
func (s *Session) admit(ctx context.Context, req Request) error {
	conn := s.conn.Conn
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	err := s.join(ctx, req)
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return failure("joining at", s.seed, err)
	}
	return nil
}

// failure adds the operation and the seed to an error that does not name them.
func failure(doing, seed string, err error) error {
	if r, ok := errors.AsType[*handshake.RefusedError](err); ok {
		return r
	}
	if r, ok := errors.AsType[*handshake.RedirectError](err); ok {
		return r
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, handshake.ErrFalseSeed):
		return fmt.Errorf("seed %s %w", seed, err)
	}
	return fmt.Errorf("%s seed %s: %w", doing, seed, err)
}

func (s *Session) join(ctx context.Context, req Request) error {
	if req.identity != nil {
		// Not final: another seed may have the certificate, and this one may get it from the others.
		if err := req.identity.CheckSeed(s.conn.Secured().ConnectionState()); err != nil {
			return fmt.Errorf("it is not a seed of cluster %s: %w", req.identity.Cluster(), err)
		}
	}
	cluster, err := s.conn.Call(ctx, req.Token, s.lim.Step)
	if err != nil {
		return err
	}
	key := req.Key
	if key == nil {
		if key, err = pki.NewKey(); err != nil {
			return err
		}
	}
	if req.Listen != nil && req.identity == nil {
		more, err := req.Listen(ctx, cluster, key.ID())
		if err != nil {
			return fmt.Errorf("%w: %w", handshake.ErrRequest, err)
		}
		req.Endpoints = slices.Concat(req.Endpoints, more)
		s.req.Endpoints = req.Endpoints
	}
	m, err := req.message(key, transport.CapabilitiesOf(s.conn.Conn))
	if err != nil {
		return err
	}
	if err := s.conn.Write(time.Now().Add(s.lim.Step), m); err != nil {
		return err
	}
	answer, err := s.conn.ReadReply(time.Now().Add(s.lim.Step))
	if err != nil {
		return err
	}
	admitted, ok := answer.(wire.JoinAdmitted)
	if !ok {
		return fmt.Errorf("the answer to a join request is a %T", answer)
	}
	s.Identity, err = pki.NewIdentity(key, admitted.Certificate, admitted.CA)
	if err != nil {
		return err
	}
	s.Identity.SetGrace(req.CertificateGrace)
	if err := req.Roots.Check(admitted.Certificate, admitted.CA); err != nil {
		return err
	}
	if got := s.Identity.Cluster(); got != cluster || key.ID() != admitted.ID {
		return fmt.Errorf("admitted to cluster %s as node %v, asked for cluster %s as node %v",
			got, membership.NodeID(admitted.ID), cluster, key.ID())
	}
	if world := int(admitted.World); req.World != 0 && world != req.World {
		return fmt.Errorf("%w: this process has been started as one of %d, the seed at %s waits for a world of %d: start all processes with the same number",
			handshake.ErrWorldSize, req.World, s.seed, world)
	}
	s.ID = key.ID()
	s.views = membership.NewViewForwarder(s.ID, s.req.Topology, s.Identity.CheckView)
	s.Observed = admitted.Observed
	s.World = int(admitted.World)
	s.durable, s.certificate = admitted.Durable, admitted.Certificate
	if s.req.Key, s.req.rejoin = key, true; s.req.identity == nil {
		s.req.identity = s.Identity
	}
	for _, addr := range admitted.Seeds {
		addr = eyeballs.WithZone(addr, s.seed)
		if !slices.Contains(s.req.seeds.Addrs, addr) {
			s.req.seeds.Addrs = append(slices.Clone(s.req.seeds.Addrs), addr)
		}
	}
	return nil
}
