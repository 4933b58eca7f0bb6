package pki

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport"
)

// A verifier checks that a certificate belongs to a node of one cluster. Both sides of every
// conn of every transport call node; no other code decides on trust.
type verifier struct {
	cluster string
	roots   *x509.CertPool
	key     *ecdsa.PublicKey // of the CA; nil: it has a key of another type, and no view is accepted

	mu      sync.Mutex
	seen    map[[sha256.Size]byte]leaf
	expired expiryPolicy
}

// A leaf is the result of the verification of a certificate. It depends on the bytes of the
// certificate alone, except for the time, which is checked again at every use. In each
// handshake crypto/tls checks that the peer has the key.
type leaf struct {
	id       membership.NodeID
	from, to time.Time
}

// seenMax is the capacity of the cache of a verifier. A full cache is cleared.
const seenMax = 4096

func newVerifier(ca *x509.Certificate) *verifier {
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	key, _ := ca.PublicKey.(*ecdsa.PublicKey)
	return &verifier{cluster: clusterOf(ca), roots: roots, key: key, seen: make(map[[sha256.Size]byte]leaf)}
}

// connection returns the authenticated identity of the peer of a TLS session.
func (v *verifier) connection(cs tls.ConnectionState, now time.Time) (membership.NodeID, error) {
	if cs.Version < tls.VersionTLS13 {
		return membership.NodeID{}, untrusted(errors.New("peer does not speak TLS 1.3"))
	}
	if cs.NegotiatedProtocol != NodeProtocol {
		return membership.NodeID{}, untrusted(fmt.Errorf("peer speaks %q, not %q", cs.NegotiatedProtocol, NodeProtocol))
	}
	if len(cs.PeerCertificates) == 0 {
		return membership.NodeID{}, untrusted(errors.New("peer has no certificate"))
	}
	return v.node(cs.PeerCertificates[0], now)
}

// node returns the identity in a certificate, after verifying it.
func (v *verifier) node(cert *x509.Certificate, now time.Time) (membership.NodeID, error) {
	key := sha256.Sum256(cert.Raw)
	v.mu.Lock()
	l, ok := v.seen[key]
	expired := v.expired
	v.mu.Unlock()
	if !ok {
		id, err := v.verify(cert, now)
		if err != nil {
			return membership.NodeID{}, untrusted(err)
		}
		l = leaf{id, cert.NotBefore, cert.NotAfter}
		v.mu.Lock()
		if len(v.seen) >= seenMax {
			clear(v.seen)
		}
		v.seen[key] = l
		v.mu.Unlock()
	}
	if err := checkTime(l.from, l.to, now); err != nil {
		if now.After(l.to) {
			reason := expired.check(l, now)
			if reason == nil {
				return l.id, nil
			}
			err = fmt.Errorf("%w: %w", err, reason)
		}
		return membership.NodeID{}, untrusted(err)
	}
	return l.id, nil
}

// verify checks everything but the expiry of a certificate, without the cache.
func (v *verifier) verify(cert *x509.Certificate, now time.Time) (id membership.NodeID, err error) {
	if now.Before(cert.NotBefore) {
		return id, checkTime(cert.NotBefore, cert.NotAfter, now)
	}
	// No intermediates: the CA signs every node.
	_, err = cert.Verify(x509.VerifyOptions{
		Roots:       v.roots,
		CurrentTime: earlier(now, cert.NotAfter),
		KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageAny}, // checked below, and for both sides
	})
	if err != nil {
		return id, fmt.Errorf("peer's certificate was not signed by the CA of this cluster: %w", err)
	}
	if cert.IsCA || cert.KeyUsage&x509.KeyUsageDigitalSignature == 0 ||
		!slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageClientAuth) ||
		!slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageServerAuth) {
		return id, errors.New("peer's certificate is not meant for a node (key usage)")
	}
	if len(cert.URIs) != 1 || cert.URIs[0].Scheme != "nexar" {
		return id, errors.New("peer's certificate does not name a node")
	}
	if got := cert.URIs[0].Host; got != v.cluster {
		return id, fmt.Errorf("peer is of cluster %q, this is cluster %s", got, v.cluster)
	}
	id, err = membership.ParseNodeID(strings.TrimPrefix(cert.URIs[0].Path, "/"))
	if err != nil {
		return id, fmt.Errorf("peer's certificate does not name a node: %w", err)
	}
	if hashID(cert.RawSubjectPublicKeyInfo) != id {
		return id, fmt.Errorf("peer's certificate names node %v, but its key is of another", id)
	}
	return id, nil
}

func checkTime(from, to, now time.Time) error {
	switch {
	case now.Before(from):
		return fmt.Errorf("peer's certificate is valid only from %s, by this clock it is %s",
			from.Format(time.RFC3339), now.Format(time.RFC3339))
	case now.After(to):
		return fmt.Errorf("peer's certificate expired at %s, by this clock it is %s",
			to.Format(time.RFC3339), now.Format(time.RFC3339))
	default:
		return nil
	}
}

// untrusted wraps err in transport.ErrIdentity.
func untrusted(err error) error { return fmt.Errorf("%w: %w", transport.ErrIdentity, err) }
