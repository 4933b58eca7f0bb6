package host

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Reachable returns an address that leads to a socket that listens at addr: addr itself, or the
// first of [Addrs] if addr has no specified host.
func Reachable(addr string) string {
	name, port, err := net.SplitHostPort(addr)
	if ip, bad := netip.ParseAddr(name); err != nil || bad == nil && !ip.IsUnspecified() {
		return addr
	}
	if c := Addrs(addr); len(c) > 0 {
		return c[0]
	}
	return net.JoinHostPort("127.0.0.1", port)
}

// Addrs returns the addresses at which other hosts may reach a socket that listens at addr.
func Addrs(addr string) []string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil
	}
	if ip, err := netip.ParseAddr(host); host != "" && (err != nil || !ip.IsUnspecified()) {
		return []string{addr}
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var list []string
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && p.Addr().IsGlobalUnicast() {
			list = append(list, net.JoinHostPort(p.Addr().String(), port))
		}
	}
	return list
}

// SeedPort is the port of a seed whose address has none.
const SeedPort = "7946"

// WithPort returns an address with a port: host:port if addr is a host name, an IPv4 address or
// an IPv6 address in brackets, and otherwise addr itself. An IPv6 address without brackets is
// ambiguous: its last part may be meant as a port.
func WithPort(addr, port string) string {
	if inner, ok := strings.CutPrefix(addr, "["); ok && strings.HasSuffix(inner, "]") {
		return net.JoinHostPort(strings.TrimSuffix(inner, "]"), port)
	}
	if addr == "" || strings.ContainsAny(addr, ":=") {
		return addr
	}
	return net.JoinHostPort(addr, port)
}

// WithPorts is WithPort for a list.
func WithPorts(addrs []string, port string) []string {
	list := slices.Clone(addrs)
	for i, addr := range list {
		list[i] = WithPort(addr, port)
	}
	return list
}

// IsAddr reports whether addr is host:port in printable ASCII, which can be shown
// unescaped. zero allows an empty host and the port 0.
func IsAddr(addr string, zero bool) bool {
	host, port, err := net.SplitHostPort(addr)
	n, bad := strconv.ParseUint(port, 10, 16)
	if strings.Contains(host, ":") {
		_, err = netip.ParseAddr(host)
	}
	return err == nil && bad == nil && (zero || host != "" && n != 0) && !strings.ContainsFunc(host, func(r rune) bool {
		return r <= ' ' || r > '~' || r == '/' || r == '@'
	})
}

// Leads reports whether addr leads to a socket of this host that listens at listen. It may
// resolve the host name of addr.
func Leads(addr, listen string) bool {
	name, port, err := net.SplitHostPort(addr)
	at, own, bad := net.SplitHostPort(listen)
	if err != nil || bad != nil || port != own {
		return false
	}
	ips, err := net.LookupIP(name)
	if err != nil {
		return false
	}
	here, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	only := net.ParseIP(at)
	for _, ip := range ips {
		if only != nil && !only.IsUnspecified() && !only.Equal(ip) {
			continue
		}
		if ip.IsLoopback() || slices.ContainsFunc(here, func(a net.Addr) bool {
			n, ok := a.(*net.IPNet)
			return ok && n.IP.Equal(ip)
		}) {
			return true
		}
	}
	return false
}
