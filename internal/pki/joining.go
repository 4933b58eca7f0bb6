package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"sync/atomic"
	"time"
)

// JoinProtocol is the protocol (ALPN) of conns between a joining node and the seed.
const JoinProtocol = "nexar-join/1"

// Joining are the credentials of conns for joining. A joining node has no certificate and does
// not know the CA, so by default TLS authenticates neither side. Both sides authenticate each other by
// proofs of the token that are bound to the TLS session ([Token.Proof]), before they exchange
// anything else.
//
// With Roots, the side that dials also verifies the certificate of the seed. A node that rejoins knows the
// CA of its cluster, and verifies it with [Identity.CheckSeed].
//
// A Joining that is not from [Authority.Joining] can only dial.
type Joining struct {
	Roots *Roots // CAs of the user; nil: any seed
	cert  *atomic.Pointer[tls.Certificate]
}

// Joining returns the credentials for accepting joining nodes.
func (a *Authority) Joining() (Joining, error) {
	j := Joining{cert: new(atomic.Pointer[tls.Certificate])}
	return j, j.Use(a)
}

// Use replaces the certificate for later handshakes by one of another authority: of several seeds, the
// authority of the first leader becomes that of the cluster.
func (j Joining) Use(a *Authority) error {
	cert, err := a.seedCertificate()
	if err == nil {
		j.cert.Store(cert)
	}
	return err
}

// seedCertificate returns a certificate for a new key of a seed.
func (a *Authority) seedCertificate() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of the seed: %w", err)
	}
	// It contains no node and is not valid for conns between nodes.
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: seedName(a.Cluster())},
		NotBefore:             time.Now().Add(-skew),
		NotAfter:              a.cert.NotAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
	}
	der, err := a.sign(template, &key.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("making the certificate of the seed: %w", err)
	}
	chain := [][]byte{der}
	if !bytes.Equal(a.cert.RawIssuer, a.cert.RawSubject) { // signed by a CA of the user
		chain = append(chain, a.cert.Raw) // for Roots
	}
	return &tls.Certificate{Certificate: chain, PrivateKey: key}, nil
}

// Server returns the TLS configuration of a seed, or nil for a Joining that can only dial.
func (j Joining) Server() *tls.Config {
	if j.cert == nil {
		return nil
	}
	c := baseConfig(JoinProtocol)
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return j.cert.Load(), nil }
	c.VerifyConnection = checkJoin
	return c
}

// Client returns the TLS configuration of a joining node. It ignores peer, since seeds have no
// names.
func (j Joining) Client(peer string) *tls.Config {
	c := baseConfig(JoinProtocol)
	// Seeds have no host names to check. VerifyConnection makes all other checks, and the
	// server must prove the token over this session as well.
	c.InsecureSkipVerify = true
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		if err := checkJoin(cs); err != nil {
			return err
		}
		return j.Roots.checkSeed(cs, time.Now())
	}
	return c
}

// Peer returns "": TLS does not authenticate nodes on a conn for joining.
func (j Joining) Peer(cs tls.ConnectionState) (string, error) { return "", checkJoin(cs) }

func checkJoin(cs tls.ConnectionState) error {
	if cs.Version < tls.VersionTLS13 || cs.NegotiatedProtocol != JoinProtocol {
		return untrusted(fmt.Errorf("peer speaks %q over %s, not %q over TLS 1.3",
			cs.NegotiatedProtocol, tls.VersionName(cs.Version), JoinProtocol))
	}
	return nil
}
