package nexar

import (
	"net"
	"net/netip"
	"os"
	"strings"
)

// hostID is the same for all processes that share this one's loopback
// interface, and for no others: the boot of the machine and its network
// namespace on Linux, otherwise the name of the host.
func hostID() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	ns, err2 := os.Readlink("/proc/self/ns/net")
	if err == nil && err2 == nil {
		return strings.TrimSpace(string(boot)) + "/" + ns
	}
	host, err := os.Hostname()
	if err != nil {
		return ""
	}
	return host
}

// candidates are the addresses under which a socket that listens at addr can
// be reached from other hosts, as far as this one knows.
func candidates(addr string) []string {
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
