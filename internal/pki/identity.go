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

// An Identity is what a node needs to prove who it is and to check who others
// are: its key, its certificate and the certificate of the cluster's CA. It is
// the credentials of every transport that is secured by TLS.
//
// Both sides of a conn show a certificate. Each checks that the other's was
// signed by the CA of its own cluster, is valid now, names that cluster, and
// names the node that the key belongs to; the side that dials also checks that
// this is the node it asked for. Names and addresses of hosts play no part.
// Errors wrap transport.ErrIdentity.
type Identity struct {
	key     *Key
	peers   *verifier
	current atomic.Pointer[tls.Certificate]
	now     func() time.Time
}

// NewIdentity puts an identity together from a node's key and what the seed
// has sent: the node's certificate and that of the CA, DER. It checks that
// they belong together.
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

// Replace puts a newer certificate of the same node in the place of the one in
// use. Conns that exist go on, handshakes that begin from now on show it.
func (i *Identity) Replace(cert []byte) error {
	parsed, err := x509.ParseCertificate(cert)
	if err != nil {
		return fmt.Errorf("certificate of this node: %w", err)
	}
	if !i.key.private.PublicKey.Equal(parsed.PublicKey) {
		return errors.New("certificate of this node: it is for another key")
	}
	if now := i.now(); checkTime(parsed.NotBefore, parsed.NotAfter, now) != nil {
		// The seed has just made it, so its clock or this one is wrong.
		return untrusted(fmt.Errorf("certificate of this node: it is valid from %s to %s, by this clock it is %s: "+
			"the clocks of this host and of the seed must not differ by more than %v, set both by NTP",
			parsed.NotBefore.Format(time.RFC3339), parsed.NotAfter.Format(time.RFC3339), now.Format(time.RFC3339), skew))
	}
	if _, err := i.peers.node(parsed, i.now()); err != nil {
		return fmt.Errorf("certificate of this node: %w", err)
	}
	i.current.Store(&tls.Certificate{
		Certificate: [][]byte{cert}, // peers have that of the CA
		PrivateKey:  i.key.private,
		Leaf:        parsed,
	})
	return nil
}

// ID is the node that this is the identity of.
func (i *Identity) ID() membership.NodeID { return i.key.id }

// Cluster is the name of the cluster.
func (i *Identity) Cluster() string { return i.peers.cluster }

// Request is a signing request for the next certificate of the same node.
func (i *Identity) Request() ([]byte, error) { return i.key.Request() }

// NotAfter is when the certificate in use expires.
func (i *Identity) NotAfter() time.Time { return i.current.Load().Leaf.NotAfter }

// Server is the TLS configuration for accepting conns of any node of the
// cluster.
func (i *Identity) Server() *tls.Config {
	c := i.config(NodeProtocol)
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return i.current.Load(), nil }
	// VerifyConnection checks the certificate, here as on the other side;
	// this line makes the handshake fail unless there is one, and unless the
	// peer holds its key.
	c.ClientAuth = tls.RequireAnyClientCert
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		_, err := i.peers.connection(cs, i.now())
		return err
	}
	return c
}

// Client is the TLS configuration for dialing the node whose NodeID, as text,
// is peer. The empty string stands for any node of the cluster.
func (i *Identity) Client(peer string) *tls.Config {
	c := i.config(NodeProtocol)
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return i.current.Load(), nil }
	// This turns off the check of names of hosts, which nodes do not have.
	// Everything else that it turns off is done by VerifyConnection, which
	// runs in every handshake, before any data.
	c.InsecureSkipVerify = true
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		id, err := i.peers.connection(cs, i.now())
		if err != nil {
			return err
		}
		if peer != "" && id.String() != peer {
			return untrusted(fmt.Errorf("asked for node %s, reached node %v", peer, id))
		}
		return nil
	}
	return c
}

// Peer is the NodeID, as text, that the other side of a conn has proved.
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

// baseConfig is what all TLS configurations of nexar share.
func baseConfig(protocol string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{protocol},
		// A full mesh makes n(n-1)/2 handshakes at once. X25519 is the
		// fastest exchange there is; the hybrid with ML-KEM that Go offers
		// by default makes the first message too long for one packet, and
		// guards against recordings being broken decades from now, which is
		// not a danger to intermediate results of a computation.
		CurvePreferences: []tls.CurveID{tls.X25519},
		// Nodes keep their conns, so a ticket would only cost its sending.
		SessionTicketsDisabled: true,
	}
}
