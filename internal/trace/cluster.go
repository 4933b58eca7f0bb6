package trace

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// A Cluster is where all nodes of a cluster are, as its seed has heard of them.
type Cluster struct {
	Time    time.Time     `json:"time"`    // when it was made, by the clock of whoever has asked
	Formed  bool          `json:"formed"`  // the world has formed
	Epoch   uint64        `json:"epoch"`   // of the view; 0: there is none, as nodes are missing
	World   int           `json:"world"`   // nodes with which the world forms
	Joined  int           `json:"joined"`  // nodes that have a place in it
	Waiting int           `json:"waiting"` // nodes that wait for one, as it has formed without them
	Nodes   []ClusterNode `json:"nodes"`   // those that have ranks first, and in their order
}

// A ClusterNode is one node of a Cluster.
type ClusterNode struct {
	Rank    int       `json:"rank"` // that it has, or as long as nodes are missing wants; -1: none
	Node    string    `json:"node"` // its NodeID
	Name    string    `json:"name"` // of its process, for people: "hostname:pid"
	Addr    string    `json:"addr"` // where others look for it first
	Record  *Snapshot `json:"record,omitempty"`
	Missing string    `json:"missing,omitempty"` // why there is no Record
}

// Add adds a node, and what Encode has written there. Nobody has looked into that
// before, and what the Cluster then holds can be shown on a terminal.
func (c *Cluster) Add(n ClusterNode, encoded []byte) {
	n.Name, n.Addr, n.Missing = printable(n.Name, nameMax), printable(n.Addr, textMax), printable(n.Missing, textMax)
	if n.Missing == "" {
		s, err := Decode(encoded)
		if err == nil {
			err = c.check(&n, &s)
		}
		if err == nil {
			n.Record = &s
		} else {
			n.Missing = printable("its record is of no use: "+err.Error(), textMax)
		}
	}
	c.Nodes = append(c.Nodes, n)
}

// textMax is how long other texts of a Cluster are, in bytes.
const textMax = 2048

// check finds a record that is not the node's, so that none can speak for another.
func (c *Cluster) check(n *ClusterNode, s *Snapshot) error {
	switch {
	case s.Node != n.Node:
		return fmt.Errorf("it is that of node %s", s.Node)
	case s.Epoch > c.Epoch:
		return fmt.Errorf("it is of epoch %d, and the world in epoch %d", s.Epoch, c.Epoch)
	case s.Epoch == c.Epoch && (s.Rank != n.Rank || s.Size != c.Joined):
		return fmt.Errorf("it is that of rank %d of %d", s.Rank, s.Size)
	}
	return nil
}

// WriteTo writes the Cluster for people: how the world stands, what Table says of
// it, and the nodes that this says nothing of.
func (c Cluster) WriteTo(w io.Writer) (int64, error) {
	var b bytes.Buffer
	fmt.Fprintln(&b, c.standing())
	var newest uint64
	var snapshots []Snapshot
	for _, n := range c.Nodes {
		if n.Record != nil {
			newest = max(newest, n.Record.Epoch)
			snapshots = append(snapshots, *n.Record)
		}
	}
	if len(snapshots) > 0 {
		if err := Table(&b, snapshots); err != nil {
			return 0, err
		}
	}
	c.others(&b, newest)
	return b.WriteTo(w)
}

// standing says in a line how the world stands.
func (c *Cluster) standing() string {
	text := fmt.Sprintf("the world has formed: %s", nodes(c.Joined))
	switch {
	case !c.Formed && c.Epoch == 0:
		text = fmt.Sprintf("the world has not formed: %d of %s joined", c.Joined, nodes(c.World))
	case !c.Formed:
		text = fmt.Sprintf("the world has not formed: all %s joined, and connect to each other", nodes(c.World))
	}
	if c.Waiting > 0 {
		text += fmt.Sprintf("; waiting for a place: %d", c.Waiting)
	}
	return text
}

func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

// others writes the nodes that have no record of the newest epoch.
func (c *Cluster) others(w io.Writer, newest uint64) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	head := "RANK\tNODE\tADDRESS\tNO RECORD"
	for _, n := range c.Nodes {
		missing := n.Missing
		if n.Record != nil && n.Record.Epoch < newest {
			missing = fmt.Sprintf("is still in epoch %d", n.Record.Epoch)
		}
		if missing == "" {
			continue
		}
		if head != "" {
			fmt.Fprintln(t, head)
			head = ""
		}
		rank := "-"
		if n.Rank >= 0 {
			rank = fmt.Sprint(n.Rank)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", rank, cmp.Or(n.Name, fmt.Sprintf("%.8s", n.Node)), n.Addr, missing)
	}
	t.Flush()
}
