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

// JoinProtocol is the protocol (ALPN) of conns between a node that joins and
// the seed.
const JoinProtocol = "nexar-join/1"

// Joining is the credentials of conns over which nodes join. A node that joins
// knows no CA yet and has no certificate, so neither side can know the other
// by TLS: they have a private channel to someone. Who that is both learn from
// the proofs of the token, which hold for this channel only (Proof), and
// neither says anything else before.
//
// The zero Joining can only dial.
type Joining struct {
	cert *tls.Certificate
}

// Joining returns the credentials with which a seed accepts nodes that join.
func (a *Authority) Joining() (Joining, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Joining{}, fmt.Errorf("making the key of the seed: %w", err)
	}
	// It names no node, and serves neither side of a conn between nodes.
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: "nexar seed of " + a.Cluster()},
		NotBefore:             time.Now().Add(-skew),
		NotAfter:              a.cert.NotAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
	}
	der, err := a.sign(template, &key.PublicKey)
	if err != nil {
		return Joining{}, fmt.Errorf("making the certificate of the seed: %w", err)
	}
	return Joining{&tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}}, nil
}

// Server is the TLS configuration of a seed, nil for the zero Joining.
func (j Joining) Server() *tls.Config {
	if j.cert == nil {
		return nil
	}
	c := baseConfig(JoinProtocol)
	c.Certificates = []tls.Certificate{*j.cert}
	c.VerifyConnection = checkJoin
	return c
}

// Client is the TLS configuration of a node that joins. Seeds have no names
// that a node could ask for, so it ignores peer.
func (j Joining) Client(peer string) *tls.Config {
	c := baseConfig(JoinProtocol)
	// Whoever answers has to prove the token over this channel before the
	// node tells it anything; a certificate would add nothing to that.
	c.InsecureSkipVerify = true
	c.VerifyConnection = checkJoin
	return c
}

// Peer is always empty: TLS tells neither side of a joining conn who the other
// is.
func (j Joining) Peer(cs tls.ConnectionState) (string, error) { return "", checkJoin(cs) }

func checkJoin(cs tls.ConnectionState) error {
	if cs.Version < tls.VersionTLS13 || cs.NegotiatedProtocol != JoinProtocol {
		return untrusted(fmt.Errorf("peer speaks %q over %s, not %q over TLS 1.3",
			cs.NegotiatedProtocol, tls.VersionName(cs.Version), JoinProtocol))
	}
	return nil
}
