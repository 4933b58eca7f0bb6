package pki

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"
)

func newAuthority(t testing.TB) *Authority {
	t.Helper()
	a, err := NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func newKey(t testing.TB) *Key {
	t.Helper()
	k, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func request(t testing.TB, k *Key) []byte {
	t.Helper()
	csr, err := k.Request()
	if err != nil {
		t.Fatal(err)
	}
	return csr
}

func TestSign(t *testing.T) {
	a, k := newAuthority(t), newKey(t)
	der, id, err := a.Sign(request(t, k), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if id != k.ID() {
		t.Errorf("id %v, want that of the key, %v", id, k.ID())
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := cert.URIs[0].String(), "nexar://"+a.Cluster()+"/"+id.String(); got != want {
		t.Errorf("URI %s, want %s", got, want)
	}
	if age := time.Since(cert.NotBefore); age < 5*time.Minute || age > time.Hour {
		t.Errorf("valid since %v, want some minutes, for clocks that differ", age)
	}
	if left := time.Until(cert.NotAfter); left > time.Hour || left < 59*time.Minute {
		t.Errorf("valid for %v, want an hour", left)
	}
}

func TestSignDefaultLife(t *testing.T) {
	a := newAuthority(t)
	der, _, err := a.Sign(request(t, newKey(t)), 0)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(cert.NotAfter).Round(time.Hour); left != CertificateLife {
		t.Errorf("valid for %v, want %v", left, CertificateLife)
	}
}

// A request for another name, or for a CA, gets a certificate for the identity of its key alone.
func TestSignIgnoresOtherFields(t *testing.T) {
	a, k, victim := newAuthority(t), newKey(t), newKey(t)
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:     pkix.Name{CommonName: "nexar node " + victim.ID().String()},
		URIs:        []*url.URL{{Scheme: "nexar", Host: a.Cluster(), Path: "/" + victim.ID().String()}},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtraExtensions: []pkix.Extension{{ // basic constraints: CA true
			Id: []int{2, 5, 29, 19}, Critical: true, Value: []byte{0x30, 3, 1, 1, 0xff},
		}},
	}, k.private)
	if err != nil {
		t.Fatal(err)
	}
	der, id, err := a.Sign(csr, 0)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	if id != k.ID() || len(cert.URIs) != 1 || !strings.HasSuffix(cert.URIs[0].Path, k.ID().String()) {
		t.Errorf("certificate names %v (%v), want %v", cert.URIs, id, k.ID())
	}
	if cert.IsCA || len(cert.DNSNames) > 0 || len(cert.IPAddresses) > 0 {
		t.Errorf("IsCA %v, names %v, addresses %v: want none of them", cert.IsCA, cert.DNSNames, cert.IPAddresses)
	}
}

func TestSignRefuses(t *testing.T) {
	a := newAuthority(t)
	good := request(t, newKey(t))
	forged := append([]byte(nil), good...)
	forged[len(forged)-1] ^= 1 // the last byte of the signature

	_, edKey, _ := ed25519.GenerateKey(rand.Reader)
	ed, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, edKey)
	if err != nil {
		t.Fatal(err)
	}
	p384Key, _ := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	p384, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, p384Key)
	if err != nil {
		t.Fatal(err)
	}
	for name, csr := range map[string][]byte{
		"empty":         nil,
		"garbage":       []byte("let me in"),
		"bad signature": forged,
		"ed25519":       ed,
		"P-384":         p384,
		"too long":      make([]byte, requestBytesMax+1),
	} {
		if _, _, err := a.Sign(csr, 0); err == nil {
			t.Errorf("%s: signed", name)
		}
	}
}

func TestClustersHaveDifferentNames(t *testing.T) {
	if a, b := newAuthority(t).Cluster(), newAuthority(t).Cluster(); a == b || len(a) != 32 {
		t.Errorf("clusters %s and %s, want two different names of 32 digits", a, b)
	}
}
