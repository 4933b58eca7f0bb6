package pki

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// A side is the result of a handshake for one of the two sides.
type side struct {
	state tls.ConnectionState
	err   error
}

// handshake connects two TLS configurations over loopback. In TLS 1.3 a
// client is done before the server has seen its certificate, so both sides
// also exchange a byte.
func handshake(t testing.TB, server, client *tls.Config) (side, side) {
	t.Helper()
	a, b := pair(t)
	defer a.Close()
	defer b.Close()
	done := make(chan side, 1)
	go func() { done <- run(tls.Server(a, server)) }()
	c := run(tls.Client(b, client))
	if c.err != nil {
		b.Close()
	}
	return <-done, c
}

func run(c *tls.Conn) side {
	c.SetDeadline(time.Now().Add(20 * time.Second))
	err := c.Handshake()
	if err == nil {
		_, err = c.Write([]byte{1})
	}
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	return side{c.ConnectionState(), err}
}

func pair(t testing.TB) (net.Conn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	a, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return a, b
}

func TestHandshake(t *testing.T) {
	a := newAuthority(t)
	x, y := newIdentity(t, a), newIdentity(t, a)
	for _, peer := range []string{"", x.ID().String()} {
		server, client := handshake(t, x.Server(), y.Client(peer))
		if server.err != nil || client.err != nil {
			t.Fatalf("peer %q: errors %v and %v", peer, server.err, client.err)
		}
		if got, err := x.Peer(server.state); got != y.ID().String() || err != nil {
			t.Errorf("server takes its peer for %q (%v), want %v", got, err, y.ID())
		}
		if got, err := y.Peer(client.state); got != x.ID().String() || err != nil {
			t.Errorf("client takes its peer for %q (%v), want %v", got, err, x.ID())
		}
		if server.state.DidResume || client.state.NegotiatedProtocol != NodeProtocol || client.state.CurveID != tls.X25519 {
			t.Errorf("resumed %v, protocol %q, curve %v", server.state.DidResume, client.state.NegotiatedProtocol, client.state.CurveID)
		}
	}
}

func TestDialReachesAnotherNode(t *testing.T) {
	a := newAuthority(t)
	x, y, z := newIdentity(t, a), newIdentity(t, a), newIdentity(t, a)
	for _, peer := range []string{z.ID().String(), "nobody", strings.ToUpper(x.ID().String())} {
		_, client := handshake(t, x.Server(), y.Client(peer))
		if !errors.Is(client.err, transport.ErrIdentity) || !strings.Contains(client.err.Error(), "expected node "+peer+", reached node "+x.ID().String()) {
			t.Errorf("asked for %s: error %v", peer, client.err)
		}
	}
}

func TestClientWithoutCertificate(t *testing.T) {
	x := newIdentity(t, newAuthority(t))
	client := baseConfig(NodeProtocol)
	client.InsecureSkipVerify = true
	server, _ := handshake(t, x.Server(), client)
	if server.err == nil || !strings.Contains(server.err.Error(), "certificate") {
		t.Errorf("error %v, want that there is no certificate", server.err)
	}
}

func TestOtherProtocolsAndVersions(t *testing.T) {
	a := newAuthority(t)
	x, y := newIdentity(t, a), newIdentity(t, a)
	for name, change := range map[string]func(*tls.Config){
		"no protocol":    func(c *tls.Config) { c.NextProtos = nil },
		"joining":        func(c *tls.Config) { c.NextProtos = []string{JoinProtocol} },
		"other protocol": func(c *tls.Config) { c.NextProtos = []string{"h3"} },
		"TLS 1.2":        func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12 },
	} {
		client := y.Client("")
		client.VerifyConnection = nil
		change(client)
		if server, _ := handshake(t, x.Server(), client); server.err == nil {
			t.Errorf("client with %s: accepted", name)
		}
		server := y.Server()
		server.VerifyConnection = nil
		change(server)
		if _, client := handshake(t, server, x.Client("")); client.err == nil {
			t.Errorf("server with %s: accepted", name)
		}
	}
}

