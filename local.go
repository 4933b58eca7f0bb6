package nexar

import (
	"context"
	"fmt"
	"sync"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/mesh"
	"github.com/nexar-go/nexar/internal/negotiate"
	"github.com/nexar-go/nexar/internal/node"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/transport/mem"
)

// Local makes a world of n ranks in this process, which exchange data through
// its memory. It returns the communicator of each rank. Of cfg and of the
// environment it uses what docs/config.md has under Collectives, Calls of functions
// and This process, and looks at nothing else. Close every communicator; the ranks
// close independently of each other, as processes would.
func Local(ctx context.Context, n int, cfg Config) ([]*Comm, error) {
	cfg, err := cfg.forLocal()
	if err == nil && n < 1 {
		err = fmt.Errorf("%w: a world of %d ranks", ErrConfig, n)
	}
	if err != nil {
		return nil, opError("local", err)
	}
	network := mem.NewNetwork()
	network.Share(negotiate.Areas, negotiate.AreaSize())
	view := membership.View{Epoch: 1}
	for rank := range n {
		key, err := pki.NewKey()
		if err != nil {
			return nil, opError("local", err)
		}
		id := key.ID()
		view.Nodes = append(view.Nodes, membership.Node{
			ID: id, Addrs: []string{id.String()}, Host: "local", Name: fmt.Sprintf("local rank %d", rank),
		})
	}
	comms := make([]*Comm, n)
	errs := make([]error, n)
	var forming sync.WaitGroup
	for rank := range n {
		forming.Go(func() { comms[rank], errs[rank] = localRank(ctx, network, view, rank, cfg) })
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

// forLocal is what concerns ranks within one process.
func (cfg Config) forLocal() (Config, error) {
	return Config{
		CollectiveTimeout: cfg.CollectiveTimeout, BarrierTimeout: cfg.BarrierTimeout, Memory: cfg.Memory, Log: cfg.Log,
		Algorithms: cfg.Algorithms, Deterministic: cfg.Deterministic, BucketBytes: cfg.BucketBytes, CompressedMax: cfg.CompressedMax,
		CallTimeout: cfg.CallTimeout, CallsInFlight: cfg.CallsInFlight,
	}.fill("CollectiveTimeout", "BarrierTimeout", "Memory", "Log", "Algorithms", "Deterministic", "BucketBytes", "CompressedMax",
		"CallTimeout", "CallsInFlight")
}

// localRank makes the communicator of one rank of a world in this process.
func localRank(ctx context.Context, network *mem.Network, view membership.View, rank int, cfg Config) (*Comm, error) {
	t, err := network.Listen(view.Nodes[rank].ID.String())
	if err != nil {
		return nil, err
	}
	return rankOver(ctx, []mesh.Path{{Transport: t}}, view, rank, cost.Local(), cfg)
}

// rankOver makes the communicator of one rank of a view, over paths on which
// the others reach it. Closing it closes their transports.
func rankOver(ctx context.Context, paths []mesh.Path, view membership.View, rank int, net cost.Network, cfg Config) (*Comm, error) {
	m, err := mesh.Form(ctx, mesh.Config{
		Self: view.Nodes[rank].ID, View: view, Paths: paths, Loop: mem.Loop, Log: cfg.Log,
	})
	if err != nil {
		for _, p := range paths {
			p.Transport.Close()
		}
		return nil, err
	}
	c, err := newWorld(ctx, m, view, net, cfg)
	if err != nil {
		node.CloseMesh(m)
		return nil, err
	}
	c.close = sync.OnceValue(func() error {
		defer c.node.factory.Settle()
		return node.CloseMesh(m)
	})
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
