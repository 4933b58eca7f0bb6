package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/host"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/testhost"
	"github.com/nexar-go/nexar/internal/testlog"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/mem"
	"github.com/nexar-go/nexar/transport/quic"
)

// TestEnvHasPeerTimeout: a factory learns the heartbeat timeout of the node.
func TestEnvHasPeerTimeout(t *testing.T) {
	s := &sockets{use: Transports{PeerTimeout: 7 * time.Second}}
	if got := s.env("", "", "", pki.Joining{}).PeerTimeout; got != 7*time.Second {
		t.Errorf("PeerTimeout is %v, want 7s", got)
	}
}

// TestNameOfFactory: a transport with another name than its factory is refused and closed.
func TestNameOfFactory(t *testing.T) {
	inner, err := mem.NewNetwork().Listen("a")
	if err != nil {
		t.Fatal(err)
	}
	f := transport.Factory{Name: "own", Listen: func(context.Context, transport.Env) (transport.Transport, error) { return inner, nil }}
	if _, err := start(t.Context(), f, transport.Env{}); err == nil || !strings.Contains(err.Error(), `name "mem": want "own"`) {
		t.Errorf("error %v, want one with both names", err)
	}
	if _, err := inner.Accept(t.Context()); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Accept returns %v, want ErrClosed", err)
	}
	f.Name = "mem"
	if got, err := start(t.Context(), f, transport.Env{}); got != inner || err != nil {
		t.Errorf("got %v, %v, want the transport", got, err)
	}
}

// form forms a world of nodes with these transports, each at the seed's address, and
// returns the paths of rank 0 to the others, and the log.
func form(t *testing.T, seedUse Transports, seedAddr func(string) string, uses ...Transports) (paths []string, logs string) {
	t.Helper()
	var log testlog.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	seed, err := StartSeed(SeedConfig{Listen: "127.0.0.1:0", Transports: seedUse, World: len(uses), Log: logger})
	if err != nil {
		t.Fatal(err)
	}
	defer seed.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	nodes, errs := make([]*Node, len(uses)), make([]error, len(uses))
	var joining sync.WaitGroup
	for rank, use := range uses {
		joining.Go(func() {
			nodes[rank], errs[rank] = Join(ctx, Config{
				Seeds: []string{seedAddr(seed.Addr())}, Listen: "127.0.0.1:0", Transports: use, Log: logger,
				Request: client.Request{Token: pki.Token{}, Rank: &rank, Host: host.ID(), Name: "test", Log: logger},
			})
		})
	}
	joining.Wait()
	for rank, n := range nodes {
		if errs[rank] != nil {
			t.Errorf("rank %d: %v", rank, errs[rank])
			continue
		}
		defer n.Close()
	}
	if t.Failed() {
		t.Log(log.String())
		t.FailNow()
	}
	for _, i := range nodes[0].Mesh.Paths(nodes[0].View) {
		paths = append(paths, i.Transport+" "+i.BulkTransport)
	}
	return paths, log.String()
}

// A transport that cannot be used is logged with the transports that are used instead: as a
// warning, unless the operating system has no such transport.
func TestUnavailableTransportIsLogged(t *testing.T) {
	var log testlog.Buffer
	s := &sockets{use: Transports{Names: BuiltIn()}, log: slog.New(slog.NewTextHandler(&log, nil))}
	s.noteUnavailable("shm", errors.New("shm: no memory"))
	s.noteUnavailable("tcp", fmt.Errorf("tcp: %w", errors.ErrUnsupported))
	for _, want := range []string{
		`level=WARN msg="a transport cannot be used" transport=shm reason="shm: no memory" instead="tcp, quic"`,
		`level=INFO msg="a transport cannot be used" transport=tcp reason="tcp: unsupported operation" instead=quic`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log %q does not contain %q", log.String(), want)
		}
	}
	length := len(log.String())
	s.noteUnavailable("shm", errors.New("shm: no memory"))
	if more := log.String()[length:]; more != "" {
		t.Errorf("the same reason was logged again: %q", more)
	}
	if want := "shm: no memory"; len(s.unavailable) != 2 || s.unavailable[0] != want {
		t.Errorf("unavailable %q, want %q first of two", s.unavailable, want)
	}
}

func same(addr string) string { return addr }

func names(list ...string) Transports { return Transports{Names: list} }

// TestTCPOnly: a world forms over TCP alone, without a UDP socket; and a node that has
// QUIC is linked over TCP to one that lacks it.
func TestTCPOnly(t *testing.T) {
	tcpOnly, all := names("tcp"), names("tcp", "quic")
	for name, test := range map[string]struct {
		seed Transports
		uses []Transports
		want string
	}{
		"no UDP at all":         {tcpOnly, []Transports{tcpOnly, tcpOnly, tcpOnly}, "tcp+tls tcp+tls, tcp+tls tcp+tls"},
		"the dialer has QUIC":   {all, []Transports{tcpOnly, all}, "tcp+tls tcp+tls"},
		"the acceptor has QUIC": {all, []Transports{all, tcpOnly}, "tcp+tls tcp+tls"},
		"both have QUIC":        {all, []Transports{all, all}, "quic tcp+tls"},
	} {
		t.Run(name, func(t *testing.T) {
			paths, _ := form(t, test.seed, same, test.uses...)
			if got := strings.Join(paths, ", "); got != test.want {
				t.Errorf("rank 0 reaches the others by %s, want %s", got, test.want)
			}
		})
	}
}

// TestNoUDPSocket: with TCP alone no UDP socket is opened.
func TestNoUDPSocket(t *testing.T) {
	s, err := openSockets(t.Context(), testhost.FreePort(t), nil, names("tcp"), quic.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if s.endpoint != nil || s.listensTo(quicName) || !s.listensTo(tcpName) || s.port == nil {
		t.Errorf("with TCP alone there is a UDP socket, or no TCP port: %+v", s)
	}
	udp, err := net.ListenPacket("udp", s.addr)
	if err != nil {
		t.Fatalf("the UDP port is taken: %v", err)
	}
	udp.Close()
}

// TestUDPFiltered: a node that gets no answer to UDP packets joins over TCP, continues without
// QUIC, and logs that.
func TestUDPFiltered(t *testing.T) {
	all := names("tcp", "quic")
	swallow := func(addr string) string {
		// A seed with a UDP socket that is never read.
		tcp, err := net.Listen("tcp", testhost.FreePort(t))
		if err != nil {
			t.Fatal(err)
		}
		udp, err := net.ListenPacket("udp", tcp.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tcp.Close(); udp.Close() })
		go func() {
			for {
				c, err := tcp.Accept()
				if err != nil {
					return
				}
				go proxy(c, addr)
			}
		}()
		return tcp.Addr().String()
	}
	paths, logs := form(t, all, swallow, all, all)
	if got := strings.Join(paths, ", "); got != "tcp+tls tcp+tls" {
		t.Errorf("rank 0 reaches rank 1 by %s, want TCP alone", got)
	}
	if !strings.Contains(logs, "UDP does not pass to the seed") {
		t.Errorf("no message in the log:\n%s", logs)
	}
}

// proxy connects a socket to an address until either side ends.
func proxy(a net.Conn, addr string) {
	b, err := net.Dial("tcp", addr)
	if err != nil {
		a.Close()
		return
	}
	var both sync.WaitGroup
	pass := func(to, from net.Conn) {
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			if n > 0 {
				to.Write(buf[:n])
			}
			if err != nil {
				break
			}
		}
		to.Close()
		from.Close()
	}
	both.Go(func() { pass(a, b) })
	both.Go(func() { pass(b, a) })
	both.Wait()
}
