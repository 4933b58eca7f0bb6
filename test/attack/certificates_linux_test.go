package attack

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"net/url"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/pki"
)

// A forger has the key of the authority of a cluster and signs certificates that the seed
// would refuse to sign.
type forger struct {
	t       *testing.T
	cluster string
	ca      *x509.Certificate
	key     *ecdsa.PrivateKey
}

func newForger(t *testing.T, authority *pki.Authority) *forger {
	t.Helper()
	text, err := authority.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	f := &forger{t: t, cluster: authority.Cluster()}
	first, rest := pem.Decode(text)
	second, _ := pem.Decode(rest)
	if f.ca, err = x509.ParseCertificate(first.Bytes); err != nil {
		t.Fatal(err)
	}
	key, err := x509.ParsePKCS8PrivateKey(second.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	f.key = key.(*ecdsa.PrivateKey)
	return f
}

// node returns a certificate as from the seed, altered by change before it is signed.
func (f *forger) node(change func(c *x509.Certificate)) tls.Certificate {
	f.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.t.Fatal(err)
	}
	spki, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		f.t.Fatal(err)
	}
	sum := sha256.Sum256(spki)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: "nexar node"},
		URIs:         []*url.URL{f.name(hex.EncodeToString(sum[:16]))},
		NotBefore:    time.Now().Add(-10 * time.Minute), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, f.ca, &key.PublicKey, f.key)
	if err != nil {
		f.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// name returns the URI for a node of the cluster in a certificate.
func (f *forger) name(node string) *url.URL {
	return &url.URL{Scheme: "nexar", Host: f.cluster, Path: "/" + node}
}

// client returns a TLS configuration that presents a certificate and does not verify the
// server.
func client(cert tls.Certificate, protocol string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{protocol}, InsecureSkipVerify: true,
		CurvePreferences: []tls.CurveID{tls.X25519},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &cert, nil // for any authorities that the server asks for
		},
	}
}

// badCertificates returns certificates that no node accepts, by their fault. victim is the
// identity of a node of the world.
func badCertificates(t *testing.T, ours *pki.Authority, victim string) map[string]tls.Certificate {
	t.Helper()
	foreign, err := pki.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	f, other := newForger(t, ours), newForger(t, foreign)
	from := func(from, to time.Duration) func(c *x509.Certificate) {
		return func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(from), time.Now().Add(to)
		}
	}
	return map[string]tls.Certificate{
		"none":                   {},
		"another cluster":        other.node(nil),
		"expired":                f.node(from(-48*time.Hour, -24*time.Hour)),
		"expired a moment ago":   f.node(from(-48*time.Hour, -time.Second)),
		"of tomorrow":            f.node(from(24*time.Hour, 48*time.Hour)),
		"naming another node":    f.node(func(c *x509.Certificate) { c.URIs = []*url.URL{f.name(victim)} }),
		"naming no node":         f.node(func(c *x509.Certificate) { c.URIs = nil }),
		"naming two nodes":       f.node(func(c *x509.Certificate) { c.URIs = append(c.URIs, f.name(victim)) }),
		"for servers alone":      f.node(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }),
		"of a signing authority": f.node(func(c *x509.Certificate) { c.IsCA, c.KeyUsage = true, x509.KeyUsageCertSign }),
		"naming another cluster": f.node(func(c *x509.Certificate) { c.URIs[0].Host = foreign.Cluster() }),
	}
}
