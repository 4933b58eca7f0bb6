package nexar

import (
	"slices"
	"strings"
)

// A Peer is another node of the world, and the way in which this one reaches
// it.
type Peer struct {
	Rank int
	Node NodeID
	// Addr is where it is: "host:port", or its identity if it is reached
	// through shared memory.
	Addr string
	// Path is what connects the two: "shm" or "quic". Bulk is what carries
	// payloads: the same, or TCP, as "tcp+tls" or "tcp".
	Path, Bulk string
	// Encrypted says that all that they send to each other is encrypted and
	// authenticated. Shared memory is not: it does not leave the host.
	Encrypted bool
	// Why is the reason for people, such as "same host", or why a better way
	// is not taken. It is the node with the higher rank that chooses.
	Why string
}

// Peers says how all other nodes of the world are reached, in the order of their
// ranks. It stays the same as long as the world does.
func (n *Node) Peers() []Peer {
	var peers []Peer
	for _, i := range n.World().impl.Paths() {
		p := Peer{
			Rank: i.Rank, Node: NodeID(i.Node), Addr: i.Addr, Path: i.Link, Bulk: i.Bulk, Encrypted: i.Encrypted, Why: i.Why,
		}
		if p.Path == "quic" && len(n.node.Lacks) > 0 {
			p.Why = strings.Join(append(slices.Clone(n.node.Lacks), p.Why), "; ")
		}
		peers = append(peers, p)
	}
	return peers
}
