package nexar

import (
	"time"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/trace"
)

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
