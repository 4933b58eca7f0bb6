package tcp

import (
	"errors"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/internal/testpeer"
	"github.com/nexar-go/nexar/transport"
)

// dropAll has the kernel drop all packets that arrive for a socket.
func dropAll(t *testing.T, raw syscall.RawConn) {
	t.Helper()
	nothing := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	raw.Control(func(fd uintptr) {
		err := unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing[0]})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// TestStall checks that a conn ends on both sides if no packet of a pipe arrives any more at its receiver, or at its sender, which
// gets no acknowledgement, and if only its end is lost.
func TestStall(t *testing.T) {
	for name, test := range map[string]struct {
		drop func(t *testing.T, s *sender, r *receiver)
		use  func(s *sender)
	}{
		"bytes are lost":            {func(t *testing.T, _ *sender, r *receiver) { dropAll(t, r.ps.raw) }, func(s *sender) { s.Write([]byte("lost")) }},
		"acknowledgements are lost": {func(t *testing.T, s *sender, _ *receiver) { dropAll(t, s.ps.raw) }, func(s *sender) { s.Write([]byte("lost")) }},
		"much is lost":              {func(t *testing.T, _ *sender, r *receiver) { dropAll(t, r.ps.raw) }, func(s *sender) { s.Write(make([]byte, 64<<20)) }},
		"the end is lost":           {func(t *testing.T, _ *sender, r *receiver) { dropAll(t, r.ps.raw) }, func(s *sender) { s.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			eachVariant(t, func(t *testing.T, cfg Config) {
				t.Parallel()
				nodes := newTestNodes(t, 2, cfg)
				from, to := connect(t, nodes[0], nodes[1])
				s, r := pipeBetween(t, from, to)
				test.drop(t, s, r)
				test.use(s)
				awaitEnd(t, from, transport.ErrPeerGone)
				awaitEnd(t, to, transport.ErrPeerGone)
				if err := from.Err(); !strings.Contains(err.Error(), "the socket of pipe 0 has stalled") {
					t.Errorf("the conn has ended: %v, want the stall of pipe 0 as the reason", err)
				}
			})
		})
	}
}

// TestControlSocketStalls checks that a conn ends if messages do not arrive.
func TestControlSocketStalls(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{})
	from, to := connect(t, nodes[0], nodes[1])
	raw, err := to.sock.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	dropAll(t, raw)
	from.send(message{kind: msgDrop, pipe: 77}) // of a pipe that the peer does not know
	awaitEnd(t, from, transport.ErrPeerGone)
	if err := from.Err(); !strings.Contains(err.Error(), "the control socket has stalled") {
		t.Errorf("the conn has ended: %v, want the stall of the control socket as the reason", err)
	}
}

// A droppingListener drops all packets for the next sockets that it accepts.
type droppingListener struct {
	net.Listener
	t     *testing.T
	drops atomic.Int64 // number of sockets
}

func (l *droppingListener) Accept() (net.Conn, error) {
	sock, err := l.Listener.Accept()
	if err == nil && l.drops.Add(-1) >= 0 {
		raw, err := sock.(*net.TCPConn).SyscallConn()
		if err != nil {
			return nil, err
		}
		dropAll(l.t, raw)
	}
	return sock, err
}

// TestStalledHandshake checks that a conn ends if the handshake of a pipe stalls, whichever side opens it, and with it the call.
func TestStalledHandshake(t *testing.T) {
	eachVariant(t, func(t *testing.T, cfg Config) {
		for name, dials := range map[string]bool{"opened by the dialer": true, "opened by the other side": false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ca := newTestCA(t)
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				cfg := cfg
				dropping := &droppingListener{Listener: l, t: t}
				cfg.Listener, cfg.HandshakeTimeout = dropping, time.Minute
				server := newTestNode(t, cfg, ca.node(t, "server"))
				client := newTestNode(t, Config{Addr: "127.0.0.1:0", Plain: cfg.Plain, HandshakeTimeout: time.Minute}, ca.node(t, "client"))
				opener, other := connect(t, client, server)
				if !dials {
					opener, other = other, opener
				}
				dropping.drops.Store(1)
				if _, err := opener.OpenPipe(t.Context()); !errors.Is(err, transport.ErrPeerGone) {
					t.Errorf("OpenPipe: %v, want %v", err, transport.ErrPeerGone)
				}
				awaitEnd(t, opener, transport.ErrPeerGone)
				awaitEnd(t, other, transport.ErrPeerGone)
				if a, b := opener.Err().Error(), other.Err().Error(); !strings.Contains(a+b, "the socket of pipe") {
					t.Errorf("the conn has ended: %s, and %s, want the stall of the socket as the reason", a, b)
				}
			})
		}
	})
}

