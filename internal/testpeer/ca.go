// Package testpeer makes peers for the tests of transports: with certificates
// of a cluster, and in processes of their own.
//
// Most tests call NewCA, and Node for each peer. Those that kill a peer call
// StartChild; the main function of the test binary, started again as that child,
// then calls ReadOrders and Serve.
//
// Whatever fails fails the test, or ends the child with an exit code of 1. All
// functions may be called by several goroutines, save those that take a
// testing.TB, which are for the goroutine of the test.
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
	"math/big"
	"slices"
	"testing"
	"time"
)

const (
	// ALPN is the protocol of peers, and JoinALPN that of clients without a
	// certificate.
	ALPN     = "nexar-test"
	JoinALPN = "nexar-test-join"
)

// A CA signs the certificates of a cluster.
type CA struct {
	Cert *x509.Certificate
	Pool *x509.CertPool // of Cert
	key  *ecdsa.PrivateKey
}

// NewCA makes a cluster that shares nothing with others.
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

// NewKey makes a key of the kind that nodes have.
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

// Node makes the credentials of a node with the given name.
func (ca *CA) Node(tb testing.TB, name string) *Creds {
	tb.Helper()
	return ca.Certify(tb, name, NewKey(tb))
}

// Certify makes the credentials of a node that has a key.
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

// Creds are the Credentials of package transport/quic. The identity of a node
// is the common name of its certificate.
type Creds struct {
	Pool *x509.CertPool // whom it trusts
	Cert tls.Certificate
}

func newCreds(pool *x509.CertPool, leaf *x509.Certificate, key *ecdsa.PrivateKey) *Creds {
	return &Creds{Pool: pool, Cert: tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}}
}

// Name is the identity.
func (c *Creds) Name() string { return c.Cert.Leaf.Subject.CommonName }

// Base is a configuration that checks nobody.
func (c *Creds) Base() *tls.Config {
	return &tls.Config{
		MinVersion:       tls.VersionTLS13,
		Certificates:     []tls.Certificate{c.Cert},
		NextProtos:       []string{ALPN},
		CurvePreferences: []tls.CurveID{tls.X25519},
	}
}

// Server lets in members, who have a certificate, and joiners, who have none.
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

// Client wants a member of the cluster: peer, or any if that is empty.
func (c *Creds) Client(peer string) *tls.Config {
	conf := c.Base()
	// The chain is verified here, as the name is no host's.
	conf.InsecureSkipVerify = true
	conf.VerifyConnection = func(state tls.ConnectionState) error {
		got, err := c.Peer(state)
		if err != nil {
			return err
		}
		_, err = state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: c.Pool})
		if err == nil && peer != "" && got != peer {
			err = fmt.Errorf("the server is %q, not %q", got, peer)
		}
		return err
	}
	return conf
}

// Peer reads the identity of the other side; a joiner has none.
func (c *Creds) Peer(state tls.ConnectionState) (string, error) {
	if state.NegotiatedProtocol == JoinALPN {
		return "", nil
	}
	if len(state.PeerCertificates) == 0 {
		return "", errors.New("no certificate")
	}
	return state.PeerCertificates[0].Subject.CommonName, nil
}
