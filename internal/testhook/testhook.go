// Package testhook lets tests outside the root package choose the network below
// nexar.Local and nexar.Join. A context carries the choice, so programs that import
// nexar can neither see nor set it.
package testhook

import (
	"context"
	"net"
	"time"

	"github.com/nexar-go/nexar/internal/bufpool"
	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/mesh"
	"github.com/nexar-go/nexar/internal/topology"
)

// A World is the network over which nexar.Local forms a world.
type World struct {
	View  membership.View // one node per rank
	Paths [][]mesh.Path   // by rank; nexar.Local closes their transports
	Cost  cost.Network    // the model before anything is measured
	Pools []*bufpool.Pool // by rank; nexar.Local sets them, unless the list is empty
	// Topology is mesh.Config.Topology.
	Topology topology.Topology
	// Relays are mesh.Config.Relay, by rank, or nil.
	Relays []*mesh.Relay
	// Watches, IdleTimeout and HeartbeatTimeout are those of mesh.Config. There are no beats: HeartbeatTimeout bounds dials.
	Watches                       int
	IdleTimeout, HeartbeatTimeout time.Duration
	// Linked has, by rank, functions that return the number of ranks that the rank is linked to; nexar.Local sets them,
	// unless the list is empty.
	Linked []func() int
}

type (
	worldKey   struct{}
	packetsKey struct{}
	tamperKey  struct{}
	bulkKey    struct{}
)

// WithWorld returns a context with which nexar.Local forms w.
func WithWorld(ctx context.Context, w *World) context.Context {
	return context.WithValue(ctx, worldKey{}, w)
}

// WorldFrom returns the World of ctx, or nil.
func WorldFrom(ctx context.Context) *World {
	w, _ := ctx.Value(worldKey{}).(*World)
	return w
}

// WithPackets returns a context with which nexar.Join sends and receives on p
// instead of a UDP socket. The node closes p.
func WithPackets(ctx context.Context, p net.PacketConn) context.Context {
	return context.WithValue(ctx, packetsKey{}, p)
}

// PacketsFrom returns the PacketConn of ctx, or nil.
func PacketsFrom(ctx context.Context) net.PacketConn {
	p, _ := ctx.Value(packetsKey{}).(net.PacketConn)
	return p
}

// WithTamper returns a context with which nexar.Join makes a node that is a hostile relay.
func WithTamper(ctx context.Context, t mesh.Tamper) context.Context {
	return context.WithValue(ctx, tamperKey{}, t)
}

// TamperFrom returns the Tamper of ctx, or nil.
func TamperFrom(ctx context.Context) mesh.Tamper {
	t, _ := ctx.Value(tamperKey{}).(mesh.Tamper)
	return t
}

// WithBulk returns a context with which nexar.Join makes a node whose links have their payloads on the transport of a factory, beside QUIC.
func WithBulk(ctx context.Context, factory string) context.Context {
	return context.WithValue(ctx, bulkKey{}, factory)
}

// BulkFrom returns the name of the factory of WithBulk, or "".
func BulkFrom(ctx context.Context) string {
	name, _ := ctx.Value(bulkKey{}).(string)
	return name
}
