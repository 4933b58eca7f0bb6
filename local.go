package nexar

import (
	"context"
	"fmt"
	"sync"

	"github.com/nexar-go/nexar/internal/callback"
	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/mesh"
	"github.com/nexar-go/nexar/internal/negotiate"
	"github.com/nexar-go/nexar/internal/node"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/testhook"
	"github.com/nexar-go/nexar/transport/mem"
)

// Local makes a world of n ranks in this process, which exchange data through
// its memory. It returns the communicator of each rank. It uses only the settings
// of cfg and of the environment that docs/config.md lists under Collectives, Calls of
// functions, and Buffers and logs, and Links. Close every communicator; ranks may be closed
// independently of each other.
//
// A world of Local has no seed and no [Node]. It does not recover from a failure, and does not grow: after
// the first failure its communicators remain ended, and [Comm.Exclude] and [Comm.Include] return an
// error. For a world in one process that recovers and grows, start a seed by [StartSeed] and call
// [Join] for each rank. To test recovery and growth, use New of package nexartest: its nodes are killed,
// stopped, cut off and added by one call each.
func Local(ctx context.Context, n int, cfg Config) ([]*Comm, error) {
	cfg, err := cfg.forLocal()
	if err == nil && n < 1 {
		err = fmt.Errorf("%w: a world of %d ranks: must have at least 1", ErrConfig, n)
	}
	if err != nil {
		return nil, opError("local", err)
	}
	world := testhook.WorldFrom(ctx)
	if world == nil {
		world, err = localWorld(n)
	}
	if err == nil && len(world.Paths) != n {
		err = fmt.Errorf("%w: %d ranks over a network of %d", ErrConfig, n, len(world.Paths))
	}
	if err != nil {
		return nil, opError("local", err)
	}
	comms := make([]*Comm, n)
	errs := make([]error, n)
	var forming sync.WaitGroup
	for rank := range n {
		forming.Go(func() { comms[rank], errs[rank] = localRank(ctx, world, rank, cfg) })
	}
	forming.Wait()
	for _, err := range errs {
		if err != nil {
			for _, c := range comms {
				if c != nil {
					c.Close()
				}
			}
			return nil, opError("local", err)
		}
	}
	return comms, nil
}

// localSettings are the settings that concern ranks within one process, beside Buffers.
var localSettings = []string{
	"CollectiveTimeout", "BarrierTimeout", "MessageTimeout", "DeadlockTimeout", "Memory", "Log", "Algorithms", "Deterministic", "BucketBytes", "CompressedMaxBytes",
	"LargeMessageBytes", "PipelineSegmentBytes", "RingMaxWorld", "CallTimeout", "MaxConcurrentCalls", "Links", "ProfileLabels",
}

// forLocal returns the settings that concern ranks within one process.
func (cfg Config) forLocal() (Config, error) {
	filled, err := Config{
		CollectiveTimeout: cfg.CollectiveTimeout, BarrierTimeout: cfg.BarrierTimeout, MessageTimeout: cfg.MessageTimeout, DeadlockTimeout: cfg.DeadlockTimeout,
		Memory: cfg.Memory, Buffers: cfg.Buffers, Log: cfg.Log,
		Algorithms: cfg.Algorithms, Deterministic: cfg.Deterministic, BucketBytes: cfg.BucketBytes, CompressedMaxBytes: cfg.CompressedMaxBytes,
		LargeMessageBytes: cfg.LargeMessageBytes, PipelineSegmentBytes: cfg.PipelineSegmentBytes, RingMaxWorld: cfg.RingMaxWorld,
		CallTimeout: cfg.CallTimeout, MaxConcurrentCalls: cfg.MaxConcurrentCalls, Links: cfg.Links, ProfileLabels: cfg.ProfileLabels,
	}.fill(localSettings...)
	filled.HeartbeatTimeout = 0 // ranks of one process have no beats
	return filled, err
}

// localWorld returns a network of n nodes in the memory of this process.
func localWorld(n int) (*testhook.World, error) {
	network := mem.NewNetwork()
	network.Share(negotiate.Areas, negotiate.AreaSize())
	world := &testhook.World{View: membership.View{Epoch: 1}, Cost: cost.Local()}
	for rank := range n {
		key, err := pki.NewKey()
		if err != nil {
			return nil, err
		}
		id := key.ID()
		t, err := network.Listen(id.String())
		if err != nil {
			return nil, err
		}
		world.View.Nodes = append(world.View.Nodes, membership.Node{
			ID: id, Addrs: []string{id.String()}, Host: "local", Name: fmt.Sprintf("local rank %d", rank),
		})
		world.Paths = append(world.Paths, []mesh.Path{{Transport: t}})
	}
	return world, nil
}

// localRank makes the communicator of one rank. Closing it closes the transports of
// the rank, as a failure does.
func localRank(ctx context.Context, world *testhook.World, rank int, cfg Config) (*Comm, error) {
	var relay *mesh.Relay
	if world.Relays != nil {
		relay = world.Relays[rank]
	}
	m, err := mesh.Form(ctx, mesh.Config{
		Self: world.View.Nodes[rank].ID, View: world.View, Paths: world.Paths[rank], Loop: mem.Loop, Log: cfg.Log,
		OnDemand: cfg.Links != linksEager, Watches: world.Watches, IdleTimeout: world.IdleTimeout, HeartbeatTimeout: world.HeartbeatTimeout, Topology: world.Topology, Relay: relay,
	})
	if err != nil {
		for _, p := range world.Paths[rank] {
			p.Transport.Close()
		}
		return nil, err
	}
	c, err := newWorld(ctx, m, world.View, world.Cost, cfg)
	if err != nil {
		_ = node.CloseMesh(m)
		return nil, err
	}
	c.close = callback.OnceValue(func() error {
		defer c.node.factory.Settle()
		return node.CloseMesh(m)
	})
	if len(world.Pools) > 0 {
		world.Pools[rank] = c.node.factory.Pool
	}
	if len(world.Linked) > 0 {
		world.Linked[rank] = func() int { return len(m.Traffic(world.View)) }
	}
	return c, nil
}

// newWorld makes the communicator of all ranks of a view, when all of them
// have made their links.
func newWorld(ctx context.Context, m *mesh.Mesh, view membership.View, net cost.Network, cfg Config) (*Comm, error) {
	if err := m.Formed(); err != nil {
		return nil, err
	}
	n, err := newNodeState(m, net, cfg)
	if err != nil {
		return nil, err
	}
	return n.first(ctx, view)
}
