package admission

import "net/netip"

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

func (s Source) String() string {
	switch {
	case !s.prefix.IsValid():
		return "unknown"
	case s.prefix.IsSingleIP():
		return s.prefix.Addr().String()
	}
	return s.prefix.String()
}
