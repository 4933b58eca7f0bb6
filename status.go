package nexar

import (
	"context"
	"fmt"
	"time"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/inspect"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/node"
	"github.com/nexar-go/nexar/internal/trace"
)

// A ClusterStatus is the state of all nodes of a cluster: that of its world, and
// the Record of each node, or the reason for its absence. WriteTo writes a table for
// people, with the ranks that are late and those that they delay; encoding/json is for
// programs. Text from nodes is escaped, so that it cannot control a terminal.
type (
	ClusterStatus = trace.Cluster
	NodeStatus    = trace.ClusterNode
)

// AskStatus asks a seed of cfg for the state of all nodes of its cluster. This process
// needs the token of the cluster, as a node does, but does not join. AskStatus uses
// Seeds, Token, Transports, Factories and Log of cfg; the first three default to those
// of the environment.
//
// Nodes that do not answer the seed within 2 seconds are named. AskStatus itself takes
// 20 seconds at the most, and fails at once if there is no seed.
func AskStatus(ctx context.Context, cfg Config) (ClusterStatus, error) {
	s, err := askStatus(ctx, cfg)
	return s, opError("status", err)
}

func askStatus(ctx context.Context, cfg Config) (s ClusterStatus, err error) {
	cfg, err = Config{
		Seeds: cfg.Seeds, Token: cfg.Token, Log: cfg.Log, Transports: cfg.Transports, Factories: cfg.Factories,
	}.fill("Seeds", "Token", "Transports")
	if err != nil {
		return s, err
	}
	if len(cfg.Seeds) == 0 {
		return s, fmt.Errorf("%w: no seed: set NEXAR_SEEDS to the address of one", ErrConfig)
	}
	token, err := cfg.token()
	if err != nil {
		return s, err
	}
	use, err := cfg.transports()
	if err != nil {
		return s, err
	}
	return node.Status(ctx, cfg.Seeds, token, use, cfg.Log)
}

// status is the encoded Record for the seed, or nil before the node has joined.
func (n *Node) status() []byte {
	if n.World() == nil {
		return nil
	}
	return trace.Encode(n.Record())
}

// A Record is the recent history of a node: its last few hundred collectives,
// messages and calls of functions, and up to as many in progress. String and WriteTo
// write it as a table for people; encoding/json is for programs.
//
// An Operation in it has the call, its communicator and algorithm (Plan), its start
// and duration, its outcome (End, empty while it is in progress), its progress
// (Round, Bytes) and, unless it has succeeded, the ranks that it waits for. Ranks are
// always those of the world.
//
// A RecordLink is the link to another rank, with the bytes that went over its data and
// bulk lanes, both ways.
type (
	Record     = trace.Snapshot
	Operation  = trace.Operation
	RecordLink = trace.Link
)

// Record returns the recent history of this node. It may be called at any time, also
// while operations run, which it hardly delays, and after Close.
func (n *Node) Record() Record { return n.World().Record() }

// Record is that of the node of this rank: of all its communicators.
func (c *Comm) Record() Record {
	view, mesh := c.impl.View.View, c.impl.View.Mesh()
	rank, _ := view.Rank(mesh.Self())
	self := view.Nodes[rank]
	list := append(operations(mesh.Engine().Traces()), c.node.calls.Operations()...)
	return Record{
		Node: self.ID.String(), Name: self.Name, Rank: rank, Size: view.Size(), Epoch: view.Epoch,
		Time: time.Now(), Operations: trace.Last(list, trace.Length), Links: mesh.Traffic(view),
	}
}

// operations converts traces of the engine to the names of this package.
func operations(traces []engine.Trace) []Operation {
	list := make([]Operation, len(traces))
	for i, t := range traces {
		o := &list[i]
		*o = t.Operation
		if o.Number == 0 {
			if t.Call.Count > 0 {
				o.Type, o.Length = typeName(t.Call.Type), int(t.Call.Count)/max(1, kernel.Type(t.Call.Type).Size())
			}
			continue
		}
		d := describe(t.Call)
		o.Op, o.Type, o.Length, o.Counts, o.Reduce, o.Plan = d.Op, d.Type, d.Length, d.Counts, d.Reduce, d.Plan
	}
	return list
}

// A Report describes the machine as far as nexar uses it. A Problem describes a
// fault of it, a remedy, and whether nexar cannot work because of it.
type (
	Report  = inspect.Report
	Problem = inspect.Problem
)

// Inspect opens a socket as Join would with these settings, and reports on the
// machine. An error is about a malformed setting.
func Inspect(cfg Config) (Report, error) {
	cfg, err := cfg.fill()
	if err != nil {
		return Report{}, opError("inspect", err)
	}
	use, err := cfg.transports()
	if err != nil {
		return Report{}, opError("inspect", err)
	}
	return inspect.Machine(cfg.Listen, cfg.Advertise, use.Names), nil
}
