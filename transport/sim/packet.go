package sim

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

const (
	maxDatagram  = 65507   // of UDP over IPv4
	socketBuffer = 1 << 20 // bytes that a socket keeps for its reader
)

// A packetConn is a socket for datagrams.
type packetConn struct {
	network *Network
	host    *Host
	addr    netip.AddrPort
	closed  bool
	flows   map[netip.AddrPort]*flow

	arrived       []datagram
	arrivedBytes  int
	readable      sync.Cond
	readDeadline  deadline
	writeDeadline deadline
}

var _ net.PacketConn = (*packetConn)(nil)

// A datagram has arrived at a socket.
type datagram struct {
	from netip.AddrPort
	data []byte
}

// A flow is the sequence of datagrams from one address to another.
type flow struct {
	rng  *rand.Rand
	last time.Time // delivery of the last datagram that was not reordered
}

func newPacketConn(h *Host, port int) *packetConn {
	ip, _ := netip.AddrFromSlice(h.ip)
	c := &packetConn{
		network: h.network,
		host:    h,
		addr:    netip.AddrPortFrom(ip, uint16(port)),
		flows:   make(map[netip.AddrPort]*flow),
	}
	c.readable.L = &h.network.mu
	h.sockets[port] = c
	return c
}

// WriteTo implements net.PacketConn. It never blocks.
func (c *packetConn) WriteTo(p []byte, addr net.Addr) (int, error) {
	udp, ok := addr.(*net.UDPAddr)
	if !ok {
		return 0, c.opError("write", addr, fmt.Errorf("the address is a %T, want *net.UDPAddr", addr))
	}
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	switch {
	case c.closed:
		return 0, c.opError("write", addr, net.ErrClosed)
	case c.writeDeadline.passed:
		return 0, c.opError("write", addr, os.ErrDeadlineExceeded)
	case len(p) > maxDatagram:
		return 0, c.opError("write", addr, fmt.Errorf("datagram of %d bytes: must be at most %d", len(p), maxDatagram))
	}
	to := udp.AddrPort()
	c.send(bytes.Clone(p), netip.AddrPortFrom(to.Addr().Unmap(), to.Port()))
	return len(p), nil
}

// send sends a datagram, or loses it. The random numbers that it draws depend on the
// flow and the link alone, not on other traffic.
func (c *packetConn) send(data []byte, to netip.AddrPort) {
	f := c.flows[to]
	if f == nil {
		f = &flow{rng: c.network.rng("datagrams %v>%v", c.addr, to)}
		c.flows[to] = f
	}
	loss, jitter, reorder := f.rng.Float64(), f.rng.Float64(), f.rng.Float64()

	host := c.network.hostAt(to.Addr())
	if host == nil {
		return
	}
	l := c.network.link(c.host, host)
	if !l.up() || l.full(len(data)) {
		return
	}
	due := l.transmit(len(data)).Add(l.Delay + upTo(l.Jitter, jitter))
	if loss < l.Loss {
		return
	}
	if l.Corrupt > 0 && f.rng.Float64() < l.Corrupt && len(data) > 0 {
		data[f.rng.IntN(len(data))] ^= 1 << f.rng.IntN(8)
	}
	if reorder < l.Reorder {
		due = due.Add(l.Delay + time.Millisecond)
	} else {
		if due.Before(f.last) {
			due = f.last
		}
		f.last = due
	}
	c.network.clock.at(due, func() {
		if s := host.sockets[int(to.Port())]; s != nil && l.up() {
			s.arrive(datagram{c.addr, data})
		}
	})
}

// hostAt returns the host with this IP address, or nil.
func (n *Network) hostAt(ip netip.Addr) *Host {
	if !ip.Is4() {
		return nil
	}
	b := ip.As4()
	i := int(b[1])<<16 + int(b[2])<<8 + int(b[3])
	if b[0] != 10 || i < 1 || i > len(n.hosts) {
		return nil
	}
	return n.hosts[i-1]
}

// arrive keeps a datagram for the reader, or drops it if the buffer is full.
func (c *packetConn) arrive(d datagram) {
	if c.arrivedBytes+len(d.data) > socketBuffer {
		return
	}
	c.arrived = append(c.arrived, d)
	c.arrivedBytes += len(d.data)
	c.readable.Signal()
}

// ReadFrom implements net.PacketConn. If p is too short, the rest of the datagram is
// lost.
func (c *packetConn) ReadFrom(p []byte) (int, net.Addr, error) {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, nil, c.opError("read", nil, net.ErrClosed)
		case c.readDeadline.passed:
			return 0, nil, c.opError("read", nil, os.ErrDeadlineExceeded)
		case len(c.arrived) > 0:
			d := c.arrived[0]
			c.arrived[0] = datagram{}
			c.arrived = c.arrived[1:]
			c.arrivedBytes -= len(d.data)
			return copy(p, d.data), net.UDPAddrFromAddrPort(d.from), nil
		}
		c.readable.Wait()
	}
}

// Close implements net.PacketConn.
func (c *packetConn) Close() error {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	if c.closed {
		return c.opError("close", nil, net.ErrClosed)
	}
	c.close()
	return nil
}

func (c *packetConn) close() {
	c.closed = true
	c.arrived = nil
	c.network.clock.setDeadline(&c.readDeadline, time.Time{}, nil)
	c.network.clock.setDeadline(&c.writeDeadline, time.Time{}, nil)
	delete(c.host.sockets, int(c.addr.Port()))
	c.readable.Broadcast()
}

// LocalAddr implements net.PacketConn.
func (c *packetConn) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(c.addr) }

// SetDeadline implements net.PacketConn.
func (c *packetConn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.PacketConn.
func (c *packetConn) SetReadDeadline(t time.Time) error {
	return c.setDeadline(&c.readDeadline, t)
}

// SetWriteDeadline implements net.PacketConn.
func (c *packetConn) SetWriteDeadline(t time.Time) error {
	return c.setDeadline(&c.writeDeadline, t)
}

func (c *packetConn) setDeadline(d *deadline, t time.Time) error {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	if c.closed {
		return c.opError("set", nil, net.ErrClosed)
	}
	c.network.clock.setDeadline(d, t, c.readable.Broadcast)
	return nil
}

// SetReadBuffer does nothing. quic-go expects it of a UDP socket.
func (c *packetConn) SetReadBuffer(int) error { return nil }

// SetWriteBuffer does nothing. quic-go expects it of a UDP socket.
func (c *packetConn) SetWriteBuffer(int) error { return nil }

func (c *packetConn) opError(op string, remote net.Addr, err error) error {
	return &net.OpError{Op: op, Net: "udp", Source: c.LocalAddr(), Addr: remote, Err: err}
}
