package nexar

import (
	"slices"
	"strings"

	"github.com/nexar-go/nexar/internal/mesh"
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
	for _, i := range n.World().home.paths {
		p := Peer{
			Rank: i.Rank, Node: NodeID(i.Node), Addr: i.Addr, Path: i.Link, Bulk: i.Bulk, Encrypted: i.Encrypted, Why: i.Why,
		}
		if p.Path == "quic" && len(n.lacks) > 0 {
			p.Why = strings.Join(append(slices.Clone(n.lacks), p.Why), "; ")
		}
		peers = append(peers, p)
	}
	return peers
}

// common is what the ways to all other nodes have in common: their name, or
// "mixed", and whether all of them are encrypted. Without others all is in
// this process.
func common(paths []mesh.PathInfo) (name string, encrypted bool) {
	name, encrypted = "mem", len(paths) > 0
	for k, i := range paths {
		this := i.Link
		if bulk := strings.TrimSuffix(i.Bulk, "+tls"); bulk != this {
			this += "+" + bulk
		}
		if k > 0 && this != name {
			this = "mixed"
		}
		name, encrypted = this, encrypted && i.Encrypted
	}
	return name, encrypted
}
