package nexar

import (
	"slices"
	"sync/atomic"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/recorder"
)

// LinkTo returns the link from one node to another of its world.
func LinkTo(from, to *Node) *link.Link {
	view := from.World().impl.View.View
	rank, _ := view.Rank(to.node.ID())
	return from.World().comm.Links()[rank]
}

// NodeIDs returns the nodes of the ranks of a communicator.
func NodeIDs(c *Comm) (ids []NodeID) {
	for _, n := range c.impl.Nodes {
		ids = append(ids, NodeID(n.ID))
	}
	return ids
}

// ReportLost tells the seed that a node has lost its link to another one, although the link works.
func ReportLost(from, to *Node, err error) { from.node.Session.Lost(to.node.ID(), err) }

// AddChild counts a communicator made of c, as if another goroutine had made one meanwhile.
func AddChild(c *Comm) { c.children.Add(1) }

// HasState returns whether the node of c has the state of the program.
func HasState(c *Comm) *atomic.Bool { return &c.node.hasState }

// Trace enables or disables the recorder of c.
func Trace(c *Comm, enable bool) {
	var r *recorder.Comm
	if enable {
		r = &recorder.Comm{Epoch: 1, Ranks: c.impl.Ranks}
	}
	c.comm.SetTracing(r)
}

// Follow returns a Handle that ends with f.
func Follow(c *Comm, f func(*Handle) error) *Handle { return c.follow(f) }

// LocalSettings returns the fields of Config that Local uses.
func LocalSettings() []string { return slices.Clone(localSettings) }

// Translated returns the error of later operations on c, which has ended, as it is known now.
func Translated(c *Comm) error { return c.ended(c.comm.Err()) }

// CheckCounts compares the counts that all ranks of an AllToAllV of bytes have told.
func CheckCounts(c *Comm, all []int) error { return c.checkCounts(all, elementsOf([]byte(nil)).Of) }
