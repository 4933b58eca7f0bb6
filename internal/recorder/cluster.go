package recorder

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/nexar-go/nexar/trace"
)

// textMax bounds texts of the nodes of a cluster, in bytes.
const textMax = 2048

// AddNode adds a node to c, with the snapshot that the node has encoded in answer to a question at c.SeedTime that took so
// long. The snapshot is not trusted: if it is invalid, or of another node, n.Missing says so. The texts of c are
// safe to print on a terminal.
func AddNode(c *trace.Cluster, n trace.Node, encoded []byte, took time.Duration) {
	n.Name, n.Addr, n.Missing = printable(n.Name, nameMax), printable(n.Addr, textMax), printable(n.Missing, textMax)
	if n.Missing == "" {
		s, err := Decode(encoded)
		if err == nil {
			err = checkNode(c, &n, &s)
		}
		if err == nil {
			n.Snapshot, n.Offset, n.OffsetError = &s, s.Time.Sub(c.SeedTime.Add(took/2)), took/2
		} else {
			n.Missing = printable("has sent an invalid snapshot: "+err.Error(), textMax)
		}
	}
	c.Nodes = append(c.Nodes, n)
}

// Changes decodes the changes of a world. Those that are invalid are dropped. The texts of the result are safe to print on a terminal.
func Changes(encoded []byte) (list []trace.Change) {
	if json.Unmarshal(encoded, &list) != nil {
		return nil
	}
	for i := range list {
		c := &list[i]
		c.What, c.Node, c.Name, c.Why = printable(c.What, nameMax), printable(c.Node, nameMax), printable(c.Name, nameMax), printable(c.Why, textMax)
	}
	return slices.DeleteFunc(list, func(c trace.Change) bool { return c.Rank < 0 || c.Size < 0 || c.More < 0 })
}

// checkNode returns an error for a snapshot that is not of n, so that no node can impersonate
// another.
func checkNode(c *trace.Cluster, n *trace.Node, s *trace.Snapshot) error {
	switch {
	case s.Node != n.Node:
		return fmt.Errorf("it is of node %s", s.Node)
	case s.Epoch > c.Epoch:
		return fmt.Errorf("it is of epoch %d, and the world is in epoch %d", s.Epoch, c.Epoch)
	case s.Epoch == c.Epoch && (s.Rank != n.Rank || s.Size != c.Joined):
		return fmt.Errorf("it is of rank %d of %d, want rank %d of %d", s.Rank, s.Size, n.Rank, c.Joined)
	case s.Time.Sub(c.SeedTime).Abs() > apartMax:
		return fmt.Errorf("its clock reads %v, that of the seed %v", s.Time, c.SeedTime)
	}
	return nil
}
