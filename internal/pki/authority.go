// Package pki is how nodes prove who they are.
//
// A seed holds an Authority, the cluster's certificate authority. A node makes
// its own Key, whose hash is its NodeID, sends the seed a signing request and
// gets a certificate that binds the key to the cluster. Key and certificate
// make an Identity, from which every transport takes its TLS configuration;
// that is all that most callers use. No private key ever travels.
//
// A Token is what a node must know to be admitted. Neither side sends it: each
// proves that it holds it by a MAC over keying material of the very TLS
// connection that they share, so whoever sits between them can neither pass
// as one of them nor relay between two connections of its own.
//
// An Authority and an Identity may be used by several goroutines.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
)

const (
	// skew is how far the clocks of two nodes may differ: certificates are
	// valid from so long before they are signed.
	skew = 10 * time.Minute

	// CertificateLife is how long a node's certificate is valid if nothing
	// else is asked for.
	CertificateLife = 24 * time.Hour

	authorityLife = 20 * 365 * 24 * time.Hour

	requestBytesMax = 8192
)

// An Authority signs the certificates of one cluster.
type Authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

// NewAuthority makes a new cluster CA that lives in memory only.
func NewAuthority() (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of the cluster CA: %w", err)
	}
	cert, err := selfSign(key, time.Now())
	if err != nil {
		return nil, fmt.Errorf("making the cluster CA: %w", err)
	}
	return &Authority{key, cert}, nil
}

func selfSign(key *ecdsa.PrivateKey, now time.Time) (*x509.Certificate, error) {
	cluster, err := keyID(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: "nexar cluster " + cluster.String()},
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// Cluster is the name of the cluster: a hash of the CA's public key, so that
// two clusters never share one and a CA kept on disk keeps its own.
func (a *Authority) Cluster() string { return clusterOf(a.cert) }

// Certificate is the CA's certificate, DER.
func (a *Authority) Certificate() []byte { return a.cert.Raw }

// Sign makes the certificate of the node that made a signing request. It is
// valid for life, or for CertificateLife if life is zero. Of the request only
// the public key counts, which must have signed it: whatever else a node asks
// for, it gets the identity that belongs to its key, and no more.
func (a *Authority) Sign(request []byte, life time.Duration) (cert []byte, id membership.NodeID, err error) {
	if life <= 0 {
		life = CertificateLife
	}
	pub, err := parseRequest(request)
	if err != nil {
		return nil, id, fmt.Errorf("signing request: %w", err)
	}
	if id, err = keyID(pub); err != nil {
		return nil, id, fmt.Errorf("signing request: %w", err)
	}
	now := time.Now()
	if cert, err = a.sign(nodeTemplate(a.Cluster(), id, now, life), pub); err != nil {
		return nil, id, fmt.Errorf("signing the certificate of node %v: %w", id, err)
	}
	return cert, id, nil
}

func parseRequest(request []byte) (*ecdsa.PublicKey, error) {
	if len(request) > requestBytesMax {
		return nil, fmt.Errorf("%d bytes, at most %d", len(request), requestBytesMax)
	}
	csr, err := x509.ParseCertificateRequest(request)
	if err != nil {
		return nil, err
	}
	pub, ok := csr.PublicKey.(*ecdsa.PublicKey)
	if !ok || pub.Curve != elliptic.P256() {
		return nil, errors.New("the key is not an ECDSA key on P-256")
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, err
	}
	return pub, nil
}

func nodeTemplate(cluster string, id membership.NodeID, now time.Time, life time.Duration) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: "nexar node " + id.String()},
		URIs:                  []*url.URL{{Scheme: "nexar", Host: cluster, Path: "/" + id.String()}},
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(life),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
}

func (a *Authority) sign(template *x509.Certificate, pub *ecdsa.PublicKey) ([]byte, error) {
	return x509.CreateCertificate(rand.Reader, template, a.cert, pub, a.key)
}

// clusterOf is the name of the cluster that ca is the CA of.
func clusterOf(ca *x509.Certificate) string { return hashID(ca.RawSubjectPublicKeyInfo).String() }

func serial() *big.Int {
	b := make([]byte, 16)
	rand.Read(b) // never fails
	b[0] &= 0x7f
	b[15] |= 1 // a serial number is never zero
	return new(big.Int).SetBytes(b)
}
