package quic

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// A testCA signs the certificates of a cluster.
type testCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newTestCA(tb testing.TB) *testCA {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	ca := &testCA{key: key, pool: x509.NewCertPool()}
	ca.cert = ca.sign(tb, &x509.Certificate{
		Subject:               pkix.Name{CommonName: "test cluster"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}, nil, &key.PublicKey)
	ca.pool.AddCert(ca.cert)
	return ca
}

func (ca *testCA) sign(tb testing.TB, template, parent *x509.Certificate, key *ecdsa.PublicKey) *x509.Certificate {
	tb.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(time.Hour)
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key, ca.key)
	if err != nil {
		tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return cert
}

// node makes the credentials of a node with the given name.
func (ca *testCA) node(tb testing.TB, name string) *testCreds {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	leaf := ca.sign(tb, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		DNSNames:    []string{name},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, ca.cert, &key.PublicKey)
	return &testCreds{
		pool: ca.pool,
		cert: tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf},
	}
}

// testCreds are Credentials whose identity is the common name.
type testCreds struct {
	pool *x509.CertPool
	cert tls.Certificate
}

const (
	testALPN = "nexar-test"
	joinALPN = "nexar-test-join"
)

func (c *testCreds) Server() *tls.Config {
	member := c.base()
	member.ClientAuth = tls.RequireAndVerifyClientCert
	member.ClientCAs = c.pool
	joiner := c.base()
	joiner.NextProtos = []string{joinALPN}
	member.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if len(hello.SupportedProtos) == 1 && hello.SupportedProtos[0] == joinALPN {
			return joiner, nil
		}
		return nil, nil
	}
	return member
}

func (c *testCreds) base() *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{c.cert},
		NextProtos:             []string{testALPN},
		CurvePreferences:       []tls.CurveID{tls.X25519},
		SessionTicketsDisabled: true,
	}
}

func (c *testCreds) Client(peer string) *tls.Config {
	conf := c.base()
	// The chain is verified here, as the name is no host's.
	conf.InsecureSkipVerify = true
	conf.VerifyConnection = func(state tls.ConnectionState) error {
		got, err := c.Peer(state)
		if err != nil {
			return err
		}
		_, err = state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: c.pool})
		if err == nil && peer != "" && got != peer {
			err = fmt.Errorf("the server is %q, not %q", got, peer)
		}
		return err
	}
	return conf
}

func (c *testCreds) Peer(state tls.ConnectionState) (string, error) {
	if state.NegotiatedProtocol == joinALPN {
		return "", nil
	}
	if len(state.PeerCertificates) == 0 {
		return "", errors.New("no certificate")
	}
	return state.PeerCertificates[0].Subject.CommonName, nil
}

// A testNode is an endpoint with a transport. Its Close closes both.
type testNode struct {
	*Transport
	end  *Endpoint
	name string
}

func (n *testNode) Close() error {
	return errors.Join(n.Transport.Close(), n.end.Close())
}

// kill takes the sockets away, as the kernel does from a killed process.
func (n *testNode) kill() {
	if n.end.watch != nil {
		n.end.watch.listener.Close()
	}
	n.end.packets.Close()
}

func newTestNode(tb testing.TB, cfg Config, creds *testCreds) *testNode {
	tb.Helper()
	if cfg.Addr == "" && cfg.PacketConn == nil {
		cfg.Addr = "127.0.0.1:0"
	}
	end, err := Listen(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tr, err := end.Transport(creds)
	if err != nil {
		end.Close()
		tb.Fatal(err)
	}
	n := &testNode{Transport: tr, end: end, name: creds.cert.Leaf.Subject.CommonName}
	tb.Cleanup(func() { n.Close() })
	return n
}

// newTestNodes makes a cluster of nodes with the names n0, n1, …
func newTestNodes(tb testing.TB, n int, cfg Config) []*testNode {
	tb.Helper()
	ca := newTestCA(tb)
	nodes := make([]*testNode, n)
	for i := range nodes {
		nodes[i] = newTestNode(tb, cfg, ca.node(tb, fmt.Sprintf("n%d", i)))
	}
	return nodes
}

// connect dials from a to b and returns both ends.
func connect(tb testing.TB, a, b *testNode) (dialed, accepted *Conn) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 20*time.Second)
	defer cancel()
	c, err := a.Dial(ctx, b.Addr(), b.name)
	if err != nil {
		tb.Fatal(err)
	}
	for {
		s, err := b.Accept(ctx)
		if err != nil {
			tb.Fatal(err)
		}
		if s.Peer() == a.name {
			return c.(*Conn), s.(*Conn)
		}
	}
}

// pipeBetween opens a pipe and carries a byte over it.
func pipeBetween(tb testing.TB, from, to *Conn) (transport.Sender, transport.Receiver) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 20*time.Second)
	defer cancel()
	s, err := from.OpenPipe(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := s.Write([]byte{1}); err != nil {
		tb.Fatal(err)
	}
	r, err := to.AcceptPipe(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	if n, err := r.ReadFunc(1, func([]byte) {}); n != 1 || err != nil {
		tb.Fatalf("first byte: read %d, %v", n, err)
	}
	return s, r
}
