package server

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wire"
)

// addresses returns the addresses of a joining node, in the order of attempts to reach it.
//
// If the node is configured to advertise addresses, only these are used. Otherwise the first is
// the source address of its packets: over QUIC a node uses one socket for all connections, so
// it listens there, and addresses that a node determines itself are often wrong (a wildcard,
// loopback, the address of a container). If the connection has a separate socket, as over TCP,
// the request contains the port at which the node listens. The alternate addresses of the node follow.
func addresses(observed string, req wire.JoinRequest) ([]string, error) {
	port := req.Port
	seen, err := normalize(observed, 0)
	if err == nil {
		host, source, _ := net.SplitHostPort(seen)
		if port == 0 {
			n, _ := strconv.ParseUint(source, 10, 16)
			port = uint16(n)
		}
		seen = net.JoinHostPort(host, strconv.Itoa(int(port)))
	}
	var list []string
	add := func(a string) {
		if !slices.Contains(list, a) && len(list) < handshake.AddrsMax {
			list = append(list, a)
		}
	}
	if len(req.Advertised) > 0 {
		for _, a := range req.Advertised {
			n, err := normalize(a, port)
			if err != nil {
				return nil, fmt.Errorf("advertised address %q: %w: %w", a, err, membership.ErrAddress)
			}
			add(n)
		}
		return list, nil
	}
	if err == nil {
		add(seen)
	} else if observed != "" && !strings.Contains(observed, ":") {
		add(observed) // a transport with addresses without ports
	}
	for _, a := range req.Alternates {
		if n, err := normalize(a, port); err == nil {
			add(n)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("observed address %q, alternate addresses %q: %w", observed, req.Alternates, membership.ErrAddress)
	}
	return list, nil
}

// normalize returns the canonical form of an address in views. It refuses an address that no
// node can reach. An address without a port gets the given one.
func normalize(addr string, port uint16) (string, error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		if port == 0 || addr == "" {
			return "", errors.New("is not host:port")
		}
		host, p = strings.Trim(addr, "[]"), strconv.Itoa(int(port))
	}
	if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("port %q is not a number from 1 to 65535", p)
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case err == nil && ip.Unmap().IsUnspecified(), host == "":
		return "", errors.New("names no host")
	case err == nil:
		host = ip.Unmap().WithZone("").String() // Its zone means nothing on other hosts, see eyeballs.WithZone.
	case strings.ContainsAny(host, ":/ \t"):
		return "", fmt.Errorf("%q is neither a name nor an address", host)
	default:
		host = strings.ToLower(host)
	}
	return net.JoinHostPort(host, p), nil
}

// hostOf returns the host of a node from its observed address.
func hostOf(observed string) string {
	host, _, err := net.SplitHostPort(observed)
	if err != nil {
		return observed
	}
	host, _, _ = strings.Cut(host, "%") // The zone is of this host.
	return host
}

// ipv6HostBits is the part of an IPv6 address that a host can choose itself.
const ipv6HostBits = 64

// originOf returns the part of an observed address that a node cannot choose: the address
// without the port, or the network of an IPv6 address.
func originOf(observed string) string {
	host := hostOf(observed)
	a, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if a = a.Unmap(); a.Is6() {
		if p, err := a.Prefix(128 - ipv6HostBits); err == nil {
			return p.String()
		}
	}
	return a.String()
}
