package tcp

import (
	"crypto/tls"
	"testing"

	"github.com/nexar-go/nexar/transport"
)

// anonymous are credentials without an identity.
type anonymous struct{ Credentials }

func (a anonymous) Server() *tls.Config {
	conf := a.Credentials.Server()
	conf.ClientAuth = tls.NoClientCert
	return conf
}

func (a anonymous) Client(string) *tls.Config {
	conf := a.Credentials.Client("")
	conf.Certificates, conf.GetClientCertificate = nil, nil
	conf.InsecureSkipVerify, conf.VerifyConnection = true, nil
	return conf
}

func (anonymous) Peer(tls.ConnectionState) (string, error) { return "", nil }

// TestAnonymous checks that peers without identities exchange pipes in both directions,
// one of them without a port, and that an authenticated conn is not evicted.
func TestAnonymous(t *testing.T) {
	ca := newTestCA(t)
	seed, err := Listen(Config{Addr: "127.0.0.1:0", Anonymous: true}, anonymous{ca.node(t, "seed")})
	if err != nil {
		t.Fatal(err)
	}
	defer seed.Close()
	node, err := Listen(Config{Anonymous: true, DialOnly: true}, anonymous{ca.node(t, "node")})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	if _, err := node.Accept(t.Context()); err == nil || node.Addr() != "" {
		t.Errorf("a transport without a port accepts at %q, error %v", node.Addr(), err)
	}
	dialed, err := node.Dial(t.Context(), seed.Addr(), "")
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := seed.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := dialed.Peer(); got != seed.Addr() {
		t.Errorf("the seed is %q, want its address %q", got, seed.Addr())
	}
	can := transport.CapabilitiesOf(accepted)
	if can.Authenticator == nil || can.TLSConn == nil || !can.Authenticator.MarkAuthenticated() {
		t.Errorf("the accepted conn has the capabilities %+v, or was evicted", can)
	}
	pipeBetween(t, dialed.(*conn), accepted.(*conn))
	pipeBetween(t, accepted.(*conn), dialed.(*conn))
}

// TestUnprovedIsEvicted checks that an unauthenticated conn makes room for others.
func TestUnprovedIsEvicted(t *testing.T) {
	ca := newTestCA(t)
	seed, err := Listen(Config{Addr: "127.0.0.1:0", Anonymous: true, MaxHandshakes: 1, minAge: 1}, anonymous{ca.node(t, "seed")})
	if err != nil {
		t.Fatal(err)
	}
	defer seed.Close()
	node, err := Listen(Config{Anonymous: true, DialOnly: true}, anonymous{ca.node(t, "node")})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	first, err := node.Dial(t.Context(), seed.Addr(), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := node.Dial(t.Context(), seed.Addr(), ""); err != nil {
		t.Fatal(err)
	}
	<-first.Done()
}
