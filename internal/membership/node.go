// Package membership decides which nodes are in the world, and their ranks.
//
// Most callers use View: an epoch and its nodes, whose places are their
// ranks. A View comes from State.Apply, which carries one log entry after
// another out, or, for a world that starts, from Formation, which collects
// candidates until they are enough and says so with a Form entry.
//
// Everything in this package is a pure state machine: time arrives as a
// parameter, inputs are method calls, outputs are their results. The same
// calls give the same results on every node, so a log of entries can be
// replicated and replayed. Values have no lock: one goroutine at a time uses a
// State or a Formation. Views are never changed once handed out, and may be
// shared.
package membership

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// A NodeID is the identity of a node. It is derived from the node's public
// key, so no two nodes have the same and no node can take that of another.
type NodeID [16]byte

// String is the form in which a NodeID is written: 32 hexadecimal digits.
func (id NodeID) String() string { return hex.EncodeToString(id[:]) }

// ParseNodeID is the inverse of NodeID.String.
func ParseNodeID(s string) (NodeID, error) {
	var id NodeID
	if len(s) != 2*len(id) || strings.ToLower(s) != s {
		return NodeID{}, fmt.Errorf("%q is not a node id of %d lower-case hexadecimal digits", s, 2*len(id))
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return NodeID{}, fmt.Errorf("%q is not a node id: %w", s, err)
	}
	return id, nil
}

// MarshalText implements encoding.TextMarshaler.
func (id NodeID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *NodeID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseNodeID(string(text))
	return err
}

// A Node is one process in the cluster.
type Node struct {
	ID    NodeID
	Addrs []string // host:port, in the order in which others try them
	Host  string   // the same for all nodes of one host, and only for them
	Name  string   // for people: hostname:pid
	// Endpoints are where the transports of the node listen, one each. None says
	// that they are not known.
	Endpoints []Endpoint `json:",omitempty"`
}

// An Endpoint is where a transport of a node listens.
type Endpoint struct {
	Transport string
	// Addr is in the form of the transport. If it is empty, a transport between
	// hosts listens at the Addrs of the node, and one within a host at its ID.
	Addr string `json:",omitempty"`
}

// Endpoint returns where a transport of the node listens, and whether the node
// has that transport. A node whose endpoints are not known may have any.
func (n Node) Endpoint(transport string) (e Endpoint, ok bool) {
	for _, e := range n.Endpoints {
		if e.Transport == transport {
			return e, true
		}
	}
	return Endpoint{Transport: transport}, len(n.Endpoints) == 0
}

// String names a node in messages to people: where it is and what it is.
func (n Node) String() string {
	name := n.Name
	if name == "" {
		name = "node " + n.ID.String()[:8]
	}
	return n.Addr() + " (" + name + ")"
}

// Addr is where others look for the node first, for people.
func (n Node) Addr() string {
	if len(n.Addrs) == 0 {
		return "no address"
	}
	return n.Addrs[0]
}

// AddrsFrom returns the addresses of n that make sense on the given host. A
// loopback address leads everywhere else to a different process: it comes
// first on n's own host, and is left out on all others.
func (n Node) AddrsFrom(host string) []string {
	var loop, rest []string
	for _, a := range n.Addrs {
		if isLoopback(a) {
			loop = append(loop, a)
		} else {
			rest = append(rest, a)
		}
	}
	if host == n.Host {
		return append(loop, rest...)
	}
	return rest
}

// isLoopback knows the forms in which the seed writes loopback addresses.
func isLoopback(addr string) bool {
	return strings.HasPrefix(addr, "127.") || strings.HasPrefix(addr, "[::1]") || strings.HasPrefix(addr, "localhost:")
}

func (n Node) clone() Node {
	n.Addrs = append([]string(nil), n.Addrs...)
	n.Endpoints = append([]Endpoint(nil), n.Endpoints...)
	return n
}
