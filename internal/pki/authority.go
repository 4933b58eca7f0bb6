// Package pki authenticates nodes and seeds.
//
// A seed has an [Authority], the certificate authority of the cluster. A node makes a [Key],
// sends a signing request to the seed and gets a certificate that binds the key to the cluster.
// The hash of the public key is the NodeID. Key and certificate make an [Identity], which
// provides the TLS configuration of every transport; most callers use nothing else. Private
// keys are never sent.
//
// A CA of the user, the [Issuer], may sign the certificate of the Authority. Then nodes with its
// certificate in their [Roots] refuse seeds of other CAs.
//
// A [Token] is the secret that admits nodes. It is never sent either: each side proves it by a
// MAC over keying material of the TLS session, so that an interceptor can neither impersonate
// one of them nor relay between two sessions.
//
// An Authority and an Identity may be used concurrently.
//
// While no seed answers, an expired certificate is accepted if its key is that of a member of the newest view, it was valid when that
// view came and when a seed answered last, and the grace of [Identity.SetGrace] has not passed.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
)

const (
	// skew is the largest difference between the clocks of two nodes. Certificates are valid
	// from this time before they are signed.
	skew = 10 * time.Minute

	// CertificateLife is the default validity of the certificate of a node.
	CertificateLife = 24 * time.Hour

	authorityLife = 20 * 365 * 24 * time.Hour

	requestBytesMax = 8192
)

// An Authority signs the certificates of one cluster.
type Authority struct {
	key    *ecdsa.PrivateKey
	cert   *x509.Certificate
	issuer *x509.Certificate // the CA of the user that has signed cert; nil: none
}

// NewAuthority makes a new cluster CA in memory, which signs its own certificate.
func NewAuthority() (*Authority, error) { return (*Issuer)(nil).newAuthority(time.Now()) }

func (i *Issuer) newAuthority(now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of the cluster CA: %w", err)
	}
	cert, err := i.signCluster(key, now)
	if err != nil {
		return nil, fmt.Errorf("making the cluster CA: %w", err)
	}
	a := &Authority{key: key, cert: cert}
	if i != nil {
		a.issuer = i.cert
		if err := i.try(a, now); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// signCluster makes the certificate of a cluster CA. It is not valid for longer than that of the
// issuer, and permits no CA below it.
func (i *Issuer) signCluster(key *ecdsa.PrivateKey, now time.Time) (*x509.Certificate, error) {
	cluster, err := keyID(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: clusterName(cluster.String())},
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	parent, signer := template, crypto.PrivateKey(key)
	if i != nil {
		parent, signer = i.cert, i.key
		template.NotAfter = earlier(template.NotAfter, i.cert.NotAfter)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// clusterName and seedName return the common names in the certificates of the CA and the seeds of a
// cluster.
func clusterName(cluster string) string { return "nexar cluster " + cluster }
func seedName(cluster string) string    { return "nexar seed of " + cluster }

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Cluster returns the name of the cluster, which is a hash of the public key of its CA.
func (a *Authority) Cluster() string { return clusterOf(a.cert) }

// Certificate returns the certificate of the CA (DER).
func (a *Authority) Certificate() []byte { return a.cert.Raw }

// Sign makes the certificate of a node from its signing request. It is valid for life, or for
// CertificateLife if life is 0, and not for longer than the CA. Sign uses only the public key of the request and verifies its
// signature. The node gets the identity of its key; other fields of the request are ignored.
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
	template := nodeTemplate(a.Cluster(), id, now, life)
	template.NotAfter = earlier(template.NotAfter, a.cert.NotAfter)
	if cert, err = a.sign(template, pub); err != nil {
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

// clusterOf returns the name of the cluster of a CA.
func clusterOf(ca *x509.Certificate) string { return hashID(ca.RawSubjectPublicKeyInfo).String() }
