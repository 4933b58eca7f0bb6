package trace

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"
)

// A Cluster is the state of all nodes of a cluster, as their seed reports it. Texts from
// nodes are escaped, so that they cannot control a terminal.
type Cluster struct {
	Time    time.Time `json:"time"`    // of the report, by the clock of the caller
	Formed  bool      `json:"formed"`  // the world has formed
	Epoch   uint64    `json:"epoch"`   // of the view; 0 while nodes are missing
	World   int       `json:"world"`   // number of nodes with which the world forms
	Joined  int       `json:"joined"`  // nodes that have a rank, or will get one
	Waiting int       `json:"waiting"` // nodes that wait to join the world that has formed
	Nodes   []Node    `json:"nodes"`   // by rank; nodes without a rank follow
}

// A Node is one node of a [Cluster].
type Node struct {
	Rank     int       `json:"rank"` // in the world or, while nodes are missing, requested; -1: none
	Node     string    `json:"node"` // NodeID in hexadecimal
	Name     string    `json:"name"` // of the process, for people: "hostname:pid"
	Addr     string    `json:"addr"` // first address that other nodes dial
	Snapshot *Snapshot `json:"snapshot,omitempty"`
	Missing  string    `json:"missing,omitempty"` // why there is no Snapshot
}

// WriteTo writes the cluster as text for people: what it does ([Cluster.Sentence]), the table of
// [WriteTable], and the nodes without a snapshot of the newest epoch.
func (c Cluster) WriteTo(w io.Writer) (int64, error) {
	var b bytes.Buffer
	a := c.world()
	a.write(&b, c.Findings())
	c.writeMissing(&b, a.epoch)
	return b.WriteTo(w)
}

// world returns the newest snapshots of the nodes.
func (c *Cluster) world() world {
	var snapshots []Snapshot
	for _, n := range c.Nodes {
		if n.Snapshot != nil {
			snapshots = append(snapshots, *n.Snapshot)
		}
	}
	a := newWorld(snapshots)
	a.nodes = make(map[int]*Node)
	if c.Formed {
		a.size = max(a.size, c.Joined)
	}
	for i := range c.Nodes {
		if n := &c.Nodes[i]; n.Rank >= 0 {
			a.nodes[n.Rank] = n
		}
	}
	a.noteHosts()
	return a
}

func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

// writeMissing writes the nodes without a snapshot of the newest epoch.
func (c *Cluster) writeMissing(w io.Writer, newest uint64) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	head := "RANK\tNODE\tADDRESS\tNO SNAPSHOT"
	for _, n := range c.Nodes {
		missing := n.Missing
		if n.Snapshot != nil && n.Snapshot.Epoch < newest {
			missing = fmt.Sprintf("is still in epoch %d", n.Snapshot.Epoch)
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
			rank = strconv.Itoa(n.Rank)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", rank, cmp.Or(n.Name, fmt.Sprintf("%.8s", n.Node)), n.Addr, missing)
	}
	t.Flush()
}
