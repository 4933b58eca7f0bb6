// Package membership decides which nodes are in the world, and their ranks.
//
// A [View] is an epoch and its nodes, ordered by rank. [State.Apply] computes the next
// View from an [Entry] of the log. A [Formation] makes the first entry: it collects
// candidates until the world is full. Afterwards an [Arbiter] decides which nodes are
// removed and which candidates of its [PendingJoins] enter. [PeerState] is the table by
// which each node reacts to failures.
//
// Everything in this package is a pure state machine: the time is a parameter, inputs
// are method calls and outputs are their results. The same calls give the same results
// everywhere, so a log of entries can be replicated and replayed. Values have no locks,
// and are used by one goroutine at a time. Views are immutable and may be shared.
//
// # Removals
//
// The Arbiter removes as few nodes as possible, a number that is minimal for up to 16 nodes with lost links and approximated
// beyond. Of two equal nodes the accused is removed. A node is proven unless it is on probation, for at least 15 s after it has entered a
// formed world, or has a strike. It gets a strike when its accusation has removed a node and nothing confirms it: the accused had been
// linked to it, had answered the seed and had lost no other link. From then on ties are decided against the accuser, so that a lying
// node has at most one other removed. A node that only the seed has lost stays until another reason for a view arises.
//
// # Candidates
//
// A seed has at most 1,024 candidates, and remembers 1,024 failures for ten minutes. A candidate without confirmed links is dismissed
// after 5 s, or later while the nodes that must confirm them, or that it has lost, do not answer the seed. After one second it no longer
// blocks others. One that fails is held off for 1 s, then 2 s, up to 5 minutes, by its key and by the address that the seed sees.
//
// # Views
//
// The seed sends the difference of a view to 8 roots, and itself to the nodes below a root without a connection, at once, to those in
// subtrees that are reported missing, and to those below a root that has not confirmed in time. A node keeps the last 8 differences, of
// at most 64 KiB each, and ignores one that it has.
package membership

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// A NodeID is the identity of a node: 16 bytes of the hash of its public key. It is never
// reused, and no node can take that of another.
type NodeID [16]byte

// String returns the NodeID as 32 hexadecimal digits.
func (id NodeID) String() string { return hex.EncodeToString(id[:]) }

// ParseNodeID parses the result of NodeID.String.
func ParseNodeID(s string) (NodeID, error) {
	var id NodeID
	if len(s) != 2*len(id) || strings.ToLower(s) != s {
		return NodeID{}, fmt.Errorf("node id %q: must be %d lower-case hexadecimal digits", s, 2*len(id))
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return NodeID{}, fmt.Errorf("node id %q: %w", s, err)
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
	Addrs []string // host:port, in the order of dialing
	Host  string   // the same for all nodes of one host, and different between hosts
	Name  string   // display name: hostname:pid
	// Endpoints are the addresses of the node's transports, one each. None means that
	// they are unknown.
	Endpoints []Endpoint `json:",omitempty"`
	// Place names the unit that a launcher starts again, such as a pod of Kubernetes. Only seeds know it.
	// Empty means none.
	Place string `json:",omitempty" wire:"-"`
}

// An Endpoint is the address of a transport of a node.
type Endpoint struct {
	Transport string
	// Addr is the address in the form of the transport. If it is empty, a transport between
	// hosts listens at the Addrs of the node, and one within a host at its ID.
	Addr string `json:",omitempty"`
}

// Endpoint returns the endpoint of a transport, and whether the node has that
// transport. A node with unknown endpoints may have any.
func (n Node) Endpoint(transport string) (e Endpoint, ok bool) {
	for _, e := range n.Endpoints {
		if e.Transport == transport {
			return e, true
		}
	}
	return Endpoint{Transport: transport}, len(n.Endpoints) == 0
}

// String returns the address, name and ID of the node for messages.
func (n Node) String() string {
	name := n.Name
	if name == "" {
		name = "node " + n.ID.String()[:8]
	}
	return n.Addr() + " (" + name + ")"
}

// Addr returns the first address of the node for messages.
func (n Node) Addr() string {
	if len(n.Addrs) == 0 {
		return "no address"
	}
	return n.Addrs[0]
}

// AddrsFrom returns the addresses at which the given host can dial n. A loopback
// address comes first on n's own host and is left out elsewhere, where it leads to
// another process.
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

// isLoopback recognizes loopback addresses in the forms that the seed writes.
func isLoopback(addr string) bool {
	return strings.HasPrefix(addr, "127.") || strings.HasPrefix(addr, "[::1]") || strings.HasPrefix(addr, "localhost:")
}

// Succeeds reports whether a node takes the place of an old one, which is on another host. So does a pod of Kubernetes that is
// started again elsewhere, while the pod before may still run on a host that is cut off.
func (n Node) Succeeds(old Node) bool {
	return n.Place != "" && n.Place == old.Place && n.Host != old.Host
}

func (n Node) clone() Node {
	n.Addrs = append([]string(nil), n.Addrs...)
	n.Endpoints = append([]Endpoint(nil), n.Endpoints...)
	return n
}
