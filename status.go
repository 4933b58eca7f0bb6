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

// A ClusterStatus is where all nodes of a cluster are: how far its world has come,
// and of each node its Record, or why there is none. WriteTo writes it as a table
// for people, which says who is late and who waits for whom, and encoding/json for
// programs. Nothing in it can command a terminal, whatever nodes say.
type (
	ClusterStatus = trace.Cluster
	NodeStatus    = trace.ClusterNode
)

// AskStatus asks a seed of cfg where all nodes of its cluster are. This process needs
// the token of the cluster, as a node does, but gets no place in it. Of cfg it takes
// Seeds, Token and Log; the first two are otherwise those of the environment.
//
// Nodes that do not answer the seed within 2 seconds are named. AskStatus itself takes
// 20 seconds at the most, and fails at once if there is no seed.
func AskStatus(ctx context.Context, cfg Config) (ClusterStatus, error) {
	s, err := askStatus(ctx, cfg)
	return s, opError("status", err)
}

func askStatus(ctx context.Context, cfg Config) (s ClusterStatus, err error) {
	cfg, err = Config{Seeds: cfg.Seeds, Token: cfg.Token, Log: cfg.Log}.fill("Seeds", "Token")
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
	return node.Status(ctx, cfg.Seeds, token, cfg.Log)
}

// status is what this node tells the seed of itself: nothing before it has joined.
func (n *Node) status() []byte {
	if n.World() == nil {
		return nil
	}
	return trace.Encode(n.Record())
}

// A Record is what a node has done of late, and is doing: its last few hundred
// collectives, messages and calls of functions, and all that are under way, up to
// the same number. String and WriteTo write it as a table for people, and
// encoding/json for programs.
//
// An Operation in it says what was called on which communicator and by which
// algorithm it is carried out (Plan), when it began and how long it took, how it
// ended (End, which is empty for one under way), how far it has come (Round, Bytes)
// and, if it is under way or has failed, for which ranks it waits. Ranks are those
// of the world, whichever communicator it is.
//
// A RecordLink is the link to another rank, with the bytes that went over its data and
// bulk lanes, both ways.
type (
	Record     = trace.Snapshot
	Operation  = trace.Operation
	RecordLink = trace.Link
)

// Record says what this node has done of late, and is doing. It may be called at
// any time, also while operations run, which it hardly delays, and after Close.
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

// operations are traces with what this package calls things.
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

// A Report says what this machine offers to nexar, and a Problem is what is wrong
// with it, how to mend that, and whether nexar does not work because of it.
type (
	Report  = inspect.Report
	Problem = inspect.Problem
)

// Inspect opens a socket as Join would with these settings, and says what it
// finds. The error is a malformed setting.
func Inspect(cfg Config) (Report, error) {
	cfg, err := cfg.fill()
	if err != nil {
		return Report{}, opError("inspect", err)
	}
	return inspect.Machine(cfg.Listen, cfg.Advertise, cfg.Transports), nil
}
