// Package testpeer makes peers for the tests of transports: certificates of a cluster, and peers
// in processes of their own.
//
// Most tests call [NewCA], and [CA.Node] for each peer. Tests that kill a peer call
// [StartChild], which runs the test binary again; TestMain of the child calls [ReadOrders]
// and [Serve].
//
// An error fails the test, or ends the child with exit code 1. Functions may be called
// concurrently, except that those with a testing.TB must run on the goroutine of the test.
package testpeer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nexar-go/nexar/transport"
)

const (
	// ALPN is the protocol of peers, and JoinALPN the protocol of clients without
	// certificates.
	ALPN     = "nexar-test"
	JoinALPN = "nexar-test-join"
)

// A CA signs the certificates of a cluster.
type CA struct {
	Cert *x509.Certificate
	Pool *x509.CertPool // of Cert
	key  *ecdsa.PrivateKey
}

// NewCA returns the CA of a new cluster.
func NewCA(tb testing.TB) *CA {
	tb.Helper()
	ca := &CA{key: NewKey(tb), Pool: x509.NewCertPool()}
	ca.Cert = ca.sign(tb, &x509.Certificate{
		Subject:               pkix.Name{CommonName: "test cluster"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}, nil, &ca.key.PublicKey)
	ca.Pool.AddCert(ca.Cert)
	return ca
}

// NewKey makes an ECDSA key on P-256, like the keys of nodes.
func NewKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func (ca *CA) sign(tb testing.TB, template, parent *x509.Certificate, key *ecdsa.PublicKey) *x509.Certificate {
	tb.Helper()
	if template.NotBefore.IsZero() {
		template.NotBefore = time.Now().Add(-2 * time.Hour)
	}
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
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

// Node makes the credentials of a node with the given name.
func (ca *CA) Node(tb testing.TB, name string) *Creds {
	tb.Helper()
	return ca.Certify(tb, name, NewKey(tb))
}

// Certify makes the credentials of a node with the given name and key.
func (ca *CA) Certify(tb testing.TB, name string, key *ecdsa.PrivateKey) *Creds {
	tb.Helper()
	leaf := ca.sign(tb, &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		DNSNames:    []string{name},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, ca.Cert, &key.PublicKey)
	return newCreds(ca.Pool, leaf, key)
}

// Creds implement quic.Credentials. The identity of a node is the common name of its
// certificate.
type Creds struct {
	Pool *x509.CertPool // trusted CAs
	Cert tls.Certificate
}

func newCreds(pool *x509.CertPool, leaf *x509.Certificate, key *ecdsa.PrivateKey) *Creds {
	return &Creds{Pool: pool, Cert: tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}}
}

// Name returns the identity.
func (c *Creds) Name() string { return c.Cert.Leaf.Subject.CommonName }

// Base returns a configuration that does not verify the peer.
func (c *Creds) Base() *tls.Config {
	return &tls.Config{
		MinVersion:       tls.VersionTLS13,
		Certificates:     []tls.Certificate{c.Cert},
		NextProtos:       []string{ALPN},
		CurvePreferences: []tls.CurveID{tls.X25519},
	}
}

// Server returns the configuration of a server: clients with ALPN need a certificate of the
// cluster, clients with JoinALPN need none.
func (c *Creds) Server() *tls.Config {
	member := c.Base()
	member.ClientAuth = tls.RequireAndVerifyClientCert
	member.ClientCAs = c.Pool
	joiner := c.Base()
	joiner.NextProtos = []string{JoinALPN}
	member.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if slices.Contains(hello.SupportedProtos, JoinALPN) {
			return joiner, nil
		}
		return nil, nil
	}
	return member
}

// Client returns the configuration of a client of the node peer, or of any node of the cluster if
// peer is empty.
func (c *Creds) Client(peer string) *tls.Config {
	conf := c.Base()
	// VerifyConnection verifies the chain: the common name is not a host name.
	conf.InsecureSkipVerify = true
	conf.VerifyConnection = func(state tls.ConnectionState) error {
		got, err := c.Peer(state)
		if err == nil {
			_, err = state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: c.Pool})
		}
		if err == nil && peer != "" && got != peer {
			err = fmt.Errorf("the server is %q, not %q", got, peer)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", transport.ErrIdentity, err)
		}
		return nil
	}
	return conf
}

// Peer returns the identity of the other side, or "" for a client without a certificate.
func (c *Creds) Peer(state tls.ConnectionState) (string, error) {
	if state.NegotiatedProtocol == JoinALPN {
		return "", nil
	}
	if len(state.PeerCertificates) == 0 {
		return "", errors.New("no certificate")
	}
	return state.PeerCertificates[0].Subject.CommonName, nil
}
