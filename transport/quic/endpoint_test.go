package quic

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/testhost"
	"github.com/nexar-go/nexar/internal/testpeer"
	"github.com/nexar-go/nexar/transport"
)

// silentPort returns the address of a UDP socket that never answers.
func silentPort(t *testing.T) string {
	t.Helper()
	mute, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mute.Close() })
	return mute.LocalAddr().String()
}

// TestAddresses checks that a node that listens at all addresses is reached by name, IPv4
// and IPv6, and that the addresses of its clients are in plain form.
func TestAddresses(t *testing.T) {
	t.Parallel()
	ca := testpeer.NewCA(t)
	server := newTestNode(t, Config{Addr: ":0"}, ca.Node(t, "server"))
	client := newTestNode(t, Config{Addr: ":0"}, ca.Node(t, "client"))
	_, port, err := net.SplitHostPort(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	_, clientPort, _ := net.SplitHostPort(client.Addr())
	hosts := map[string]string{"127.0.0.1": "127.0.0.1", "::ffff:127.0.0.1": "127.0.0.1", "localhost": "", "": "127.0.0.1"}
	if sock, err := net.Listen("tcp", "[::1]:0"); err == nil {
		sock.Close()
		hosts["::1"] = "::1"
	}
	for host, want := range hosts {
		t.Run(host, func(t *testing.T) {
			c, err := client.Dial(t.Context(), net.JoinHostPort(host, port), "server")
			if err != nil {
				t.Fatal(err)
			}
			s, err := server.Accept(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if want == "" {
				return
			}
			if got, want := s.RemoteAddr(), net.JoinHostPort(want, clientPort); got != want {
				t.Errorf("the server sees %s, want %s", got, want)
			}
			if got, want := c.RemoteAddr(), net.JoinHostPort(want, port); got != want {
				t.Errorf("the client sees %s, want %s", got, want)
			}
		})
	}
}

func TestResolve(t *testing.T) {
	dual := newTestNode(t, Config{Addr: "[::]:0"}, testpeer.NewCA(t).Node(t, "dual")).end
	four := newTestNode(t, Config{Addr: "127.0.0.1:0"}, testpeer.NewCA(t).Node(t, "four")).end
	for _, test := range []struct {
		end  *Endpoint
		addr string
		want string // or the error for an invalid address
	}{
		{dual, "10.0.0.1:7000", "10.0.0.1:7000"},
		{dual, "[::ffff:10.0.0.1]:7000", "10.0.0.1:7000"},
		{dual, "[fe80::1%eth9]:7000", "[fe80::1%eth9]:7000"},
		{four, "[::1]:7000", "cannot reach"},
		{four, "10.0.0.1", "missing port"},
		{four, "10.0.0.1:port-of-no-service", "unknown port"},
	} {
		got, err := test.end.resolve(t.Context(), test.addr)
		if want, perr := netip.ParseAddrPort(test.want); perr == nil {
			if err != nil || len(got) != 1 || got[0].String() != want.String() {
				t.Errorf("%s resolves to %v, %v, want %v", test.addr, got, err, want)
			}
		} else if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s resolves to %v, %v, want an error with %q", test.addr, got, err, test.want)
		}
	}
}

// TestListen checks that the configured port is used, in UDP and TCP. Without the TCP
// port the node works, and logs that.
func TestListen(t *testing.T) {
	taken, err := net.Listen("tcp", testhost.FreePort(t))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	var log bytes.Buffer
	end, err := Listen(Config{Addr: taken.Addr().String(), Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	if end.Addr() != taken.Addr().String() {
		t.Errorf("listens at %s, want %s", end.Addr(), taken.Addr())
	}
	if end.watch != nil || !strings.Contains(log.String(), "level=INFO") {
		t.Errorf("log without the TCP port: %q", log.String())
	}
	for _, addr := range []string{"127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", end.Addr()} {
		if second, err := Listen(Config{Addr: addr}); err == nil {
			second.Close()
			t.Errorf("listens at %q", addr)
		} else if !strings.Contains(err.Error(), addr) {
			t.Errorf("the error does not name %q: %v", addr, err)
		}
	}
}

// TestUnreachable checks that an unreachable address ends a dial at once, but no
// connection.
func TestUnreachable(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{})
	dialed, accepted := connect(t, nodes[0], nodes[1])
	mute := silentPort(t)
	failed := make(chan error)
	go func() {
		_, err := nodes[0].Dial(t.Context(), mute, "")
		failed <- err
	}()
	reason := error(errnosUnreachable[0])
	wrapped := &net.OpError{Op: "write", Net: "udp", Err: reason}
	dials := &nodes[0].end.dials
	eventually(t, "the dial", func() bool {
		dials.mu.Lock()
		defer dials.mu.Unlock()
		return len(dials.open) == 1
	})
	dials.unreachable(netip.MustParseAddrPort(nodes[1].Addr()), wrapped)
	dials.unreachable(netip.MustParseAddrPort(mute), wrapped)
	if err := <-failed; !errors.Is(err, reason) || !errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("Dial: %v, want ErrPeerGone because of %v", err, reason)
	}
	pipeBetween(t, dialed, accepted)
}

func TestSendErrors(t *testing.T) {
	wrap := func(err error) error { return &net.OpError{Op: "write", Net: "udp", Err: err} }
	for _, errno := range errnosDropped {
		if err := wrap(errno); !dropped(err) || unreachable(err) {
			t.Errorf("%v: dropped %v, unreachable %v", err, dropped(err), unreachable(err))
		}
	}
	for _, errno := range errnosUnreachable {
		if err := wrap(errno); dropped(err) || !unreachable(err) {
			t.Errorf("%v: dropped %v, unreachable %v", err, dropped(err), unreachable(err))
		}
	}
	if err := wrap(net.ErrClosed); dropped(err) || unreachable(err) {
		t.Errorf("%v does not end a connection", err)
	}
}

// A lossyConn is a network that can be cut. To quic-go it is not a UDP socket.
type lossyConn struct {
	net.PacketConn
	cut atomic.Bool
}

func (c *lossyConn) WriteTo(p []byte, addr net.Addr) (int, error) {
	if c.cut.Load() {
		return len(p), nil
	}
	return c.PacketConn.WriteTo(p, addr)
}

func newLossyNode(t *testing.T, cfg Config, creds *testpeer.Creds) (*testNode, *lossyConn) {
	t.Helper()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	lossy := &lossyConn{PacketConn: udp}
	cfg.PacketConn = lossy
	return newTestNode(t, cfg, creds), lossy
}

// TestHeartbeats checks that an idle connection survives a short timeout, and ends when
// the network is cut.
func TestHeartbeats(t *testing.T) {
	t.Parallel()
	ca := testpeer.NewCA(t)
	cfg := Config{Heartbeat: 100 * time.Millisecond, IdleTimeout: 3 * time.Second}
	a, network := newLossyNode(t, cfg, ca.Node(t, "a"))
	b, _ := newLossyNode(t, cfg, ca.Node(t, "b"))
	dialed, accepted := connect(t, a, b)
	time.Sleep(4 * time.Second)
	pipeBetween(t, dialed, accepted)
	network.cut.Store(true)
	for _, c := range []*Conn{dialed, accepted} {
		awaitDone(t, c)
		if err := c.Err(); !errors.Is(err, transport.ErrPeerGone) {
			t.Errorf("Err() = %v, want ErrPeerGone", err)
		}
	}
}

// TestNoHeartbeats checks that a connection without heartbeats sends nothing, and that
// silence does not end it.
func TestNoHeartbeats(t *testing.T) {
	t.Parallel()
	ca := testpeer.NewCA(t)
	var asked atomic.Int32
	cfg := Config{
		Heartbeat: 20 * time.Millisecond, IdleTimeout: 200 * time.Millisecond,
		Heartbeats: func(addr string) bool {
			asked.Add(1)
			_, err := netip.ParseAddrPort(addr)
			return err != nil
		},
	}
	a, _ := newLossyNode(t, cfg, ca.Node(t, "a"))
	b, _ := newLossyNode(t, cfg, ca.Node(t, "b"))
	dialed, accepted := connect(t, a, b)
	pipeBetween(t, dialed, accepted)
	time.Sleep(300 * time.Millisecond)
	before := dialed.qc.ConnectionStats().PacketsSent
	time.Sleep(500 * time.Millisecond)
	if n := dialed.qc.ConnectionStats().PacketsSent - before; n > 10 {
		t.Errorf("%d packets on an idle connection", n)
	}
	pipeBetween(t, dialed, accepted)
	if asked.Load() < 2 {
		t.Errorf("Heartbeats was called %d times, want a call on both sides", asked.Load())
	}
}

// TestPipeHoldsNoBuffer checks that an idle pipe holds no buffer.
func TestPipeHoldsNoBuffer(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{})
	var taken atomic.Int32
	nodes[1].end.scratch.New = func() any {
		taken.Add(1)
		return new([scratchBytes]byte)
	}
	dialed, accepted := connect(t, nodes[0], nodes[1])
	s, r := pipeBetween(t, dialed, accepted)
	const size = 3 * scratchBytes
	read := make(chan error)
	go func() {
		n, err := r.ReadFunc(size, func([]byte) {})
		if n != size && err == nil {
			err = io.ErrShortBuffer
		}
		read <- err
	}()
	time.Sleep(50 * time.Millisecond)
	if n := taken.Load(); n != 0 {
		t.Errorf("an idle pipe holds %d buffers", n)
	}
	if _, err := s.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if err := <-read; err != nil {
		t.Fatal(err)
	}
	if taken.Load() == 0 {
		t.Error("the pipe was read without the buffer that this test counts")
	}
}

// TestIdleMemory limits the memory of an idle connection, both ends together.
func TestIdleMemory(t *testing.T) {
	const limit = 256 << 10
	if heap, stack := idleMemory(t, 50, true); heap > limit {
		t.Errorf("an idle connection keeps %d KiB of heap and %d KiB of stacks, want no more than %d KiB of heap",
			heap>>10, stack>>10, limit>>10)
	}
}
