package nexar

import "github.com/nexar-go/nexar/internal/link"

// LinkTo returns the link from one node to another of its world.
func LinkTo(from, to *Node) *link.Link {
	view := from.World().impl.View.View
	links, err := from.node.Mesh.Links(view)
	if err != nil {
		panic(err)
	}
	rank, _ := view.Rank(to.node.ID())
	return links[rank]
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
