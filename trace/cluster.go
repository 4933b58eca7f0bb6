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

	SeedTime time.Time `json:"seed_time"`         // when the seed asked the nodes, by its clock
	Changes  []Change  `json:"changes,omitempty"` // the last changes of the world, at most 64, the oldest first
	Nodes    []Node    `json:"nodes"`             // by rank; nodes without a rank follow
}

// A Node is one node of a [Cluster].
type Node struct {
	Rank     int       `json:"rank"` // in the world or, while nodes are missing, requested; -1: none
	Node     string    `json:"node"` // NodeID in hexadecimal
	Name     string    `json:"name"` // of the process, for people: "hostname:pid"
	Addr     string    `json:"addr"` // first address that other nodes dial
	Snapshot *Snapshot `json:"snapshot,omitempty"`
	Missing  string    `json:"missing,omitempty"` // why there is no Snapshot

	// Silent is the time since the last message of a node without a Snapshot to the seed, in nanoseconds in JSON, or 0 if it is unknown.
	Silent time.Duration `json:"silent,omitempty"`

	// Offset is the clock of the node minus that of the seed. It is off by at most OffsetError, half of the time from the
	// question of the seed to the Snapshot; 0 without a Snapshot. Both are in nanoseconds in JSON.
	Offset      time.Duration `json:"offset,omitempty"`
	OffsetError time.Duration `json:"offset_error,omitempty"`
}

// Unconnected is the reason in Node.Missing of a node of a world that forms, if it lacks connections to others.
const Unconnected = "waits for connections to other nodes"

// A Change is the arrival or departure of one node, or an event of the whole world.
type Change struct {
	Time  time.Time `json:"time"`  // by the clock of the seed
	Epoch uint64    `json:"epoch"` // of the new view
	Size  int       `json:"size"`  // nodes in that view
	What  string    `json:"what"`  // Formed, Joined, Left, Lost, Excluded or Over
	Rank  int       `json:"rank"`  // of the node in the new view or, if it has gone, in the view before
	Node  string    `json:"node,omitempty"`
	Name  string    `json:"name,omitempty"`
	More  int       `json:"more,omitempty"` // further nodes with the same change
	Why   string    `json:"why,omitempty"`  // why the node has gone, or the world is over
}

// Kinds of a [Change].
const (
	Formed   = "formed"   // the world has formed
	Joined   = "joined"   // the node has joined the world
	Left     = "left"     // the node has left
	Lost     = "lost"     // the node has failed, or nobody reaches it
	Excluded = "excluded" // the other nodes have excluded the node
	Over     = "over"     // the world is over
)

// WriteTo writes the cluster as text for people: its state ([Cluster.Sentence]), the table of
// [WriteTable], and the nodes without a snapshot of the newest epoch.
func (c Cluster) WriteTo(w io.Writer) (int64, error) {
	var b bytes.Buffer
	a := c.world()
	a.write(&b, c.Findings())
	c.writeMissing(&b, a.epoch)
	return b.WriteTo(w)
}

// world returns the newest snapshots of the nodes.
func (c *Cluster) world() *world {
	var snapshots []Snapshot
	nodes, size := make(map[int]*Node), 0
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if n.Snapshot != nil {
			snapshots = append(snapshots, *n.Snapshot)
		}
		if n.Rank >= 0 {
			nodes[n.Rank] = n
		}
	}
	if c.Formed {
		size = c.Joined
	}
	return newWorld(snapshots, nodes, size)
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
		if n.Silent > 0 {
			missing += " for " + span(n.Silent)
		}
		rank := "-"
		if n.Rank >= 0 {
			rank = strconv.Itoa(n.Rank)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", rank, cmp.Or(n.Name, fmt.Sprintf("%.8s", n.Node)), n.Addr, missing)
	}
	t.Flush()
}