func TestReplace(t *testing.T) {
	a := newAuthority(t)
	x, y := newIdentity(t, a), newIdentity(t, a)
	server, client := x.Server(), y.Client(x.ID().String()) // made before the renewal
	x.now = func() time.Time { return time.Now().Add(CertificateLife / 2) }

	csr, err := x.Request()
	if err != nil {
		t.Fatal(err)
	}
	renewed, id, err := a.Sign(csr, 2*CertificateLife)
	if err != nil {
		t.Fatal(err)
	}
	if id != x.ID() {
		t.Errorf("renewed, node %v becomes node %v", x.ID(), id)
	}
	if err := x.Replace(renewed); err != nil {
		t.Fatal(err)
	}
	if left := time.Until(x.NotAfter()); left < CertificateLife {
		t.Errorf("certificate in use is valid for %v, want that of the new one", left)
	}
	s, c := handshake(t, server, client)
	if s.err != nil || c.err != nil {
		t.Fatalf("errors %v and %v", s.err, c.err)
	}
	if got := c.state.PeerCertificates[0]; !got.Equal(mustParse(t, renewed)) {
		t.Error("a configuration made before the renewal shows the old certificate")
	}
}

func TestReplaceRefuses(t *testing.T) {
	a := newAuthority(t)
	x, y := newIdentity(t, a), newIdentity(t, a)
	foreign, _, err := newAuthority(t).Sign(request(t, x.key), 0)
	if err != nil {
		t.Fatal(err)
	}
	short, _, err := a.Sign(request(t, x.key), time.Nanosecond)
	if err != nil {
		t.Fatal(err)
	}
	for name, cert := range map[string][]byte{
		"garbage":          []byte("certificate"),
		"of another node":  y.current.Load().Certificate[0],
		"of another CA":    foreign,
		"expired long ago": short,
	} {
		if name == "expired long ago" {
			x.now = func() time.Time { return time.Now().Add(time.Minute) }
		}
		if err := x.Replace(cert); err == nil {
			t.Errorf("certificate %s: accepted", name)
		}
		x.now = time.Now
	}
	if _, c := handshake(t, x.Server(), y.Client(x.ID().String())); c.err != nil {
		t.Errorf("after refused renewals: %v", c.err)
	}
}

// A clock that is up to ten minutes behind that of the seed, or hours ahead of it, works. The error of another one names both clocks.
func TestClocksApart(t *testing.T) {
	a, k := newAuthority(t), newKey(t)
	cert, _, err := a.Sign(request(t, k), 0)
	if err != nil {
		t.Fatal(err)
	}
	x, err := NewIdentity(k, cert, a.Certificate())
	if err != nil {
		t.Fatal(err)
	}
	for apart, works := range map[time.Duration]bool{-9 * time.Minute: true, 10 * time.Minute: true, 3 * time.Hour: true, -11 * time.Minute: false, CertificateLife + time.Minute: false} {
		x.now = func() time.Time { return time.Now().Add(apart) }
		err := x.Replace(cert)
		if works && err != nil || !works && (err == nil || !strings.Contains(err.Error(), "the clocks of this host and of the seed must not differ by more than 10m0s, set both by NTP")) {
			t.Errorf("%v apart: error %v, want success: %v", apart, err, works)
		}
	}
}

func TestNewIdentityRefuses(t *testing.T) {
	a := newAuthority(t)
	key := newKey(t)
	cert, _, err := a.Sign(request(t, key), 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, try := range map[string]struct {
		key      *Key
		cert, ca []byte
	}{
		"key of another node": {newKey(t), cert, a.Certificate()},
		"another CA":          {key, cert, newAuthority(t).Certificate()},
		"a node as CA":        {key, cert, cert},
		"garbage as CA":       {key, cert, []byte("CA")},
	} {
		if _, err := NewIdentity(try.key, try.cert, try.ca); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func BenchmarkHandshake(b *testing.B) {
	a := newAuthority(b)
	for name, fresh := range map[string]bool{"new peer": true, "known peer": false} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			x, y := newIdentity(b, a), newIdentity(b, a)
			for b.Loop() {
				if fresh {
					clear(x.peers.seen)
					clear(y.peers.seen)
				}
				if s, c := handshake(b, x.Server(), y.Client(x.ID().String())); s.err != nil || c.err != nil {
					b.Fatal(s.err, c.err)
				}
			}
		})
	}
}
