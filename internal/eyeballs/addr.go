package eyeballs

import (
	"net"
	"net/netip"
	"strings"
)

// AddrPort returns the address of a TCP or UDP socket. IPv4 addresses that a dual-stack socket
// shows as IPv6 become IPv4 again. For other networks it returns zero.
func AddrPort(addr net.Addr) netip.AddrPort {
	if addr == nil {
		return netip.AddrPort{}
	}
	ap, _ := netip.ParseAddrPort(addr.String())
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// PlainAddr returns the address of a socket as text, in the form of AddrPort if it has one.
func PlainAddr(addr net.Addr) string {
	if ap := AddrPort(addr); ap.IsValid() {
		return ap.String()
	}
	return strings.Clone(addr.String())
}
