package eyeballs

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
)

// Resolve returns the addresses of host:port for a network, "tcp" or "udp", without duplicates. The host may be an IP address, a
// name, or empty for this host. IPv4 and IPv6 addresses alternate (RFC 8305, section 4), beginning with IPv4.
func Resolve(ctx context.Context, network, addr string) ([]netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		if e, ok := errors.AsType[*net.AddrError](err); ok {
			err = errors.New(e.Err) // The caller names the address.
		}
		return nil, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, network, service)
	if err != nil {
		return nil, err
	}
	var ips []netip.Addr
	if host == "" {
		// As in package net, an empty host is this one.
		ips = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	} else if ip, err := netip.ParseAddr(host); err == nil {
		ips = []netip.Addr{ip}
	} else if ips, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
		return nil, err
	}
	return alternate(ips, uint16(port)), nil
}

// alternate returns addresses of both families in turn.
func alternate(ips []netip.Addr, port uint16) (list []netip.AddrPort) {
	var families [2][]netip.AddrPort // IPv4, IPv6
	for _, ip := range ips {
		family, ap := 0, netip.AddrPortFrom(ip.Unmap(), port)
		if ap.Addr().Is6() {
			family = 1
		}
		if !slices.Contains(families[family], ap) {
			families[family] = append(families[family], ap)
		}
	}
	for i := range max(len(families[0]), len(families[1])) {
		for _, f := range families {
			if i < len(f) {
				list = append(list, f[i])
			}
		}
	}
	return list
}

// WithZone returns addr, host:port, as this process can dial it after a peer has told it. The zone of a link-local IPv6 address names an
// interface of one host (RFC 4007), so it becomes the zone of peer, the address at which this process reaches the peer. Other
// addresses stay the same.
func WithZone(addr, peer string) string {
	ap, err := netip.ParseAddrPort(addr)
	via, bad := netip.ParseAddrPort(peer)
	if err != nil || bad != nil || via.Addr().Zone() == "" || !ap.Addr().Is6() || !ap.Addr().IsLinkLocalUnicast() {
		return addr
	}
	return netip.AddrPortFrom(ap.Addr().WithZone(via.Addr().Zone()), ap.Port()).String()
}
