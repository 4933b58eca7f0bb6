package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
)

// NodeProtocol is the protocol (ALPN) of conns between nodes.
const NodeProtocol = "nexar/1"

// An Identity has the key of a node, its certificate and the certificate of the cluster's CA.
// It is the credentials of every transport over TLS.
//
// Both sides of a conn present a certificate. Each side checks that the CA of its cluster has
// signed the certificate of the other side, and that the certificate contains the cluster and the
// node of its key and is currently valid. While no seed answers, an expired certificate of a member
// is accepted for a while ([Identity.SeedSilent]). The side that dials also checks that the node
// is the requested one. Names and addresses of hosts are not checked. Errors wrap
// transport.ErrIdentity.
type Identity struct {
	key     *Key
	peers   *verifier
	current atomic.Pointer[tls.Certificate]
	now     func() time.Time
}

// NewIdentity makes an identity of a node's key and the certificates of the node and of the CA
// (DER) from the seed. It checks that they match.
func NewIdentity(key *Key, cert, ca []byte) (*Identity, error) {
	root, err := x509.ParseCertificate(ca)
	if err != nil {
		return nil, fmt.Errorf("certificate of the CA: %w", err)
	}
	if err := checkAuthority(root, time.Now()); err != nil {
		return nil, fmt.Errorf("%w", err)
	}
	i := &Identity{key: key, peers: newVerifier(root), now: time.Now}
	if err := i.Replace(cert); err != nil {
		return nil, err
	}
	return i, nil
}

// Replace replaces the certificate by a newer one of the same node. Existing conns stay;
// later handshakes use it.
func (i *Identity) Replace(cert []byte) error {
	parsed, err := x509.ParseCertificate(cert)
	if err != nil {
		return fmt.Errorf("certificate of this node: %w", err)
	}
	if !i.key.private.PublicKey.Equal(parsed.PublicKey) {
		return errors.New("certificate of this node: it is for another key")
	}
	if now := i.now(); checkTime(parsed.NotBefore, parsed.NotAfter, now) != nil {
		// The certificate is new, so the clock of the seed or of this host is wrong.
		return untrusted(fmt.Errorf("certificate of this node: it is valid from %s to %s, by this clock it is %s: "+
			"the clocks of this host and of the seed must not differ by more than %v, set both by NTP",
			parsed.NotBefore.Format(time.RFC3339), parsed.NotAfter.Format(time.RFC3339), now.Format(time.RFC3339), skew))
	}
	if _, err := i.peers.node(parsed, i.now()); err != nil {
		return fmt.Errorf("certificate of this node: %w", err)
	}
	i.current.Store(&tls.Certificate{
		Certificate: [][]byte{cert}, // peers have the certificate of the CA
		PrivateKey:  i.key.private,
		Leaf:        parsed,
	})
	return nil
}

// ID returns the ID of the node.
func (i *Identity) ID() membership.NodeID { return i.key.id }

// Cluster returns the name of the cluster.
func (i *Identity) Cluster() string { return i.peers.cluster }

// Request returns a signing request for the next certificate of the same node.
func (i *Identity) Request() ([]byte, error) { return i.key.Request() }

// NotAfter returns the time at which the current certificate expires.
func (i *Identity) NotAfter() time.Time { return i.current.Load().Leaf.NotAfter }

// Server returns the TLS configuration for accepting conns of any node of the cluster.
func (i *Identity) Server() *tls.Config {
	c := i.config(NodeProtocol)
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return i.current.Load(), nil }
	// The handshake fails without a certificate, or if the peer does not have its
	// key. VerifyConnection checks the certificate itself.
	c.ClientAuth = tls.RequireAnyClientCert
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		_, err := i.peers.connection(cs, i.now())
		return err
	}
	return c
}

// Client returns the TLS configuration for dialing the node with the NodeID peer, as text, or any
// node of the cluster if peer is empty.
func (i *Identity) Client(peer string) *tls.Config {
	c := i.config(NodeProtocol)
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return i.current.Load(), nil }
	// Nodes have no host names to check. VerifyConnection, which runs in every
	// handshake before any data, makes all other checks.
	c.InsecureSkipVerify = true
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		id, err := i.peers.connection(cs, i.now())
		if err != nil {
			return err
		}
		if peer != "" && id.String() != peer {
			return untrusted(fmt.Errorf("expected node %s, reached node %v", peer, id))
		}
		return nil
	}
	return c
}

// CheckSeed verifies that the CA of this node's cluster has signed the certificate of the other side of a TLS session,
// and that it is the certificate of a seed.
func (i *Identity) CheckSeed(cs tls.ConnectionState) error {
	if len(cs.PeerCertificates) == 0 {
		return errors.New("it has no certificate")
	}
	cert := cs.PeerCertificates[0]
	if got, want := cert.Subject.CommonName, seedName(i.Cluster()); got != want {
		return fmt.Errorf("its certificate is that of %q, not that of %q", got, want)
	}
	_, err := cert.Verify(x509.VerifyOptions{Roots: i.peers.roots, CurrentTime: i.now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
}

// Peer returns the authenticated NodeID of the other side of a conn, as text.
func (i *Identity) Peer(cs tls.ConnectionState) (string, error) {
	id, err := i.peers.connection(cs, i.now())
	if err != nil {
		return "", err
	}
	return id.String(), nil
}

func (i *Identity) config(protocol string) *tls.Config {
	c := baseConfig(protocol)
	c.Time = i.now
	return c
}

// baseConfig returns the common part of all TLS configurations of nexar.
func baseConfig(protocol string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{protocol},
		// A full mesh makes n(n-1)/2 handshakes concurrently. X25519 is the fastest exchange.
		// With the hybrid with ML-KEM, the default of Go, the first message does not fit into a
		// packet. It would protect against an attacker that records the traffic and breaks it
		// decades later, which is no threat to intermediate results of a computation.
		CurvePreferences: []tls.CurveID{tls.X25519},
		// Nodes keep their conns and resume no session in a later one. transport/tcp replaces
		// this setting for the sockets within a conn.
		SessionTicketsDisabled: true,
	}
}
