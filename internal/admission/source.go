package admission

import "net/netip"

// Connections are counted by Source: an IPv4 address, or the /64 of an
// IPv6 address, since a host can use any address of its /64. The zero Source stands
// for all peers that have no IP address.
type Source struct{ prefix netip.Prefix }

// SourceOf returns the source of a peer's address. Link-local IPv6 addresses are
// sources of their own, because all hosts of a link share their /64.
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

func (s Source) String() string {
	switch {
	case !s.prefix.IsValid():
		return "unknown"
	case s.prefix.IsSingleIP():
		return s.prefix.Addr().String()
	}
	return s.prefix.String()
}
