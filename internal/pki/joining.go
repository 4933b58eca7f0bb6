package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"time"
)

// JoinProtocol is the protocol (ALPN) of conns between a joining node and the seed.
const JoinProtocol = "nexar-join/1"

// Joining are the credentials of conns for joining. A joining node has no certificate and does
// not know the CA, so by default TLS authenticates neither side. Both sides authenticate each other by
// proofs of the token that are bound to the TLS session ([Token.Proof]), before they exchange
// anything else.
//
// With Roots, the side that dials also verifies the certificate of the seed.
//
// A Joining that is not from [Authority.Joining] can only dial.
type Joining struct {
	Roots *Roots // CAs of the user; nil: any seed
	cert  *tls.Certificate
}

// Joining returns the credentials for accepting joining nodes.
func (a *Authority) Joining() (Joining, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Joining{}, fmt.Errorf("making the key of the seed: %w", err)
	}
	// It contains no node and is not valid for conns between nodes.
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: seedName(a.Cluster())},
		NotBefore:             time.Now().Add(-skew),
		NotAfter:              a.cert.NotAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
	}
	der, err := a.sign(template, &key.PublicKey)
	if err != nil {
		return Joining{}, fmt.Errorf("making the certificate of the seed: %w", err)
	}
	chain := [][]byte{der}
	if a.issuer != nil {
		chain = append(chain, a.cert.Raw) // for Roots
	}
	return Joining{cert: &tls.Certificate{Certificate: chain, PrivateKey: key}}, nil
}

// Server returns the TLS configuration of a seed, or nil for a Joining that can only dial.
func (j Joining) Server() *tls.Config {
	if j.cert == nil {
		return nil
	}
	c := baseConfig(JoinProtocol)
	c.Certificates = []tls.Certificate{*j.cert}
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
