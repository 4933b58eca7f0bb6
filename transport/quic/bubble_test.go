package quic

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go/testutils/simnet"

	"github.com/nexar-go/nexar/internal/testpeer"
	"github.com/nexar-go/nexar/transport"
)

// latency is the time of a packet between two nodes of inBubble.
const latency = 20 * time.Millisecond

// inBubble calls f in fake time, with nodes at the addresses 10.0.0.1:7000, 10.0.0.2:7000 and so on of a
// simulated network.
func inBubble(t *testing.T, names []string, configs []Config, f func(t *testing.T, nodes []*testNode)) {
	synctest.Test(t, func(t *testing.T) {
		network := &simnet.Simnet{Router: &simnet.PerfectRouter{}}
		ca := testpeer.NewCA(t)
		var nodes []*testNode
		for i, cfg := range configs {
			addr := &net.UDPAddr{IP: net.IPv4(10, 0, 0, byte(i+1)).To4(), Port: 7000}
			cfg.PacketConn = network.NewEndpoint(addr, simnet.NodeBiDiLinkSettings{Latency: latency})
			nodes = append(nodes, newTestNode(t, cfg, ca.Node(t, names[i])))
		}
		if err := network.Start(); err != nil {
			t.Fatal(err)
		}
		defer network.Close()
		f(t, nodes)
		for _, n := range nodes {
			n.Close()
		}
	})
}

// TestBubble checks that an endpoint over simulated sockets uses neither the system nor
// its clock, so that whole nodes can be tested in fake time.
func TestBubble(t *testing.T) {
	inBubble(t, []string{"a", "b"}, make([]Config, 2), func(t *testing.T, nodes []*testNode) {
		a, b := nodes[0], nodes[1]
		start := time.Now()
		dialed, accepted := connect(t, a, b)
		if d := time.Since(start); d != 4*latency {
			t.Errorf("connected after %v, want two round trips, %v", d, 4*latency)
		}
		if got := accepted.RemoteAddr(); got != "10.0.0.1:7000" {
			t.Errorf("the peer's address is %s", got)
		}
		time.Sleep(time.Hour) // only heartbeats
		pipeBetween(t, dialed, accepted)
		dialed.Close()
		<-accepted.Done()
		if err := accepted.Err(); !errors.Is(err, transport.ErrPeerClosed) {
			t.Errorf("Err() = %v, want ErrPeerClosed", err)
		}

		start = time.Now()
		if _, err := a.Dial(t.Context(), "10.0.0.3:7000", ""); !errors.Is(err, transport.ErrPeerGone) {
			t.Errorf("Dial: %v, want ErrPeerGone", err)
		}
		if d := time.Since(start); d != 5*time.Second {
			t.Errorf("Dial failed after %v, want 5 s", d)
		}
	})
}

// TestDialWhileClosing: an endpoint closes while it dials, and is told to dial again and again.
func TestDialWhileClosing(t *testing.T) {
	inBubble(t, []string{"a"}, make([]Config, 1), func(t *testing.T, nodes []*testNode) {
		a := nodes[0]
		time.AfterFunc(time.Second, func() { a.Close() })
		for range 10 {
			if _, err := a.Dial(t.Context(), "10.0.0.2:7000", ""); !errors.Is(err, transport.ErrClosed) {
				t.Errorf("Dial: %v, want ErrClosed", err)
			}
		}
	})
}

// A narrowConn silently drops packets that do not fit a link of 1,280 bytes.
type narrowConn struct{ net.PacketConn }

func (c narrowConn) WriteTo(p []byte, addr net.Addr) (int, error) {
	const headers = 40 + 8 // IPv6 and UDP
	if len(p)+headers > 1280 {
		return len(p), nil
	}
	return c.PacketConn.WriteTo(p, addr)
}

// TestNarrowPath checks that nodes connect over a path of 1,280 bytes that drops longer
// packets silently, as tunnels do, and that their data arrives.
func TestNarrowPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &simnet.Simnet{Router: &simnet.PerfectRouter{}}
		socket := func(host byte) net.PacketConn {
			addr := &net.UDPAddr{IP: net.IPv4(10, 0, 0, host).To4(), Port: 7000}
			return narrowConn{network.NewEndpoint(addr, simnet.NodeBiDiLinkSettings{Latency: time.Millisecond})}
		}
		ca := testpeer.NewCA(t)
		a := newTestNode(t, Config{PacketConn: socket(1)}, ca.Node(t, "a"))
		b := newTestNode(t, Config{PacketConn: socket(2)}, ca.Node(t, "b"))
		if err := network.Start(); err != nil {
			t.Fatal(err)
		}
		defer network.Close()
		dialed, accepted := connect(t, a, b)
		s, r := pipeBetween(t, dialed, accepted)
		const size = 1 << 20
		go s.Write(make([]byte, size))
		if n, err := r.ReadFunc(size, func([]byte) {}); n != size || err != nil {
			t.Errorf("read %d bytes, %v, want %d", n, err, size)
		}
		a.Close()
		b.Close()
	})
}
