package sim

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"

	"github.com/nexar-go/nexar/transport"
)

// A Host is a machine of the network.
type Host struct {
	network *Network
	name    string
	ip      net.IP
	group   int  // hosts of different groups cannot reach each other
	off     bool // powered off

	endpoints map[int]*endpoint   // by port
	sockets   map[int]*packetConn // by port
	nextPort  int
}

// firstEphemeralPort is the first port that is assigned for port 0 (RFC 6335,
// section 6).
const firstEphemeralPort = 49152

// host returns the host of this name, and creates it if needed.
func (n *Network) host(name string) *Host {
	h := n.byName[name]
	if h == nil {
		i := len(n.hosts) + 1
		h = &Host{
			network:   n,
			name:      name,
			ip:        net.IPv4(10, byte(i>>16), byte(i>>8), byte(i)).To4(),
			endpoints: make(map[int]*endpoint),
			sockets:   make(map[int]*packetConn),
			nextPort:  firstEphemeralPort,
		}
		n.hosts = append(n.hosts, h)
		n.byName[name] = h
	}
	return h
}

// Name returns the name of the host.
func (h *Host) Name() string { return h.name }

// IP returns the address of the host for datagrams: 10.0.0.1 for the first host of a
// network, and so on.
func (h *Host) IP() net.IP { return append(net.IP(nil), h.ip...) }

// Listen returns a transport that listens at a port of the host, or at an unused one if
// port is 0. Its address is "host:port".
func (h *Host) Listen(port int) (transport.Transport, error) { return h.ListenAs(port, "") }

// ListenAs is Listen with another identity than the address.
func (h *Host) ListenAs(port int, identity string) (transport.Transport, error) {
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	port, err := h.takePort(port, func(p int) bool { return h.endpoints[p] == nil })
	if err != nil {
		return nil, fmt.Errorf("sim: listen at %s:%d: %w", h.name, port, err)
	}
	e := &endpoint{
		network: n,
		host:    h,
		port:    port,
		addr:    net.JoinHostPort(h.name, strconv.Itoa(port)),
		backlog: newQueue[*conn](),
		done:    make(chan struct{}),
		conns:   make(map[*conn]uint64),
	}
	e.identity = cmp.Or(identity, e.addr)
	h.endpoints[port] = e
	return e, nil
}

// PacketConn returns a datagram socket at a port of the host, or at an unused one if
// port is 0. Its address is a *net.UDPAddr. The socket buffers 1 MiB, and drops
// further datagrams. A datagram to an address without a socket is lost; the write
// succeeds.
func (h *Host) PacketConn(port int) (net.PacketConn, error) {
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	port, err := h.takePort(port, func(p int) bool { return h.sockets[p] == nil })
	if err != nil {
		return nil, fmt.Errorf("sim: socket at %s:%d: %w", h.name, port, err)
	}
	return newPacketConn(h, port), nil
}

// takePort returns port if free(port), or an unused port if port is 0.
func (h *Host) takePort(port int, free func(int) bool) (int, error) {
	switch {
	case h.network.closed:
		return port, transport.ErrClosed
	case h.off:
		return port, errors.New("the host is powered off")
	case port < 0 || port > 65535:
		return port, fmt.Errorf("port %d: must be at most 65535", port)
	case port > 0 && !free(port):
		return port, errors.New("the port is in use")
	case port > 0:
		return port, nil
	}
	for range 65536 - firstEphemeralPort {
		port = h.nextPort
		if h.nextPort++; h.nextPort > 65535 {
			h.nextPort = firstEphemeralPort
		}
		if free(port) {
			return port, nil
		}
	}
	return 0, errors.New("all ports are in use")
}

// crash ends all transports and sockets of the host.
func (h *Host) crash() {
	for _, port := range slices.Sorted(maps.Keys(h.endpoints)) {
		h.endpoints[port].end(transport.ErrPeerGone)
	}
	for _, port := range slices.Sorted(maps.Keys(h.sockets)) {
		h.sockets[port].close()
	}
}
