package quic

import (
	"context"
	"net"
	"net/netip"

	"github.com/nexar-go/nexar/internal/eyeballs"
)

// A network is a [net.PacketConn] whose addresses are nodes, over relays. A relay can write any source into a packet, so all addresses of a
// network have the same text: quic-go compares the texts, and a connection stays with the address of its first packet. [Transport] refuses a
// peer whose identity is not the node of that address.
type network interface {
	net.PacketConn
	// Resolve returns the address for the argument of Dial.
	Resolve(addr string) (net.Addr, error)
	// Node returns the identity of the node at an address.
	Node(addr net.Addr) string
	// Source returns the source by which clients are limited until they are authenticated. It cannot be forged.
	Source(addr net.Addr) netip.Addr
	// Answers asks the node at an address for an answer over another path, and reports whether it comes.
	Answers(ctx context.Context, addr net.Addr) bool
}

// A filteredNetwork is a network with the filter of Initial packets.
type filteredNetwork struct {
	network
	initials *initialFilter
}

func (n *filteredNetwork) ReadFrom(p []byte) (int, net.Addr, error) {
	for {
		size, addr, err := n.network.ReadFrom(p)
		if err != nil || n.initials.inspect(p[:size], n.Source(addr)) != initialDropped {
			return size, addr, err
		}
	}
}

// SetReadBuffer does nothing, and keeps quic-go from a warning.
func (*filteredNetwork) SetReadBuffer(int) error { return nil }

// SetWriteBuffer is as SetReadBuffer.
func (*filteredNetwork) SetWriteBuffer(int) error { return nil }

// text returns an address as text.
func (e *Endpoint) text(addr net.Addr) string {
	if e.network != nil {
		return e.network.Node(addr)
	}
	return eyeballs.PlainAddr(addr)
}

// source returns the address by which clients are limited until they are authenticated.
func (e *Endpoint) source(addr net.Addr) netip.Addr {
	if e.network != nil {
		return e.network.Source(addr)
	}
	return eyeballs.AddrPort(addr).Addr()
}

// isFrom reports whether a peer may have the address: on a network it must be the node there.
func (e *Endpoint) isFrom(addr net.Addr, peer string) bool {
	return e.network == nil || e.network.Node(addr) == peer
}

// PeerGone ends the connections to a peer that has died: over relays nothing but its silence says so. It does not block.
func (t *Transport) PeerGone(peer, reason string) {
	t.end.mu.Lock()
	defer t.end.mu.Unlock()
	for c := range t.end.conns {
		if c.owner == t && c.peer == peer {
			c.spawn(func() { c.finish(codeGone, reason) })
		}
	}
}