// TestReaderThatDoesNotRead checks that a pipe that is not read does not stall, however short its writes are, and that all bytes
// arrive in the end.
func TestReaderThatDoesNotRead(t *testing.T) {
	for name, length := range map[string]int{"long": 100_000, "short": 1} {
		t.Run(name, func(t *testing.T) {
			eachVariant(t, func(t *testing.T, cfg Config) {
				t.Parallel()
				nodes := newTestNodes(t, 2, cfg)
				from, to := connect(t, nodes[0], nodes[1])
				s, r := pipeBetween(t, from, to)
				r.ps.socket.(interface{ SetReadBuffer(bytes int) error }).SetReadBuffer(64 << 10)
				next := counting()
				taken, b := 0, next(length)
				for until := time.Now().Add(8 * monitorInterval); time.Now().Before(until); {
					s.SetWriteDeadline(until)
					n, err := s.Write(b)
					if taken += n; err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Fatalf("Write: %v", err)
					}
				}
				if err := from.Err(); err != nil {
					t.Fatalf("the conn has ended: %v", err)
				}
				r.SetReadDeadline(time.Now().Add(soon))
				if n, err := r.ReadFunc(taken, func([]byte) {}); n != taken || err != nil {
					t.Errorf("read %d bytes of %d, %v; the writer: %v", n, taken, err, from.Err())
				}
			})
		})
	}
}

// TestStoppedPeer checks that a stopped process is alive, also while bytes wait for it: it goes on where it was.
func TestStoppedPeer(t *testing.T) {
	eachPeer(t, func(t *testing.T, c transport.Conn, peer *testpeer.Child) {
		t.Parallel()
		s, r := openEcho(t, c)
		if err := peer.Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		s.SetWriteDeadline(time.Now().Add(8 * monitorInterval))
		taken, err := s.Write(make([]byte, 64<<20))
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("wrote %d bytes, %v, want the deadline", taken, err)
		}
		if err := peer.Cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		r.SetReadDeadline(time.Now().Add(soon))
		if n, err := r.ReadFunc(taken, func([]byte) {}); n != taken || err != nil {
			t.Errorf("read %d bytes of %d, %v", n, taken, err)
		}
	})
}

// TestRoundTripAfterHandshake: a packet that the handshake has lost does not count as a long round trip, which would let a stall last
// for 3 s.
func TestRoundTripAfterHandshake(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		dropAll(t, raw)
		time.AfterFunc(500*time.Millisecond, func() {
			raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0) })
		})
		return nil
	}}
	sock, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	raw, err := sock.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	read := make([]byte, 1)
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	if _, err := sock.Write(read); err != nil {
		t.Fatal(err)
	}
	if _, err := accepted.Read(read); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an acknowledgement", func() bool { p, _ := sampleSocket(raw); return p.queued == 0 })
	var info *unix.TCPInfo
	raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the smoothed round trip is %d µs, the shortest %d µs, %d segments are delivered", info.Rtt, info.Min_rtt, info.Delivered)
	p, ok := sampleSocket(raw)
	if limit := stallMin / stallRTTs; !ok || p.smoothRTT > limit {
		t.Errorf("a round trip of %v (sampled: %t), want at most %v", p.smoothRTT, ok, limit)
	}
}
