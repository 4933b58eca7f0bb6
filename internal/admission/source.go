package admission

import (
	"net"
	"net/netip"
)

// A Source is the address under which connections are counted: an IPv4 address, or the /64 of
// an IPv6 address, since a host can use any address of its /64. All peers without an IP address
// have the zero Source.
type Source struct{ prefix netip.Prefix }

// SourceOf returns the source of a peer's address. Each link-local IPv6 address is a separate
// source, since all hosts of a link share their /64.
func SourceOf(addr netip.Addr) Source {
	addr = addr.Unmap()
	bits := addr.BitLen()
	if addr.Is6() && !addr.IsLinkLocalUnicast() {
		bits = 64
	}
	prefix, err := addr.WithZone("").Prefix(bits)
	if err != nil {
		return Source{} // addr is the zero Addr
	}
	return Source{prefix}
}

// SourceOfPeer returns the source of the other side of a TCP connection.
func SourceOfPeer(c net.Conn) Source {
	tcp, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return Source{}
	}
	return SourceOf(tcp.AddrPort().Addr())
}

// Reset closes a TCP connection and discards its unsent data.
func Reset(c net.Conn) {
	if s, ok := c.(interface{ SetLinger(seconds int) error }); ok {
		_ = s.SetLinger(0)
	}
	c.Close()
}

func (s Source) String() string {
	switch {
	case !s.prefix.IsValid():
		return "unknown"
	case s.prefix.IsSingleIP():
		return s.prefix.Addr().String()
	}
	return s.prefix.String()
}
